package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"
)

// output is the value of -o.
type output string

const (
	outputTable output = "table"
	outputWide  output = "wide" // a table with more columns, where there are more
	outputJSON  output = "json"
	outputYAML  output = "yaml" // the same as JSON
	outputName  output = "name" // a line for each thing, as other commands take it
)

func (o *output) String() string { return string(*o) }

// Type names the values in the help.
func (o *output) Type() string { return "FORMAT" }

// Set reads the flag.
func (o *output) Set(value string) error {
	switch v := output(value); v {
	case outputTable, outputWide, outputJSON, outputYAML, outputName:
		*o = v
		return nil
	}
	return fmt.Errorf("%q is not known: use table, wide, json, yaml or name", value)
}

// structured reports that a program reads what is printed.
func (a *app) structured() bool { return a.output == outputJSON || a.output == outputYAML }

// hasNames lets a command take -o name.
func hasNames(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations["names"] = "yes"
}

// checkOutput refuses -o name where nothing has a name.
func (a *app) checkOutput(cmd *cobra.Command) error {
	if a.output == outputName && cmd.Annotations["names"] == "" {
		return usagef("-o name: %s lists nothing that has a name: use table, json or yaml", cmd.CommandPath())
	}
	return nil
}

// printNames prints a line for each name.
func printNames[T any](a *app, list []T, name func(T) string) error {
	var b strings.Builder
	for _, item := range list {
		b.WriteString(oneLine(name(item)) + "\n")
	}
	_, err := io.WriteString(a.io.Out, b.String())
	return err
}

// apiVersion names the shape of what -o json and -o yaml print. Fields are added to it, never renamed or removed.
const apiVersion = "rulectl/v1"

type listJSON[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []T    `json:"items"`
}

// printList prints items as a list of a kind; with none, "items" is [].
func printList[T any](a *app, kind string, items []T) error {
	if items == nil {
		items = []T{}
	}
	return a.printData(listJSON[T]{apiVersion, kind, items})
}

// printData prints what has the JSON form of its kind, as -o says.
func (a *app) printData(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	if err == nil && a.filter != nil {
		return a.filtered(a.io.Out, b.Bytes())
	}
	text := escapeHidden(b.Bytes(), jsonEscape)
	if err == nil && a.output == outputYAML {
		text, err = asYAML(b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = a.io.Out.Write(text)
	return err
}

// printLine writes v as a line of JSON, where one object follows another.
func (a *app) printLine(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	if a.filter != nil {
		return a.filtered(w, b.Bytes())
	}
	_, err := w.Write(escapeHidden(b.Bytes(), jsonEscape))
	return err
}

// asYAML writes JSON as YAML, which it is a part of, with the keys in their order.
func asYAML(text []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(escapeHidden(text, yamlEscape), &n); err != nil {
		return nil, err
	}
	plain(&n)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := firstOf(e.Encode(&n), e.Close())
	return escapeHidden(b.Bytes(), yamlEscape), err
}

// plain takes the brackets and quotes of JSON away, where YAML does without.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	if strings.ContainsFunc(n.Value, hidden) {
		n.Style = yaml.DoubleQuotedStyle // where it can be escaped
	}
	for _, child := range n.Content {
		plain(child)
	}
}

// clean makes text that came from elsewhere safe for a terminal: control characters could redraw it, and others that are
// not seen (marks of direction, spaces of no width) show something else than what is there.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' && r != '\t' }

// escapeHidden writes what is not seen with escapes; it stands between double quotes.
func escapeHidden(text []byte, escape func(rune) string) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		if hidden(r) {
			b.WriteString(escape(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func jsonEscape(r rune) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune{r}) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return b.String()
}

func yamlEscape(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

func oneLine(s string) string {
	return strings.Join(strings.Fields(clean(s)), " ")
}

// age is a duration as short as kubectl says it: 12s, 2m12s, 3h, 5d.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute && int(d.Seconds())%60 != 0:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
