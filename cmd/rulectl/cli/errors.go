package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// Exit codes; the rest of their meaning is with [Run].
const (
	exitFailed      = 1
	exitUsage       = 2
	exitAuth        = 4
	exitConflict    = 5
	exitNotAcked    = 6
	exitInterrupted = 130
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// explained is an end whose reason has been printed.
type explained struct{ code int }

func (e explained) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// finish prints what went wrong, where, and what can be done, and returns the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	var done explained
	switch {
	case err == nil:
		return 0
	case errors.As(err, &done):
		return done.code
	case ctx.Err() != nil:
		a.complain("interrupted")
		a.adviseLook()
		return exitInterrupted
	}
	var usage usageError
	if !a.started || errors.As(err, &usage) {
		a.complain("%s", err)
		a.advise("see: rulectl --help")
		return exitUsage
	}
	return a.explain(err)
}

func (a *app) explain(err error) int {
	var invalid *rules.ValidationError
	switch {
	case errors.As(err, &invalid):
		a.complain("the rules are not valid, and nothing was stored: %s", count(len(invalid.Problems), "error"))
		return exitFailed
	case errors.Is(err, rules.ErrUnavailable) && !rpcstatus.Answered(err) && !strings.Contains(err.Error(), dialing):
		a.complain("the connection to the control plane at %s broke before it answered: %s", a.server, err)
		a.adviseLook()
		return exitFailed
	case errors.Is(err, rules.ErrUnavailable) && !rpcstatus.Answered(err):
		a.complain("no control plane answers at %s: %s", a.server, dialText(err))
		a.advise("name another: --server HOST:PORT, or RULECTL_SERVER", "(sidecars go on without it; to try headgate on this machine: controlplane dev)")
		return exitFailed
	case errors.Is(err, context.DeadlineExceeded):
		a.complain("the control plane at %s did not answer within %s", a.server, a.timeout)
		a.adviseLook()
		return exitFailed
	case errors.Is(err, rules.ErrForbidden):
		a.complain("%s", err)
		return exitAuth
	case errors.Is(err, rules.ErrConflict):
		a.complain("%s", err)
		return exitConflict
	case errors.Is(err, rules.ErrNotFound):
		a.complain("%s", err)
		a.advise("see what there is: rulectl get rules")
		return exitFailed
	}
	a.complain("%s", err)
	return exitFailed
}

func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.io.Err, "rulectl: %s\n", clean(fmt.Sprintf(format, args...)))
}

func (a *app) advise(lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(a.io.Err, "  %s\n", line)
	}
}

func (a *app) adviseLook() {
	if a.changing {
		a.advise("the change may or may not be stored; see: rulectl get rules")
	}
}

// dialing is how gRPC's text of a connection that was never made goes on.
const dialing = "Error while dialing: "

// dialText is the part of gRPC's text that says why there is no connection.
func dialText(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, dialing); ok {
		text = strings.TrimSuffix(after, `"`)
	}
	return text
}

// count is "1 error" or "3 errors".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
