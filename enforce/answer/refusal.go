package answer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/enforce"
)

// problem is a body of application/problem+json (RFC 9457), with the members of
// draft-ietf-httpapi-ratelimit-headers-11.
type problem struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail,omitempty"`
	Violated  []string `json:"violated-policies,omitempty"`
	Reference string   `json:"reference,omitempty"`
}

const (
	problemQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	problemOther    = "about:blank"
)

// Refuse answers a refused request over HTTP.
func Refuse(w http.ResponseWriter, d *enforce.Decision) {
	Add(w.Header(), d)
	body := problem{Type: problemQuota, Title: title(d), Status: d.Status, Detail: detail(d), Reference: d.Reference}
	switch {
	case d.Reason == enforce.ReasonMalformed, d.Reason == enforce.ReasonMissingKey:
		body.Type = problemOther
	case d.Reason == enforce.ReasonStoreUnavailable, d.Status == http.StatusServiceUnavailable:
		body.Type = problemCapacity
	}
	if !d.HideHeaders {
		body.Violated = d.Violated
	}
	body.write(w)
}

// Fail answers a request that a door let pass and could not serve.
func Fail(w http.ResponseWriter, status int, detail string) {
	problem{Type: problemOther, Title: http.StatusText(status), Status: status, Detail: detail}.write(w)
}

func (p problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	// An error here means that the caller has gone.
	_ = json.NewEncoder(w).Encode(p)
}

func title(d *enforce.Decision) string {
	switch {
	case d.Title != "":
		return d.Title
	case d.Reason == enforce.ReasonMalformed, d.Reason == enforce.ReasonMissingKey:
		return "Bad request"
	case d.Reason == enforce.ReasonStoreUnavailable:
		return "Temporarily unavailable"
	}
	return "Too many requests"
}

func detail(d *enforce.Decision) string {
	seconds, waits := RetryAfter(d)
	switch {
	case d.Detail != "":
		return d.Detail
	case d.Reason == enforce.ReasonMalformed:
		return "A value that identifies the caller is given more than once."
	case d.Reason == enforce.ReasonMissingKey:
		return "A value that identifies the caller is missing."
	case d.HideHeaders:
		return ""
	case d.Reason == enforce.ReasonCostExceedsLimit:
		return "Waiting does not help: the request costs more than the limit can ever hold."
	case !waits:
		return "Waiting does not help."
	case seconds == 1:
		return "Retry in 1 second."
	}
	return fmt.Sprintf("Retry in %d seconds.", seconds)
}

// RefuseGRPC answers a refused gRPC request, by headers alone: the status with RetryInfo, and with the reference as
// RequestInfo. The status of the rule has no place there.
func RefuseGRPC(w http.ResponseWriter, d *enforce.Decision) {
	Add(w.Header(), d)
	s := &status.Status{Code: int32(grpcCode(d)), Message: title(d)}
	if text := detail(d); text != "" {
		s.Message += ": " + text
	}
	if seconds, waits := RetryAfter(d); waits {
		s.Details = append(s.Details, packed(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)}))
	}
	s.Details = append(s.Details, packed(&errdetails.RequestInfo{RequestId: d.Reference}))
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(int(s.GetCode())))
	h.Set("Grpc-Message", percentEncoded(s.GetMessage()))
	if raw, err := proto.Marshal(s); err == nil { // it fails only for text that is not UTF-8
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(raw))
	}
	w.WriteHeader(http.StatusOK)
}

// IsGRPC reports whether the request is a gRPC call.
func IsGRPC(r *http.Request) bool {
	rest, is := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return is && r.ProtoMajor == 2 && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

func grpcCode(d *enforce.Decision) code.Code {
	switch d.Reason {
	case enforce.ReasonMalformed, enforce.ReasonMissingKey:
		return code.Code_INVALID_ARGUMENT
	case enforce.ReasonStoreUnavailable:
		return code.Code_UNAVAILABLE
	}
	return code.Code_RESOURCE_EXHAUSTED
}

// packed cannot fail: the details are made here, of text and numbers.
func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		return &anypb.Any{}
	}
	return a
}

// percentEncoded is how gRPC writes a message in a header: everything but spaces and visible ASCII is encoded. A path
// encodes more than that, which readers decode just the same.
func percentEncoded(text string) string { return strings.ReplaceAll(url.PathEscape(text), "%20", " ") }
