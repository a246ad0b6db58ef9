package cli

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/itchyny/gojq"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// IO is what rulectl is connected to.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Interactive: somebody sits in front of In and Err, and may be asked. Without, nothing is asked, and what needs an
	// answer needs --yes.
	Interactive bool
}

// Standard is what a program is connected to.
func Standard() IO {
	return IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv,
		Interactive: isatty.IsTerminal(os.Stdin.Fd()) && isatty.IsTerminal(os.Stderr.Fd()),
	}
}

// Run runs one command and returns its exit code: 0 done; 1 failed; 2 usage; 4 not logged in or not allowed; 5
// conflict; 6 stored, but not acknowledged by every sidecar in time; 7 stopped by a guard; 130 interrupted. It returns
// early when ctx ends.
func Run(ctx context.Context, args []string, io IO) int {
	a := &app{io: io, output: outputTable, failure: exitFailed}
	a.paint()
	root := a.rootCommand()                   //nolint:contextcheck // commands get ctx from ExecuteContext
	root.SetArgs(append([]string{}, args...)) // cobra would take os.Args for nil
	root.SetIn(io.In)
	root.SetOut(a.io.Out)
	root.SetErr(a.io.Err)
	cmd, err := root.ExecuteContextC(ctx)
	return a.finish(ctx, cmd, err)
}

// app is one run: its connections and the values of the flags that several commands share.
type app struct {
	io      IO
	started bool // the command line was understood; errors before that are errors of usage
	// changing: a change has been sent and not answered. Whoever stops waiting then does not know what became of it.
	changing   bool
	failure    int      // the exit code of what fails
	newDomains []string // that were told of
	domainWay  string   // what is meant where a domain is named in place of a rule; %s is the domain
	lists      string   // the command that shows what there is to be named; "": get rules

	flags       *pflag.FlagSet // that every command has
	config      *configFile    // nil before settle
	contextName string         // as a flag or the environment names it; "": the one in use
	context     *setup         // nil: none is in use, or another server is named
	typed       bool           // somebody typed the name of the protected context

	server  string
	proof   proof
	timeout time.Duration
	output  output
	domain  string
	message string
	expect  int64 // the revision that the change is based on; 0: whatever stands
	yes     consent
	wait    bool
	files   []string

	noHeaders bool
	sortBy    string
	watching  bool
	quiet     bool
	noColor   bool
	jq        string
	filter    func(any) gojq.Iter // of --jq; nil: all is printed
}

const (
	defaultPort    = "18000"
	defaultServer  = "127.0.0.1:" + defaultPort
	defaultTimeout = time.Minute
)

// Groups of commands in the help.
const (
	groupAuthor = "author"
	groupChange = "change"
	groupLook   = "look"
	groupTrust  = "trust"
	groupSelf   = "self"
)

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "rulectl",
		Short: "Change rate limits without fear",
		Long: "rulectl changes the rules of a headgate control plane, and shows what became of them.\n\n" +
			"A new or changed rule starts in shadow, where it counts what it would refuse and refuses nobody. It is promoted\n" +
			"by percentage of keys, and rolled back with one command.\n\n" +
			"Exit codes: 0 done; 1 failed; 2 usage; 4 not logged in or not allowed; 5 conflict; 6 stored, but not\n" +
			"acknowledged by every sidecar in time; 7 stopped by a guard; 130 interrupted: see rulectl help exit-codes.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	server := a.io.Getenv("RULECTL_SERVER")
	if server == "" {
		server = defaultServer
	}
	flags := root.PersistentFlags()
	a.flags = flags
	a.contextFlag(flags)
	flags.StringVar(&a.server, "server", server, "address of the control plane, whose port is 18000 where none is named; also RULECTL_SERVER")
	flags.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long to wait for the control plane and, with --wait, for the sidecars")
	flags.VarP(&a.output, "output", "o", "table, wide (more columns), json, yaml or name")
	flags.StringVar(&a.jq, "jq", "", "print what this jq expression makes of -o json: a result a line, texts without quotes")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print data, warnings and errors, and nothing beside them")
	flags.BoolVar(&a.noColor, "no-color", false, "print without colours; also NO_COLOR=1")
	a.proof.flags(flags, a.io.Getenv)
	// Whoever needs help in a hurry needs an example: it comes first, and once.
	// The flags that all have are behind it: a dozen of them hide those that are the command's own.
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .HasExample}}\n\nExamples:\n{{.Example}}{{end}}", "",
		"\n\nGlobal Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", "\n\nFlags that every command has: rulectl options",
	).Replace(root.UsageTemplate()))
	root.SetHelpTemplate("{{if .HasExample}}Examples:\n{{.Example}}\n\n{{end}}" + root.HelpTemplate())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagError(err)} })

	root.AddGroup(&cobra.Group{ID: groupAuthor, Title: "Write rules (no server needed):"},
		&cobra.Group{ID: groupChange, Title: "Change:"}, &cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupTrust, Title: "Trust:"}, &cobra.Group{ID: groupSelf, Title: "rulectl itself:"})
	group(root, a.initCommand(), a.validateCommand(), a.fmtCommand(), a.explainCommand(), a.simulateCommand(),
		a.testCommand(), a.backtestCommand())
	root.AddCommand(a.applyCommand(), a.promoteCommand(), a.abortCommand(), a.pauseCommand(), a.resumeCommand(),
		a.rollbackCommand(), a.diffCommand(), a.deleteCommand(), a.freezeCommand(), a.unfreezeCommand(), a.overrideCommand())
	root.AddCommand(a.getCommand(), a.describeCommand(), a.rolloutCommand(), a.statsCommand(), a.topCommand(), a.lookupCommand(), a.inspectCommand(), a.historyCommand(),
		a.auditCommand(), a.sidecarCommand(), a.watchCommand(), a.alertCommand())
	root.AddCommand(a.tokenCommand(), a.whoamiCommand(), a.loginCommand(), a.logoutCommand(), a.configCommand(), a.doctorCommand(),
		a.versionCommand(), a.manCommand(), a.optionsCommand(), exitCodesTopic())
	root.SetHelpCommandGroupID(groupSelf)
	root.SetCompletionCommandGroupID(groupSelf)
	a.complete(root)
	a.finishHelp(root)
	for cmd := range commands(root) {
		sayArguments(cmd)
	}
	return root
}

