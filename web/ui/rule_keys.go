package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	shownKeys = 50
	// keysKept is how long keys and refusals are kept.
	keysKept = 8 * 24 * time.Hour
)

// keysTab is whom the rule goes against.
type keysTab struct {
	*adminpb.TopResponse
	Other bool // the time is not the one that was asked for: of keys, only what leads up to now is known
}

func (u *UI) keysTab(ctx context.Context, _ *request, page *rulePage) error {
	now := time.Now()
	since := min(now.Sub(page.Span.From), keysKept)
	if since < shortestSpan {
		since = shortestSpan
	}
	resp, err := u.api.Top(ctx, &adminpb.TopRequest{Domain: page.Domain, Rule: page.Name, Since: durationpb.New(since), Limit: shownKeys})
	if err != nil {
		return err
	}
	page.Keys = &keysTab{resp, page.Span.Range == "" || now.Sub(page.Span.From) > keysKept+time.Minute}
	return nil
}

// KeyParts are what one key of the rule is made of.
func (p *rulePage) KeyParts() []rules.KeySource { return p.text().Key }

// found is what is known of one customer, or why it is not said.
type found struct {
	*adminpb.LookupResponse
	Overrides []*adminpb.Override // that the key has
	Problem   string
}

var lookBack = []struct {
	Name, Text string
	of         time.Duration
}{{"24h", "the last day", 24 * time.Hour}, {"1h", "the last hour", time.Hour}, {"8d", "the last 8 days", keysKept}}

// LookBack are the times in which a customer is looked for.
func (p *rulePage) LookBack() any { return lookBack }

// lookup shows what happened to one customer. The values of a key come in the body of a POST, are handed on to be hashed, and
// stand in no address, page or log.
func (u *UI) lookup(w http.ResponseWriter, r *http.Request) {
	if err := readForm(w, r); err != nil {
		u.Failed(w, r, err)
		return
	}
	status := http.StatusOK
	f, err := u.frame(r, func(ctx context.Context, req *request) (view, error) {
		req.Query.Set("tab", "keys")
		return u.rulePage(ctx, req, func(ctx context.Context, _ *request, page *rulePage) error {
			var err error
			if page.Found, err = u.find(ctx, r, page); err != nil {
				failed := failureOf(err)
				if failed.Status >= http.StatusInternalServerError {
					return err
				}
				page.Found, status = &found{Problem: failed.Text}, failed.Status
			}
			return nil
		})
	})
	if err != nil {
		u.Failed(w, r, err)
		return
	}
	u.render(w, r, status, u.pages["rule"], f)
}

// find asks for what the form says.
func (u *UI) find(ctx context.Context, r *http.Request, page *rulePage) (*found, error) {
	req := &adminpb.LookupRequest{Domain: page.Domain, Rule: page.Name, Key: r.PostForm["key"], Reference: r.PostForm.Get("reference")}
	if r.PostForm.Has("reference") && req.GetReference() == "" {
		return nil, fmt.Errorf("%w: the reference is empty; it stands in the answer that the customer got", rules.ErrInvalid)
	}
	since := cmp.Or(r.PostForm.Get("since"), lookBack[0].Name)
	for _, l := range lookBack {
		if l.Name == since {
			req.Since = durationpb.New(l.of)
		}
	}
	if req.GetSince() == nil {
		return nil, fmt.Errorf("%w: since is %q; it is one of 24h, 1h, 8d", rules.ErrInvalid, since)
	}
	resp, err := u.api.Lookup(ctx, req)
	if err != nil || len(req.GetKey()) == 0 {
		return &found{LookupResponse: resp}, err
	}
	list, err := u.api.ListOverrides(ctx, &adminpb.ListOverridesRequest{Domain: page.Domain, Rule: page.Name, Key: req.GetKey()})
	if isRefusal(err) {
		err = nil // the rule is deleted, or the key of its candidate has other parts than the one that overrides are of
	}
	return &found{LookupResponse: resp, Overrides: list.GetOverrides()}, err
}

// lookupForm is the page for who comes back to the address of a lookup.
func (u *UI) lookupForm(ctx context.Context, r *request) (view, error) {
	r.Query.Set("tab", "keys")
	return u.rule(ctx, r)
}
