package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

func (a *app) validateCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR|-",
		Short: "Check rule files, without a server",
		Long: "Validate prints everything that is wrong with rule files, each with a stable code, its place and what would be\n" +
			"right, and after the errors what is valid and probably not meant. Errors fail; warnings fail with --strict.",
		Example: "  rulectl validate -f rules/\n  cat rules.yaml | rulectl validate -f - --strict",
		GroupID: groupAuthor,
		Args:    onlyFiles,
		RunE:    a.run(func(context.Context, []string) error { return a.validate(strict) }),
	}
	a.filesFlag(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings fail, too")
	return cmd
}

// validate prints findings as data, on standard output: they are what was asked for.
func (a *app) validate(strict bool) error {
	files, err := a.readFiles()
	if err != nil {
		return err
	}
	sets, err := rulefile.DecodeAll(files)
	var invalid *rules.ValidationError
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	var problems []rules.Problem
	if invalid != nil {
		problems = invalid.Problems
	} else {
		problems = rulefile.Warnings(sets)
	}
	if a.structured() {
		if err := printList(a, "ProblemList", problemItems(problems)); err != nil {
			return err
		}
	} else {
		printProblems(a.io.Out, problems, files)
		printVerdict(a.io.Out, sets, problems, files)
	}
	if invalid != nil || strict && len(problems) > 0 {
		return explained{exitFailed}
	}
	return nil
}

func printVerdict(w io.Writer, sets []rulefile.RuleSet, problems []rules.Problem, files []rulefile.File) {
	warnings := 0
	for _, p := range problems {
		if p.Warning {
			warnings++
		}
	}
	if failures := len(problems) - warnings; failures > 0 {
		fmt.Fprintf(w, "%s in %s\n", count(failures, "error"), count(len(files), "file"))
		return
	}
	n := 0
	for _, set := range sets {
		n += len(set.Rules)
	}
	fmt.Fprintf(w, "✔ valid: %s of %s in %s", count(n, "rule"), count(len(sets), "domain"), count(len(files), "file"))
	if warnings > 0 {
		fmt.Fprintf(w, ", with %s", count(warnings, "warning"))
	}
	fmt.Fprintln(w)
}

type problemItem struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

func problemItems(problems []rules.Problem) []problemItem {
	list := make([]problemItem, len(problems))
	for i, p := range problems {
		severity := "error"
		if p.Warning {
			severity = "warning"
		}
		list[i] = problemItem{severity, p.Code, p.File, p.Line, p.Column, p.Path, p.Message}
	}
	return list
}

// printProblems prints each problem with the line it is in.
func printProblems(w io.Writer, problems []rules.Problem, files []rulefile.File) {
	lines := map[string][][]byte{}
	for _, f := range files {
		lines[f.Name] = bytes.Split(f.Content, []byte("\n"))
	}
	for _, p := range problems {
		fmt.Fprintln(w, oneLine(p.String()))
		if n := p.Line; n >= 1 && n <= len(lines[p.File]) {
			printLine(w, string(lines[p.File][n-1]), p.Column)
		}
	}
}

// printLine prints a line of a file with a mark under the column, where both can be seen well.
func printLine(w io.Writer, line string, column int) {
	const widest = 120
	line = clean(strings.TrimRight(line, "\r"))
	if r := []rune(line); len(r) <= widest && column >= 1 && column <= len(r)+1 {
		// Tabs stay, so that the mark stands where the terminal puts the character above it.
		indent := strings.Map(func(r rune) rune {
			if r == '\t' {
				return r
			}
			return ' '
		}, string(r[:column-1]))
		fmt.Fprintf(w, "    | %s\n    | %s^\n", line, indent)
	}
}
