package cli_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/rules/rulefile"
)

const (
	root      = "../../.."
	generated = "<!-- Written by: go test ./cmd/rulectl/cli -run Reference -update -->\n"
)

// The reference pages are what the program says; -update writes them.
func TestReferencePagesAreWhatTheProgramSays(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"rulectl.md": commandsPage(), "exit-codes.md": exitCodesPage(), "error-codes.md": errorCodesPage(t), "rule-file.md": ruleFilePage(),
	} {
		compareFile(t, filepath.Join(root, "deploy", "reference", name), text)
	}
	compareFile(t, "error-codes.md", errorCodesPage(t)) // which explain has within it
}

// each calls do with every command that is shown, in order.
func each(cmd *cobra.Command, do func(*cobra.Command)) {
	if cmd.Hidden || cmd.Name() == "help" {
		return
	}
	do(cmd)
	for _, c := range cmd.Commands() {
		each(c, do)
	}
}

func commandsPage() string {
	var b strings.Builder
	tree := cli.Tree()
	b.WriteString("# rulectl\n" + generated)
	b.WriteString("\n" + tree.Long + "\n\nFlags that every command has:\n\n" + flagsTable(tree.PersistentFlags()))
	each(tree, func(cmd *cobra.Command) {
		if cmd == tree || cmd.Name() == "exit-codes" {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", cmd.CommandPath(), cmd.Short)
		if cmd.Parent().Name() == "completion" {
			return // what cobra says of shells is in their help
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.TrimSpace(regexp.MustCompile(`(?m)^  `).ReplaceAllString(cmd.Example, "")))
		}
		if cmd.Long != "" && cmd.Name() != "completion" {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(cmd.Long))
		}
		if !cmd.HasSubCommands() {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", cmd.UseLine())
		}
		if flags := flagsTable(cmd.NonInheritedFlags()); flags != "" {
			b.WriteString("\n" + flags)
		}
	})
	return b.String()
}

func flagsTable(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind := f.Value.Type(); kind != "bool" {
			name += " " + strings.ToUpper(kind)
		}
		value := ""
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
	if b.Len() == 0 {
		return ""
	}
	return "| flag | default | meaning |\n| --- | --- | --- |\n" + b.String()
}

func exitCodesPage() string {
	var b strings.Builder
	b.WriteString("# Exit codes of rulectl\n" + generated + "\n| code | meaning |\n| --- | --- |\n")
	codes, meanings := cli.AllExitCodes()
	for i, code := range codes {
		fmt.Fprintf(&b, "| %d | %s |\n", code, meanings[i])
	}
	b.WriteString("\nCode 6 is never mixed with 1: after 1 nothing was changed, after 6 it was.\n")
	return b.String()
}

// errorCodesPage is made from the constants of the packages that find the problems, and the comments beside them.
func errorCodesPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Error codes\n" + generated + "\nEach problem of a rule file has a code, which never changes its meaning. The message beside it says what is wrong\n" +
		"there, and what would be right. `HG00xx` is the form of a file, `HG01xx` what a rule says, `HG02xx` a warning: valid, and\n" +
		"probably not meant.\n\n| code | about |\n| --- | --- |\n")
	meanings := map[string]string{}
	for _, dir := range []string{"rules", "rules/rulefile"} {
		readCodes(t, filepath.Join(root, dir), meanings)
	}
	codes := make([]string, 0, len(meanings))
	for code := range meanings {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	if len(codes) < 30 {
		t.Errorf("only %d codes found: %v", len(codes), codes)
	}
	for _, code := range codes {
		if meanings[code] == "" {
			t.Errorf("the constant of %s has no comment that says what it is about", code)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", code, meanings[code])
	}
	return b.String()
}

func readCodes(t *testing.T, dir string, into map[string]string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			value, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || !strings.HasPrefix(value.Value, `"HG`) {
				return true
			}
			code, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			if _, again := into[code]; again {
				t.Errorf("%s is the code of two things", code)
			}
			into[code] = strings.TrimSpace(spec.Comment.Text())
			return true
		})
	}
}

func ruleFilePage() string {
	var b strings.Builder
	b.WriteString("# Rule files\n" + generated)
	var write func(o *rulefile.Object, path string)
	done := map[string]bool{}
	write = func(o *rulefile.Object, path string) {
		if done[o.Name] {
			return
		}
		done[o.Name] = true
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | type | meaning | example |\n| --- | --- | --- | --- |\n", o.Name, o.Meaning)
		escape := strings.NewReplacer("|", "\\|", "\n", " ").Replace
		for _, f := range o.Fields {
			required := ""
			if f.Required {
				required = ", required"
			}
			fmt.Fprintf(&b, "| `%s` | %s%s | %s | `%s` |\n", f.Name, f.Type, required, escape(f.Meaning), escape(f.Example))
		}
		for _, f := range o.Fields {
			if f.Object != nil {
				write(f.Object, path+"."+f.Name)
			}
		}
	}
	write(rulefile.Reference(), "")
	return b.String()
}

// Every command is run by some script, once where it succeeds and once where it does not: its exit codes are demanded.
func TestEveryCommandHasItsExitCodesTested(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	each(cli.Tree(), func(cmd *cobra.Command) {
		if !cmd.Runnable() || cmd.HasSubCommands() || cmd.Parent().Name() == "completion" {
			return
		}
		for _, want := range []string{"0", "[1-9][0-9]*"} {
			if !regexp.MustCompile(`(?m)^exits ` + want + ` ` + cmd.CommandPath() + `\b`).MatchString(all.String()) {
				t.Errorf("no script demands the exit code %s of %s", want, cmd.CommandPath())
			}
		}
	})
}
