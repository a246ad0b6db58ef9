package cli

import (
	"context"
	_ "embed" // of errorCodes
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

func (a *app) explainCommand() *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "explain [FIELD.PATH|CODE]",
		Short: "Show what a field of a rule file means, or what rules mean",
		Long: "Explain shows the schema of rule files, from the top or from a field: its type, meaning, an example and its parts;\n" +
			"or what the code of a problem is about, such as HG0103.\n" +
			"With -f it says in plain words what each rule of the files means. With --schema it prints the JSON schema, which\n" +
			"editors take with this first line of a rule file:\n\n" +
			"  # yaml-language-server: $schema=./ruleset.schema.json",
		Example: "  rulectl explain rules.limit\n  rulectl explain match.header\n  rulectl explain -f rules/\n" +
			"  rulectl explain --schema > ruleset.schema.json",
		GroupID: groupAuthor,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(_ context.Context, args []string) error {
			switch {
			case schema && len(args)+len(a.files) > 0, len(args) > 0 && len(a.files) > 0:
				return usagef("use one of FIELD.PATH, -f and --schema")
			case schema:
				_, err := a.io.Out.Write(rulefile.JSONSchema())
				return err
			case len(a.files) > 0:
				return a.summarize()
			}
			return a.explainField(strings.Join(args, ""))
		}),
	}
	a.filesFlag(cmd)
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema for editors")
	return cmd
}

// explainField prints the reference of a field; of the whole for the empty path.
func (a *app) explainField(path string) error {
	if path == "" {
		root := rulefile.Reference()
		fmt.Fprintf(a.io.Out, "KIND:     %s\nVERSION:  %s\n\n", rulefile.Kind, rulefile.APIVersion)
		printMeaning(a.io.Out, root.Meaning)
		printFields(a.io.Out, root)
		return nil
	}
	if about, isCode := errorCode(path); isCode {
		_, err := fmt.Fprintf(a.io.Out, "%s: %s\n", strings.ToUpper(path), about)
		return err
	}
	field, valid := rulefile.Lookup(path)
	if valid != nil {
		return fmt.Errorf("there is no field %q: %s", path, fieldHint(path, valid))
	}
	required := ""
	if field.Required {
		required = " -required-"
	}
	fmt.Fprintf(a.io.Out, "FIELD:    %s <%s>%s\n\n", path, field.Type, required)
	printMeaning(a.io.Out, field.Meaning)
	fmt.Fprintf(a.io.Out, "EXAMPLE:\n  %s\n", field.Example)
	if field.Object != nil {
		fmt.Fprintf(a.io.Out, "\n%s: %s\n", strings.ToUpper(field.Object.Name), field.Object.Meaning)
		printFields(a.io.Out, field.Object)
	}
	return nil
}

// fieldHint says which field may be meant; those of a rule may be named without "rules.".
func fieldHint(path string, valid []string) string {
	if len(valid) == 0 {
		return "it has no parts"
	}
	dot := strings.LastIndex(path, ".")
	known := slices.Clone(valid)
	if rule, wrong := rulefile.Lookup("rules"); dot < 0 && wrong == nil && rule.Object != nil {
		for _, f := range rule.Object.Fields {
			known = append(known, f.Name)
		}
	}
	hint := "known there: " + strings.Join(valid, ", ")
	if near := rulefile.Nearest(path[dot+1:], known); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", path[:dot+1]+near, hint)
	}
	return hint
}

// errorCodes is the page of all codes, as the reference has it.
//
//go:embed error-codes.md
var errorCodes string

// errorCode says what a code of a problem is about; isCode is false for what is none.
func errorCode(code string) (about string, isCode bool) {
	_, row, isCode := strings.Cut(errorCodes, "| HG"+strings.TrimPrefix(strings.ToUpper(code), "HG")+" | ")
	about, _, _ = strings.Cut(row, " |\n")
	return about, isCode
}

// printMeaning breaks a text into lines of at most 100 characters.
func printMeaning(w io.Writer, text string) {
	fmt.Fprintln(w, "MEANING:")
	line := " "
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > 100 {
			fmt.Fprintln(w, line)
			line = " "
		}
		line += " " + word
	}
	fmt.Fprintf(w, "%s\n\n", line)
}

func printFields(w io.Writer, o *rulefile.Object) {
	fmt.Fprintln(w, "FIELDS:")
	for _, f := range o.Fields {
		required := ""
		if f.Required {
			required = " -required-"
		}
		first, _, _ := strings.Cut(f.Meaning, ". ")
		fmt.Fprintf(w, "  %-12s <%s>%s\n      %s\n", f.Name, f.Type, required, strings.TrimSuffix(first, ".")+".")
	}
}

type summaryItem struct {
	Rule    string `json:"rule"` // domain/name
	Summary string `json:"summary"`
}

// summarize says in plain words what the rules of files mean.
func (a *app) summarize() error {
	files, err := a.readFiles()
	if err != nil {
		return err
	}
	sets, err := rulefile.DecodeAll(files)
	if err != nil {
		a.showProblems(err, files)
		return err
	}
	var items []summaryItem
	for _, set := range sets {
		for i := range set.Rules {
			items = append(items, summaryItem{set.Domain + "/" + set.Rules[i].Name, rules.Summary(&set.Rules[i].Spec)})
		}
	}
	if a.structured() {
		return printList(a, "SummaryList", items)
	}
	for _, item := range items {
		fmt.Fprintf(a.io.Out, "%s\n  %s.\n", item.Rule, oneLine(item.Summary))
	}
	return nil
}
