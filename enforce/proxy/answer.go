package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforce"
)

// problem is the body of a refusal (RFC 9457), with the types of draft-ietf-httpapi-ratelimit-headers-11.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies"`
}

const (
	problemQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// refuse answers a refused request. Retry-After is in whole seconds, rounded up and never 0: repeating the call then,
// with no other traffic, passes. It is absent when waiting cannot help.
func refuse(w http.ResponseWriter, d *enforce.Decision) {
	body := problem{Type: problemQuota, Title: "Too many requests", Status: d.Status, Violated: []string{d.Rule}}
	if d.Limit != "" {
		body.Violated = []string{d.Rule + "/" + d.Limit}
	}
	switch d.Reason {
	case enforce.ReasonStoreUnavailable:
		body.Type, body.Title = problemCapacity, "Temporarily unavailable"
	case enforce.ReasonMalformed, enforce.ReasonMissingKey:
		body.Type, body.Title = "about:blank", "Bad request"
	}
	if d.Title != "" {
		body.Title = d.Title
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	switch {
	case d.Reason == enforce.ReasonMalformed:
		body.Detail = "A value that identifies the caller is given more than once."
	case d.Reason == enforce.ReasonMissingKey:
		body.Detail = "A value that identifies the caller is missing."
	case d.HideHeaders:
	case d.Reason == enforce.ReasonCostExceedsLimit:
		body.Detail = "Waiting does not help: the request costs more than the limit can ever hold."
	case d.Wait == enforce.Never:
		body.Detail = "Waiting does not help."
	default:
		seconds := retryAfter(d.Wait)
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		body.Detail = fmt.Sprintf("Retry in %d seconds.", seconds)
	}
	w.WriteHeader(d.Status)
	// An error here means that the caller has gone.
	_ = json.NewEncoder(w).Encode(body)
}

func retryAfter(wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return max(1, seconds)
}
