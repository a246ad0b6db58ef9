package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/headgate/headgate/enforce"
)

// sent is what is known of a request on its way to the service.
type sent struct {
	decision *enforce.Decision
	body     body
}

type sentKey struct{}

// sentOf returns it of a request that was forwarded.
func sentOf(r *http.Request) *sent {
	s, _ := r.Context().Value(sentKey{}).(*sent)
	return s
}

// with returns the request as it is forwarded.
func (s *sent) with(ctx context.Context, r *http.Request) *http.Request {
	r = r.WithContext(context.WithValue(ctx, sentKey{}, s))
	s.body.ReadCloser, r.Body = r.Body, &s.body
	return r
}

// body is a caller's body on its way to the service. When a request cannot be forwarded, it tells whose fault that is: a
// body that breaks off, or whose chunks are none, is its caller's.
type body struct {
	io.ReadCloser

	mu  sync.Mutex // is held while the body is read
	err error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// isBroken reports whether the caller did not send the body as HTTP has it. Of a caller that has gone, only what broke off
// counts: one that cancels has done nothing wrong.
func (b *body) isBroken(gone bool) bool {
	switch {
	case gone:
		b.mu.Lock() // the read under way is what found out, and ends at once
	case !b.mu.TryLock():
		return false // nothing is wrong so far
	}
	defer b.mu.Unlock()
	return b.err != nil && (!gone || errors.Is(b.err, io.ErrUnexpectedEOF))
}
