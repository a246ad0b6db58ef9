// Package reference holds the pages of deploy/reference to the programs: a page is what a test makes of a program, and
// the test fails where the file says something else. With -update it writes the file.
package reference

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the reference pages of this package's tests")

// Compare fails the test where the file is not the page, or writes it. Command is what writes it, for the page to say.
func Compare(tb testing.TB, path, title, command, page string) {
	tb.Helper()
	page = fmt.Sprintf("# %s\n<!-- Written by: %s -update -->\n\n%s", title, command, page)
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("%v; write it with\n  %s -update", err, command)
	}
	if diff := cmp.Diff(string(content), page); diff != "" {
		tb.Errorf("%s is out of date (-is +want); write it with\n  %s -update\n%s", path, command, diff)
	}
}

// Command describes a program by its command and those under it. Environment are the variables it reads; a flag of the
// first command that none of them belongs to fails the test, and so does a variable without a flag.
func Command(tb testing.TB, root *cobra.Command, environment []string) string {
	tb.Helper()
	var b strings.Builder
	unused := slices.Clone(environment)
	variable := func(f *pflag.Flag) string {
		name := "HEADGATE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		at := slices.Index(unused, name)
		if at < 0 {
			tb.Errorf("--%s cannot be set in the environment: no setting is named %s", f.Name, name)
			return ""
		}
		unused = slices.Delete(unused, at, at+1)
		return "`" + name + "`"
	}
	describe(&b, root, variable)
	if len(unused) > 0 {
		tb.Errorf("without a flag of the same name: %v", unused)
	}
	for _, c := range below(root) {
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		describe(&b, c, nil)
	}
	return b.String()
}

// below returns the commands under one, each followed by its own.
func below(c *cobra.Command) (list []*cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
			list = append(append(list, sub), below(sub)...)
		}
	}
	return list
}

func describe(b *strings.Builder, c *cobra.Command, variable func(*pflag.Flag) string) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "%s\n", text)
	if c.Runnable() {
		fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
	}
	flags := c.NonInheritedFlags()
	if !flags.HasAvailableFlags() {
		return
	}
	columns := []string{"flag", "default", "meaning"}
	if variable != nil {
		columns = []string{"flag", "environment", "default", "meaning"}
	}
	b.WriteString("\n")
	row(b, columns...)
	row(b, slices.Repeat([]string{"---"}, len(columns))...)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		placeholder, usage := pflag.UnquoteUsage(f)
		if list := strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array"); list != f.Value.Type() {
			placeholder = list
		}
		cells := []string{code(strings.TrimSpace("--" + f.Name + " " + strings.ToUpper(placeholder)))}
		if variable != nil {
			cells = append(cells, variable(f))
		}
		row(b, append(cells, code(shown(f)), usage)...)
	})
}

// shown is the default, but for one that is empty.
func shown(f *pflag.Flag) string {
	switch f.DefValue {
	case "[]", "false", "0s", "0":
		return ""
	}
	return f.DefValue
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func row(b *strings.Builder, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
