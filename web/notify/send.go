package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/rules/rollout/alert"
)

// SignatureHeader has "sha256=" and the HMAC of the body with the secret, in hexadecimal digits.
const SignatureHeader = "X-Signature"

// Sign returns the value of SignatureHeader.
func Sign(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// statusError is an answer that is not 2xx.
type statusError struct {
	code  int
	after time.Duration // that it asks for before the next call
}

func (e *statusError) Error() string {
	switch {
	case e.code/100 == 3:
		return fmt.Sprintf("it answers %d: redirects are not followed; name the address itself", e.code)
	case e.code == http.StatusUnauthorized || e.code == http.StatusForbidden:
		return fmt.Sprintf("it answers %d: check the secret and the URL", e.code)
	}
	return fmt.Sprintf("it answers %d %s", e.code, http.StatusText(e.code))
}

// away reports that it is about the target, and not about what it was sent.
func (e *statusError) away() bool { return e.code == http.StatusTooManyRequests || e.code/100 != 4 }

// retryAfter is how long the target asks to be left alone.
func retryAfter(err error) time.Duration {
	if answer := (*statusError)(nil); errors.As(err, &answer) {
		return answer.after
	}
	return 0
}

// send sends alerts, and counts it.
func (n *Notifier) send(ctx context.Context, t *target, batch []alert.Alert) error {
	list := make([]message, len(batch))
	for i := range batch {
		list[i] = n.message(&batch[i])
	}
	return n.post(ctx, t, list...)
}

// post makes one call. Its error names no URL.
func (n *Notifier) post(ctx context.Context, t *target, list ...message) (err error) {
	defer func() {
		result := "sent"
		if err != nil {
			result = "failed"
		}
		n.sent.WithLabelValues(string(t.kind), result).Inc()
	}()
	body := n.body(t, list...)
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	var answered atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { answered.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("no call can be made to its URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "headgate")
	if len(t.secret) > 0 {
		req.Header.Set(SignatureHeader, Sign(t.secret, body))
	}
	resp, err := n.client.Do(req)
	switch {
	case err != nil && answered.Load() && ctx.Err() == nil:
		return errors.New("what it answers is no answer of HTTP") // the error repeats it, and it may repeat the URL
	case err != nil:
		if about := (*url.Error)(nil); errors.As(err, &about) {
			err = about.Err // what stands around it is the URL
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode/100 == 2 {
		return nil
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is as good as none
	return &statusError{resp.StatusCode, time.Duration(max(0, min(seconds, 3600))) * time.Second}
}
