package cli

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/rulectl/accesslog"
	"github.com/headgate/headgate/cmd/rulectl/backtest"
	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/cmd/rulectl/ruletest"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

type backtestFlags struct {
	log, format, store string
	sortWindow         time.Duration
}

func (a *app) backtestCommand() *cobra.Command {
	var f backtestFlags
	cmd := &cobra.Command{
		Use:   "backtest -f FILE|DIR --log LOG",
		Short: "Replay an access log through rule files, without a server",
		Long: "backtest replays an access log through rule files on a virtual clock, and counts what they would have refused.\n" +
			"All rules are judged together, as if all were enforced. The log is read once, as a stream; its lines may stand\n" +
			"out of order by as much as --sort-window. A log that ends with .gz, or comes through a pipe (-), is read as well.\n\n" +
			"combined is Apache's and nginx's combined format. json is one object per line, with time (RFC 3339 or Unix\n" +
			"seconds), method, path, ip, headers and attrs. The first malformed lines are named on standard error;\n" +
			"where all are, it fails.",
		Example: "  rulectl backtest -f rules/ --log access.log\n  rulectl backtest -f rules/ --log access.log -o json",
		GroupID: groupAuthor,
		Args:    onlyFiles,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.backtest(ctx, f) }),
	}
	a.filesFlag(cmd)
	cmd.Flags().StringVar(&f.log, "log", "", "access log, or - for standard input")
	cmd.Flags().StringVar(&f.format, "format", "combined", "format of the log: combined or json")
	cmd.Flags().DurationVar(&f.sortWindow, "sort-window", backtest.DefaultSortWindow, "how much earlier than a line before it a line may be")
	storeFlag(cmd, &f.store)
	return cmd
}

func storeFlag(cmd *cobra.Command, store *string) {
	cmd.Flags().StringVar(store, "store", replay.Memory, "where counters are kept: memory, or redis://HOST:PORT (its keys are deleted at the end)")
}

func (a *app) backtest(ctx context.Context, f backtestFlags) error {
	parse, known := accesslog.Formats[f.format]
	switch {
	case f.log == "":
		return usagef("no log is named: use --log FILE or --log -")
	case !known:
		return usagef("--format %q is not known: use combined or json", f.format)
	case f.sortWindow < 0:
		return usagef("--sort-window must not be below 0")
	case f.log == "-" && slices.Contains(a.files, "-"):
		return usagef("rules and log cannot both come from standard input")
	}
	if err := replay.CheckStore(f.store); err != nil {
		return usageError{err}
	}
	sets, err := a.readSets()
	if err != nil {
		return err
	}
	log, err := a.openLog(f.log)
	if err != nil {
		return err
	}
	defer log.close()
	bar := newLogProgress(raw(a.io.Err), terminal(a.io.Err), log)
	findings := lineFindings{w: bufio.NewWriter(raw(a.io.Err)), name: log.name, bar: bar}
	result, err := backtest.Run(ctx, log.text, backtest.Options{Sets: sets, Store: f.store, Log: accesslog.Options{
		Parse: parse, SortWindow: f.sortWindow, Malformed: findings.malformed, Unseen: findings.unseen,
	}})
	bar.end()
	findings.finish()
	if err != nil {
		return a.backtestFailed(log.name, err)
	}
	switch {
	case result.Lines == 0:
		a.warn("%s has no line: nothing was replayed", log.name)
	case result.Malformed == result.Lines:
		a.complain("no line of %s is of the format %s", log.name, f.format)
		a.advise("name another, combined or json, with --format: see rulectl backtest --help")
		return explained{exitFailed}
	}
	if a.structured() {
		return a.printData(result)
	}
	_, err = io.WriteString(a.io.Out, backtestText(&result))
	return err
}

func (a *app) backtestFailed(name string, err error) error {
	var late *accesslog.LateError
	if errors.As(err, &late) {
		a.complain("%s:%d: %s", name, late.Line, late)
		a.advise("allow it with a longer --sort-window; memory grows with the requests in it")
		return explained{exitFailed}
	}
	return err
}

// lineFindings tells of single lines on standard error: of the first few of each kind, since most often all are alike.
type lineFindings struct {
	w    *bufio.Writer
	name string
	bar  *logProgress
	told map[string]int // by kind
}

// mostTold is how many lines of a kind are named.
const mostTold = 5

func (l *lineFindings) tell(line int, text string, why error) {
	if l.told == nil {
		l.told = map[string]int{}
	}
	if l.told[text]++; l.told[text] > mostTold {
		return
	}
	l.bar.clear(l.w)
	fmt.Fprintf(l.w, "%s:%d: %s: %s\n", l.name, line, text, clean(why.Error()))
	if l.bar.terminal {
		_ = l.w.Flush() // or the bar and the lines would mix
	}
}

const (
	malformed = "malformed"
	unseen    = "answered with 400, no rule sees it"
)

func (l *lineFindings) malformed(line int, why error) { l.tell(line, malformed, why) }

func (l *lineFindings) unseen(line int, why error) { l.tell(line, unseen, why) }

func (l *lineFindings) finish() {
	for _, kind := range []string{malformed, unseen} {
		if more := l.told[kind] - mostTold; more > 0 {
			fmt.Fprintf(l.w, "%s: %s: %s more\n", l.name, kind, count(more, "line"))
		}
	}
	_ = l.w.Flush()
}

// openedLog is a log and how far it has been read.
type openedLog struct {
	name  string
	text  io.Reader
	file  io.Closer // nil for standard input
	size  int64     // of the file; 0 when it is not known
	count countingReader
}

type countingReader struct {
	r      io.Reader
	n      int64
	notify func()
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.notify != nil {
		c.notify()
	}
	return n, err
}

// openLog opens a log; one that begins as gzip files do is unpacked.
func (a *app) openLog(name string) (*openedLog, error) {
	l := &openedLog{name: clean(name), count: countingReader{r: a.io.In}}
	if name == "-" {
		l.name = stdinName
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, fileError(err)
		}
		info, err := f.Stat()
		if err != nil || info.IsDir() {
			_ = f.Close()
			return nil, fmt.Errorf("read %s: it is not a file", name)
		}
		l.file, l.count.r = f, f
		if info.Mode().IsRegular() {
			l.size = info.Size()
		}
	}
	in := bufio.NewReaderSize(&l.count, 64<<10)
	l.text = in
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		l.text = unpacked
	}
	return l, nil
}

func (l *openedLog) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

// readSets reads the rules that -f names. Tests that stand in a directory beside them are passed over. Problems are
// printed; they are not what was asked for.
func (a *app) readSets() ([]rulefile.RuleSet, error) {
	files, err := a.readFiles()
	if err != nil {
		return nil, err
	}
	named := func(f rulefile.File) bool { return slices.Contains(a.files, f.Name) || f.Name == stdinName }
	rest := slices.DeleteFunc(slices.Clone(files), func(f rulefile.File) bool {
		return !named(f) && ruletest.IsTest(f.Name, f.Content)
	})
	sets, err := rulefile.DecodeAll(rest)
	var invalid *rules.ValidationError
	if errors.As(err, &invalid) {
		printProblems(a.io.Err, invalid.Problems, rest)
		a.complain("the rules are not valid: %s", count(len(invalid.Problems), "error"))
		return nil, explained{exitFailed}
	}
	if err == nil && len(sets) == 0 {
		err = errors.New("there is no rule in the files")
	}
	return sets, err
}
