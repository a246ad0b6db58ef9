package app

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/ui"
)

// answers has the engine of sidecars answer callers of a rule that meets every request, so that the dashboard shows what
// doors send and no likeness of it. Its counters begin empty, and end with the call.
func answers(ctx context.Context, rule string, spec *rules.Spec) (allowed, refused *ui.Answer, err error) {
	const domain = "preview"
	engine := enforce.NewEngine(memlimit.New(), unrecorded{}, slog.New(slog.DiscardHandler))
	engine.Swap(rules.NewIndex(rules.Domain{Name: domain}, []*rules.Rule{
		{Domain: domain, Name: rule, UID: domain, Stable: &rules.Version{Number: 1, Spec: *spec}},
	}))
	call := func(hits int64) enforce.Decision {
		return engine.Decide(ctx, &rules.Request{Domain: domain, Method: http.MethodGet, Path: "/", Hits: hits})
	}
	d := call(1)
	if d.Allowed {
		w := &response{ui.Answer{Status: http.StatusOK, Header: http.Header{}}}
		answer.Add(w.Header(), &d)
		allowed = &w.Answer
		call(d.Left) // of the limit with the fewest left
		d = call(1)
	}
	if !d.Allowed {
		w := &response{ui.Answer{Header: http.Header{}}}
		answer.Refuse(w, &d)
		refused = &w.Answer
	}
	return allowed, refused, ctx.Err()
}

// response keeps what is written.
type response struct{ ui.Answer }

func (r *response) Header() http.Header { return r.Answer.Header }

func (r *response) WriteHeader(status int) { r.Status = status }

func (r *response) Write(b []byte) (int, error) {
	r.Body = append(r.Body, b...)
	return len(b), nil
}

// unrecorded counts nothing.
type unrecorded struct{}

func (unrecorded) Record(string, *enforce.Decision) {}
