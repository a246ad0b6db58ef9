package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
	exitGuarded     = 7
	exitInterrupted = Interrupted
)

// Interrupted is the exit code of an end by Ctrl-C, or by SIGTERM. Who calls [Run] makes HungUp of it where that was the
// end of the terminal.
const (
	Interrupted = 130
	HungUp      = 129
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// explained is an end whose reason has been printed.
type explained struct{ code int }

func (e explained) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// finish prints what went wrong, where, and what can be done, and returns the exit code.
func (a *app) finish(ctx context.Context, cmd *cobra.Command, err error) int {
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
		if cmd.Runnable() && !cmd.HasSubCommands() {
			a.advise("usage: " + cmd.UseLine())
		}
		a.advise("see: " + cmd.CommandPath() + " --help")
		return exitUsage
	}
	return a.explain(err)
}

func (a *app) explain(err error) int {
	var invalid *rules.ValidationError
	switch {
	case errors.As(err, &invalid):
		a.complain("the rules are not valid, and nothing was stored: %s", count(len(invalid.Problems), "error"))
		return a.failure
	case errors.Is(err, rules.ErrUnavailable) && !rpcstatus.Answered(err):
		a.explainConnection(err)
		return a.failure
	case errors.Is(err, context.DeadlineExceeded):
		a.complain("the control plane at %s did not answer within %s", a.server, a.timeout)
		a.adviseLook()
		return a.failure
	case errors.Is(err, rules.ErrUnauthenticated):
		a.complain("%s", err)
		if a.context != nil && a.context.TokenFile != "" {
			a.advise("log in with a token: rulectl login --context " + a.context.Name)
		}
		a.advise("say who you are: --token-file FILE (also RULECTL_TOKEN_FILE, or the token itself in HEADGATE_TOKEN),",
			"or --tls-cert FILE --tls-key FILE; an admin makes a token with: rulectl token create")
		return exitAuth
	case errors.Is(err, rules.ErrForbidden):
		a.complain("%s", err)
		a.advise("who you are here, and for which domains: rulectl whoami; an admin makes another token with: rulectl token create")
		return exitAuth
	case errors.Is(err, rules.ErrConflict):
		a.complain("%s", err)
		if a.expect != 0 {
			a.advise("nothing was changed; look again, then name the revision you have seen: --expect-revision N")
		}
		return exitConflict
	case errors.Is(err, rules.ErrGuarded): // its text says the way
		a.complain("%s", err)
		return exitGuarded
	case errors.Is(err, rules.ErrNotFound):
		a.complain("%s", err)
		a.advise("see what there is: " + cmp.Or(a.lists, "rulectl get rules"))
		return a.failure
	}
	a.complain("%s", err)
	return a.failure
}

// explainConnection says why there is no answer.
func (a *app) explainConnection(err error) {
	what, ways, known := a.connectionTrouble(err.Error())
	a.complain("%s", what)
	a.advise(ways...)
	if !known {
		a.adviseLook()
	}
}

// complain says what is wrong. Lines of a text that came from elsewhere are indented, so that none looks like rulectl's.
func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.io.Err, "rulectl: %s\n", strings.ReplaceAll(clean(fmt.Sprintf(format, args...)), "\n", "\n  "))
}

func (a *app) advise(lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(a.io.Err, "  %s\n", line)
	}
}

// tell says what is good to know beside the data: what comes next, that all went well. With --quiet it does not.
func (a *app) tell(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.io.Err, format+"\n", args...)
	}
}

// warn says what must not be overlooked.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.io.Err, "⚠ "+format+"\n", args...)
}

func (a *app) adviseLook() {
	if a.changing {
		a.advise("the change may or may not be stored; see: rulectl get rules")
	}
}

// count is "1 error" or "3 errors".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
