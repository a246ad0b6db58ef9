package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/cmd/rulectl/ruletest"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// testOutput is the value of test's -o, which has a format of its own.
type testOutput string

const (
	testTable testOutput = "table"
	testJSON  testOutput = "json"
	testJUnit testOutput = "junit"
)

func (o *testOutput) String() string { return string(*o) }

// Type names the values in the help.
func (o *testOutput) Type() string { return "FORMAT" }

// Set reads the flag.
func (o *testOutput) Set(value string) error {
	switch v := testOutput(value); v {
	case testTable, testJSON, testJUnit:
		*o = v
		return nil
	}
	return fmt.Errorf("%q is not known: use table, json or junit", value)
}

type testFlags struct {
	store, run string
	output     testOutput
}

func (a *app) testCommand() *cobra.Command {
	f := testFlags{output: testTable}
	cmd := &cobra.Command{
		Use:   "test [PATH…]",
		Short: "Run tests of rule files on a virtual clock, without a server",
		Long: "test runs files of kind RuleTest: requests at instants, and what is expected of each. A directory is searched,\n" +
			"with those below it, for files named *.test.yaml and for files that say kind: RuleTest; without a path it is the\n" +
			"current one. The same test gives the same result in memory and in Redis. `rulectl init` writes an example.\n\n" +
			"Exit code 1 when a test fails, cannot be read, or when there is none.",
		Example: "  rulectl test tests/\n  rulectl test tests/ --store redis://127.0.0.1:6379 -o junit > report.xml",
		GroupID: groupAuthor,
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.test(ctx, args, f) }),
	}
	storeFlag(cmd, &f.store)
	cmd.Flags().StringVar(&f.run, "run", "", "run only the tests whose name matches this regular expression; the name is the file's")
	cmd.Flags().VarP(&f.output, "output", "o", "table, json or junit")
	return cmd
}

// testRun is what became of one test; of a file that could not be read it is what is wrong with it.
type testRun struct {
	name   string
	result ruletest.Result
	err    error
	file   ruletest.File
}

func (r *testRun) passed() bool { return r.err == nil && r.result.Passed() }

func (a *app) test(ctx context.Context, paths []string, f testFlags) error {
	if err := replay.CheckStore(f.store); err != nil {
		return usageError{err}
	}
	pattern, err := regexp.Compile(f.run)
	if err != nil {
		return usagef("--run: %w", err)
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := ruletest.Find(paths)
	if err != nil {
		return err
	}
	began := time.Now()
	var runs []testRun
	for _, file := range files {
		found, err := runFile(ctx, file, pattern, f.store)
		if err != nil {
			return err
		}
		runs = append(runs, found...)
	}
	if len(runs) == 0 {
		if f.run != "" {
			return fmt.Errorf("no test in %s matches %q", strings.Join(paths, ", "), f.run)
		}
		return fmt.Errorf("there is no test in %s: their files are named *.test.yaml, or say kind: %s", strings.Join(paths, ", "), ruletest.Kind)
	}
	if err := a.printTests(runs, f, time.Since(began)); err != nil {
		return err
	}
	if slices.ContainsFunc(runs, func(r testRun) bool { return !r.passed() }) {
		return explained{exitFailed}
	}
	return nil
}

// runFile runs the tests of a file. A file that is not valid counts as one test that failed; only what ends the whole run
// is an error.
func runFile(ctx context.Context, file ruletest.File, pattern *regexp.Regexp, store string) ([]testRun, error) {
	tests, err := ruletest.Decode(file.Name, file.Content)
	if err != nil {
		if !pattern.MatchString(file.Name) {
			return nil, nil
		}
		return []testRun{{name: file.Name, err: err, file: file}}, nil
	}
	var runs []testRun
	for i := range tests {
		if !pattern.MatchString(tests[i].Name) {
			continue
		}
		result, err := ruletest.Run(ctx, &tests[i], store)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", tests[i].Name, err)
		}
		runs = append(runs, testRun{name: tests[i].Name, result: result, file: file})
	}
	return runs, nil
}

