package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxAnswer bounds what is read of a sidecar's answer.
const maxAnswer = 1 << 20

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
	path := "/unfreeze"
	if g.length > 0 {
		path = "/freeze"
		form.Set("for", g.length.String())
		form.Set("including_closed", strconv.FormatBool(g.includingClosed))
	}
	if a.message != "" || a.wait || a.expect != 0 {
		fmt.Fprintln(a.io.Err, "note: a sidecar itself keeps no message, and has no --wait and no --expect-revision: they are passed over")
	}
	answer, err := a.askSidecar(ctx, address, http.MethodPost, path, form)
	if err != nil {
		return err
	}
	if err := a.showSidecarFreezes(answer); err != nil {
		return err
	}
	fmt.Fprintln(a.io.Err, "this sidecar alone; it tells the control plane when that is there; see: rulectl sidecar freezes "+address)
	return nil
}

func (a *app) sidecarFreezesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "freezes HOST:PORT",
		Short:   "Ask a sidecar's operations port what is frozen there, without a control plane",
		Example: "  rulectl sidecar freezes 10.0.0.7:8082",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			answer, err := a.askSidecar(ctx, args[0], http.MethodGet, "/freezes", nil)
			if err != nil {
				return err
			}
			return a.showSidecarFreezes(answer)
		}),
	}
}

func (a *app) showSidecarFreezes(answer *sidecarAnswer) error {
	if answer.Warning != "" {
		fmt.Fprintf(a.io.Err, "⚠ %s\n", oneLine(answer.Warning))
	}
	if a.output == outputJSON {
		return printList(a, "FreezeList", answer.Freezes)
	}
	if len(answer.Freezes) == 0 {
		fmt.Fprintln(a.io.Err, "nothing is frozen there")
		return nil
	}
	rows := make([][]string, len(answer.Freezes))
	for i, f := range answer.Freezes {
		closed, by := "no", f.Source
		if f.IncludingClosed {
			closed = "yes"
		}
		if f.Actor != "" {
			by += ", " + actorText(f.Actor, false)
		}
		rows[i] = []string{f.Domain, f.Rule, when(f.Until), left(f.Until, time.Now()), closed, by}
	}
	_, err := fmt.Fprint(a.io.Out, renderTable([]string{"DOMAIN", "RULE", "FROZEN UNTIL", "LEFT", "FAILURE: CLOSED TOO", "BY"}, rows))
	return err
}

// askSidecar asks an operations port directly: neither a proxy nor a redirection is followed.
func (a *app) askSidecar(ctx context.Context, address, method, path string, form url.Values) (*sidecarAnswer, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usagef("%q is not HOST:PORT of a sidecar's operations port", address)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	at := url.URL{Scheme: "http", Host: address, Path: path}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, usagef("%q is not HOST:PORT of a sidecar's operations port", address)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		a.complain("no sidecar answers at %s: %s", address, err)
		a.advise("name the operations port of a sidecar, HOST:PORT (its --ops-listen)")
		return nil, explained{exitFailed}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	var answer sidecarAnswer
	if err != nil || json.Unmarshal(body, &answer) != nil || resp.StatusCode != http.StatusOK && answer.Error == "" {
		return nil, fmt.Errorf("%s answers with %s, and not as the operations port of a sidecar does", address, resp.Status)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return &answer, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		a.complain("sidecar %s: %s", address, answer.Error)
		return nil, explained{exitAuth}
	}
	return nil, fmt.Errorf("sidecar %s: %s", address, answer.Error)
}
