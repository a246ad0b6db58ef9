package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxAnswer bounds what is read of a sidecar's answer, in bytes: the metrics of ten thousand rules are a fifth of it.
const maxAnswer = 64 << 20

// A glass is a freeze, or its end, at one sidecar's operations port.
type glass struct {
	domain, rule    string        // "": the only domain of the sidecar; all rules
	length          time.Duration // 0: it ends one
	includingClosed bool
}

// sidecarAnswer is what an operations port says: what is frozen there now, or what is wrong.
type sidecarAnswer struct {
	Freezes []sidecarFreeze `json:"freezes"`
	Warning string          `json:"warning"`
	Error   string          `json:"error"`
}

type sidecarFreeze struct {
	Domain          string    `json:"domain"`
	Rule            string    `json:"rule,omitempty"` // absent: all of the domain
	Until           time.Time `json:"until"`
	IncludingClosed bool      `json:"includingClosed"`
	Source          string    `json:"source"` // controlplane, or sidecar where it was made there
	Actor           string    `json:"actor,omitempty"`
}

// breakGlass freezes or unfreezes one sidecar, without a control plane.
func (a *app) breakGlass(ctx context.Context, address string, g glass) error {
	form := url.Values{"domain": {g.domain}, "rule": {g.rule}, "actor": {a.actor()}}
	door := "/unfreeze"
	if g.length > 0 {
		door = "/freeze"
		form.Set("for", g.length.String())
		form.Set("including_closed", strconv.FormatBool(g.includingClosed))
	}
	if a.message != "" || a.wait || a.expect != 0 {
		a.warn("a sidecar itself keeps no message, and has no --wait and no --expect-revision: they are passed over")
	}
	var answer sidecarAnswer
	if err := a.askSidecar(ctx, address, http.MethodPost, door, form, &answer); err != nil {
		return err
	}
	none := "nothing is frozen there"
	if g.length == 0 && !a.structured() {
		fmt.Fprintf(a.io.Out, "the freeze of %s that was made at this sidecar is ended\n", cmp.Or(path.Join(g.domain, g.rule), "its domain"))
		none = "nothing else is frozen there"
	}
	if err := a.showSidecarFreezes(&answer, none); err != nil {
		return err
	}
	if g.length > 0 && !g.includingClosed {
		a.warn("rules with failure: closed go on refusing, unless they are included (--including-closed)")
	}
	a.tell("this sidecar alone; it tells the control plane when that is there; see: rulectl sidecar freezes %s", address)
	return nil
}

func (a *app) sidecarFreezesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "freezes HOST:PORT",
		Short:   "Ask a sidecar's operations port what is frozen there, without a control plane",
		Example: "  rulectl sidecar freezes 10.0.0.7:8082",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			var answer sidecarAnswer
			if err := a.askSidecar(ctx, args[0], http.MethodGet, "/freezes", nil, &answer); err != nil {
				return err
			}
			return a.showSidecarFreezes(&answer, "nothing is frozen there")
		}),
	}
	a.listFlags(cmd)
	return cmd
}

// showSidecarFreezes shows what is frozen, or says none.
func (a *app) showSidecarFreezes(answer *sidecarAnswer, none string) error {
	if answer.Warning != "" {
		a.warn("%s", oneLine(answer.Warning))
	}
	l := &listing[sidecarFreeze]{
		kind:   "FreezeList",
		header: []string{"DOMAIN", "RULE", "FROZEN UNTIL", "LEFT", "FAILURE: CLOSED TOO", "BY"},
		row:    sidecarFreeze.row,
		none:   func() { a.tell("%s", none) },
	}
	return l.show(a, answer.Freezes)
}

func (f sidecarFreeze) row(bool) []string {
	closed, by := "no", f.Source
	if f.IncludingClosed {
		closed = "yes"
	}
	if f.Actor != "" {
		by += ", " + actorText(f.Actor, false)
	}
	return []string{f.Domain, f.Rule, when(f.Until), left(f.Until, time.Now()), closed, by}
}

func (s *sidecarAnswer) wrong() string { return s.Error }

// askSidecar asks an operations port, which answers in JSON, be it with what is wrong.
func (a *app) askSidecar(ctx context.Context, address, method, path string, form url.Values, answer interface{ wrong() string }) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usagef("%q is not HOST:PORT of a sidecar's operations port", address)
	}
	status, body, err := a.callSidecar(ctx, address, method, path, form)
	if err != nil {
		a.complain("no sidecar answers at %s: %s", address, err)
		a.advise("name the operations port of a sidecar, HOST:PORT (its --ops-listen)")
		return explained{a.failure}
	}
	if json.Unmarshal(body, answer) != nil || status != http.StatusOK && answer.wrong() == "" {
		return fmt.Errorf("%s answers with %d %s, and not as the operations port of a sidecar does", address, status, http.StatusText(status))
	}
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		a.complain("sidecar %s: %s", address, answer.wrong())
		return explained{exitAuth}
	}
	return fmt.Errorf("sidecar %s: %s", address, answer.wrong())
}

// callSidecar asks directly: neither a proxy nor a redirection is followed.
func (a *app) callSidecar(ctx context.Context, address, method, path string, form url.Values) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	at := url.URL{Scheme: "http", Host: address, Path: path}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return 0, nil, usagef("%q is not HOST:PORT of a sidecar's operations port", address)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, body, err
}