func (a *app) printTests(runs []testRun, f testFlags, took time.Duration) error {
	switch f.output {
	case testJSON:
		return printList(a, "RuleTestList", testItems(runs))
	case testJUnit:
		return printJUnit(a.io.Out, runs, took)
	case testTable:
	}
	failed := 0
	for i := range runs {
		if !runs[i].passed() {
			failed++
		}
		printTest(a.io.Out, &runs[i])
	}
	if failed > 0 {
		fmt.Fprintf(a.io.Out, "%d of %s failed (%s)\n", failed, count(len(runs), "test"), took.Round(time.Millisecond))
		return nil
	}
	fmt.Fprintf(a.io.Out, "%s passed (%s)\n", count(len(runs), "test"), took.Round(time.Millisecond))
	return nil
}

func printTest(w io.Writer, r *testRun) {
	if r.err != nil {
		fmt.Fprintf(w, "✖ %s: it cannot be read\n", oneLine(r.name))
		var invalid *rules.ValidationError
		if errors.As(r.err, &invalid) {
			printProblems(w, invalid.Problems, []rulefile.File{{Name: r.file.Name, Content: r.file.Content}})
			return
		}
		fmt.Fprintf(w, "  %s\n", oneLine(r.err.Error()))
		return
	}
	text := fmt.Sprintf("%s: %s, %s", oneLine(r.name), count(r.result.Steps, "step"), count(r.result.Requests, "request"))
	if r.passed() {
		fmt.Fprintf(w, "✔ %s\n", text)
		return
	}
	fmt.Fprintf(w, "✖ %s\n", text)
	for i := range r.result.Failures {
		fmt.Fprint(w, failureText(&r.result.Failures[i]))
	}
	if r.result.More > 0 {
		fmt.Fprintf(w, "  and %s more\n", count(r.result.More, "failure"))
	}
}

// failureText says where a failure is, and what was got in place of what was wanted.
func failureText(f *ruletest.Failure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s: %s\n", oneLine(f.Place.String()), failureTitle(f))
	var rows [][]string
	for _, d := range f.Differences {
		rows = append(rows, []string{d.Field, d.Got, d.Want})
	}
	for line := range strings.Lines(renderTable([]string{"FIELD", "GOT", "WANT"}, rows)) {
		b.WriteString("      " + line)
	}
	return b.String()
}

func failureTitle(f *ruletest.Failure) string {
	which := fmt.Sprintf("step %d", f.Step)
	switch {
	case f.Request == 0:
		which += fmt.Sprintf(", all %d requests", f.Of)
	case f.Of > 1:
		which += fmt.Sprintf(", request %d of %d", f.Request, f.Of)
	}
	return fmt.Sprintf("%s at %s: %s", which, f.At, oneLine(f.Call))
}

type testItem struct {
	Name     string        `json:"name"`
	Passed   bool          `json:"passed"`
	Steps    int           `json:"steps"`
	Requests int           `json:"requests"`
	Failures []failureItem `json:"failures"`
	Problems []problemItem `json:"problems,omitempty"`
}

type failureItem struct {
	File        string           `json:"file"`
	Line        int              `json:"line"`
	Step        int              `json:"step"`
	Request     int              `json:"request,omitempty"`
	At          string           `json:"at"`
	Call        string           `json:"call"`
	Differences []differenceItem `json:"differences"`
}

type differenceItem struct {
	Field string `json:"field"`
	Got   string `json:"got"`
	Want  string `json:"want"`
}

func testItems(runs []testRun) []testItem {
	items := make([]testItem, len(runs))
	for i := range runs {
		r := &runs[i]
		items[i] = testItem{Name: r.name, Passed: r.passed(), Steps: r.result.Steps, Requests: r.result.Requests, Failures: []failureItem{}}
		var invalid *rules.ValidationError
		if errors.As(r.err, &invalid) {
			items[i].Problems = problemItems(invalid.Problems)
		}
		for _, f := range r.result.Failures {
			item := failureItem{File: f.Place.File, Line: f.Place.Line, Step: f.Step, Request: f.Request, At: f.At.String(), Call: f.Call}
			for _, d := range f.Differences {
				item.Differences = append(item.Differences, differenceItem(d))
			}
			items[i].Failures = append(items[i].Failures, item)
		}
	}
	return items
}
