package cli

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// IO is what rulectl is connected to.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
}

// Run runs one command and returns its exit code: 0 done; 1 failed; 2 usage; 4 not logged in or not allowed; 5
// conflict; 6 stored, but not acknowledged by every sidecar in time; 130 interrupted. It returns early when ctx ends.
func Run(ctx context.Context, args []string, io IO) int {
	a := &app{io: io, output: outputTable}
	root := a.rootCommand()                   //nolint:contextcheck // commands get ctx from ExecuteContext
	root.SetArgs(append([]string{}, args...)) // cobra would take os.Args for nil
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	return a.finish(ctx, root.ExecuteContext(ctx))
}

// app is one run: its connections and the values of the flags that several commands share.
type app struct {
	io      IO
	started bool // the command line was understood; errors before that are errors of usage
	// changing: a change has been sent and not answered. Whoever stops waiting then does not know what became of it.
	changing bool

	server  string
	timeout time.Duration
	output  output
	domain  string
	message string
	wait    bool
	files   []string
}

const (
	defaultServer  = "127.0.0.1:18000"
	defaultTimeout = time.Minute
)

// Groups of commands in the help.
const (
	groupAuthor = "author"
	groupChange = "change"
	groupLook   = "look"
)

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "rulectl",
		Short: "Change rate limits without fear",
		Long: "rulectl changes the rules of a headgate control plane, and shows what became of them.\n\n" +
			"A new or changed rule starts in shadow, where it counts what it would refuse and refuses nobody. It is promoted\n" +
			"by percentage of keys, and rolled back with one command.\n\n" +
			"Exit codes: 0 done; 1 failed; 2 usage; 4 not logged in or not allowed; 5 conflict; 6 stored, but not\n" +
			"acknowledged by every sidecar in time; 130 interrupted.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	server := a.io.Getenv("RULECTL_SERVER")
	if server == "" {
		server = defaultServer
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", server, "address of the control plane; also RULECTL_SERVER")
	flags.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long to wait for the control plane and, with --wait, for the sidecars")
	flags.VarP(&a.output, "output", "o", "table or json")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })

	root.AddGroup(&cobra.Group{ID: groupAuthor, Title: "Write rules (no server needed):"},
		&cobra.Group{ID: groupChange, Title: "Change:"}, &cobra.Group{ID: groupLook, Title: "Look:"})
	root.AddCommand(a.validateCommand(), a.fmtCommand(), a.explainCommand(), a.applyCommand(), a.promoteCommand(), a.rollbackCommand(), a.getCommand(),
		a.sidecarCommand(), a.versionCommand())
	root.AddCommand(a.initCommand(), a.simulateCommand(), a.testCommand(), a.backtestCommand())
	return root
}

// run adapts a command's function: once it runs, the command line was understood.
func (a *app) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.timeout <= 0 {
			return usagef("--timeout must be more than 0")
		}
		a.started = true
		return f(cmd.Context(), args)
	}
}

// group makes a command that only holds others refuse words it does not know.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("unknown command %q for %q; see '%s --help'", args[0], cmd.CommandPath(), cmd.CommandPath())
		}
		return cmd.Help()
	}
	return cmd
}

func (a *app) domainFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&a.domain, "domain", "d", "", usage)
}

// changeFlags are the flags of every command that changes something.
func (a *app) changeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.message, "message", "m", "", "why; kept in the audit record")
	cmd.Flags().BoolVar(&a.wait, "wait", false, "wait until every sidecar of the domain has acknowledged the change")
}

// terminal reports whether w is one, and can be redrawn.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
