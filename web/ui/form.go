package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// form is what a person confirms.
type form struct {
	Title    string // a question: "Promote api/per-key to 10% of keys?"
	Verb     string // the button: "Promote to 10%"; "" where something must be chosen first
	Danger   bool   // a protection is lost by it, or something that does not come back
	Choices  *choices
	Changes  []change
	Facts    []fact   // what is known that speaks for it or against it
	Says     []string // what else it will do, in sentences
	Warnings []string // what is unusual about it
	Diff     []diffLine
	Fields   []field // what else is asked for
	Command  string  // of rulectl, which does the same
	Revision int64   // what is looked at: a change of it meanwhile is a conflict
	NoReason bool    // no message is asked for

	foretold func(f *form, out *adminpb.Outcome) error // says what a dry run tells beside its steps; nil: nothing
}

// change is a before and an after.
type change struct{ What, Before, After string }

// fact is something that is known. Text is a string, or HTML.
type fact struct {
	What string
	Text any
}

// choices are other forms of the same action. Exact is asked for where none of them is what is wanted.
type choices struct {
	Label string
	Long  bool // their texts are
	Items []choice
	Exact *field
}

type choice struct {
	Text, To string
	Here     bool
}

// field is a control of a form. Options make it a choice; Kind is the type of an input otherwise, or "textarea".
type field struct {
	Name, Label, Kind, Value, Hint string
	Options                        []option
	Required                       bool
}

type option struct{ Value, Text string }

func hidden(name, value string) field { return field{Name: name, Kind: "hidden", Value: value} }

const (
	// maxForm bounds what a form may hold, and readTime for how long it may come.
	maxForm  = 64 << 10
	readTime = 10 * time.Second
)

// readForm reads what was sent. The error has nothing of it: there may be a token in it, or the values of a key.
func readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	in := http.NewResponseController(w)
	_ = in.SetReadDeadline(time.Now().Add(readTime)) // where there are none, nobody sends slowly
	if r.ParseForm() != nil {
		return fmt.Errorf("%w: the form could not be read: it is broken, has more than %d KiB or came too slowly", rules.ErrInvalid, maxForm>>10)
	}
	_ = in.SetReadDeadline(time.Time{})
	return nil
}

// sent is what the form sends when nobody changes it.
func (f *form) sent() url.Values {
	values := url.Values{}
	for _, one := range f.Fields {
		value := one.Value
		if value == "" && len(one.Options) > 0 {
			value = one.Options[0].Value
		}
		if value != "" {
			values.Set(one.Name, value)
		}
	}
	return values
}

// will says what a change would do, as a dry run tells.
func (c *confirmation) will(out *adminpb.Outcome) error {
	if len(out.GetSteps()) == 0 {
		c.Nothing = out.GetNote()
		return nil
	}
	steps := make([]change, 0, len(out.GetSteps())+len(c.Changes))
	for _, s := range out.GetSteps() {
		before := s.GetBefore()
		if before == "" {
			before = "not there"
		}
		steps = append(steps, change{s.GetRule(), before, s.GetAfter()})
		for _, w := range s.GetWarnings() {
			w = asSentence(w)
			if len(out.GetSteps()) > 1 {
				w = s.GetRule() + ": " + w
			}
			c.Warnings = append(c.Warnings, w)
		}
	}
	c.Changes = append(steps, c.Changes...)
	if c.foretold != nil {
		return c.foretold(&c.form, out)
	}
	return nil
}

// backFrom is the page that the form of an action belongs to: its address without "/do/" and the verb. A domain may be
// called so too.
func backFrom(r *http.Request) string {
	address := r.URL.EscapedPath()
	return address[:strings.LastIndex(address, "/do/")]
}

// crumbs lead to that page.
func crumbs(r *request) []link {
	list := []link{{"Overview", "/"}}
	domain, rule := r.PathValue("domain"), r.PathValue("rule")
	if domain == "" {
		return append(list, link{"Settings", backFrom(r.Request)})
	}
	list = append(list, link{domain, "/d/" + domain})
	if rule != "" {
		list = append(list, link{rule, rulePath(domain, rule)})
	}
	return list
}

// command is a line for a shell. Words that a shell would take apart are quoted.
func command(words ...string) string {
	for i, w := range words {
		if w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:%+=@,") != "" {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return "rulectl " + strings.Join(words, " ")
}