// finishHelp has cobra's own commands refuse what they do not know, as all do.
func (a *app) finishHelp(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	completion, _, _ := root.Find([]string{"completion"})
	group(completion)
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if cmd, rest, err := root.Find(args); err != nil || len(rest) > 0 && cmd.HasSubCommands() {
			return usagef("there is no help on %q; see: rulectl help", strings.Join(args, " "))
		}
		return nil
	}
}

// run adapts a command's function: once it runs, the command line was understood.
func (a *app) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.timeout <= 0 {
			return usagef("--timeout must be more than 0")
		}
		if err := a.checkOutput(cmd); err != nil {
			return err
		}
		if err := a.compileFilter(cmd.Context()); err != nil {
			return err
		}
		if a.noColor {
			a.bleach()
		}
		a.started = true
		return f(cmd.Context(), args)
	}
}

// group makes a command that only holds others refuse words it does not know.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		meant := ""
		if list := suggested(cmd, args[0]); len(list) > 0 {
			meant = "; did you mean: " + strings.Join(list, ", ")
		}
		return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant)
	}
	return cmd
}

// suggested are the commands that a word may have been meant for: those of that name further down, and else those beside
// it whose names are like it.
func suggested(in *cobra.Command, word string) (list []string) {
	for cmd := range commands(in) {
		if cmd != in && cmd.IsAvailableCommand() && (cmd.Name() == word || cmd.HasAlias(word) || slices.Contains(cmd.SuggestFor, word)) {
			list = append(list, cmd.CommandPath())
		}
	}
	for _, cmd := range in.Root().Commands() {
		if len(list) == 0 && in.HasParent() && cmd.IsAvailableCommand() && (cmd.Name() == word || cmd.HasAlias(word)) {
			return []string{cmd.CommandPath()} // as in "get tokens"
		}
	}
	if len(list) > 0 {
		return list
	}
	in.SuggestionsMinimumDistance = 1 + len(word)/6
	for _, name := range in.SuggestionsFor(word) {
		list = append(list, in.CommandPath()+" "+name)
	}
	return list
}

func (a *app) domainFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&a.domain, "domain", "d", "", usage)
}

// changeFlags are the flags of every command that makes a revision.
func (a *app) changeFlags(cmd *cobra.Command) {
	hasNames(cmd)
	a.messageFlag(cmd)
	a.yesFlag(cmd, "it is meant: do not ask")
	cmd.Flags().BoolVar(&a.wait, "wait", false, "wait until every sidecar of the domain has acknowledged the change")
	cmd.Flags().Int64Var(&a.expect, "expect-revision", 0,
		"change nothing (exit 5) when what this is about was touched after this revision, the one you have looked at")
}

func (a *app) messageFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.message, "message", "m", "", "why; kept in the audit record")
}

// terminal reports whether w is one, and can be redrawn.
func terminal(w io.Writer) bool {
	f, ok := raw(w).(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// room is how many columns the terminal has on which data is shown; 0 where none is.
func (a *app) room() int {
	f, ok := raw(a.io.Out).(*os.File)
	if !ok {
		return 0
	}
	room, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return room
}
