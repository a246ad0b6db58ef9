package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
)

// definition is one version as people write it, read it, and meet it.
type definition struct {
	*version
	Role             string
	Lines            []string // of the rule file
	Allowed, Refused *Answer  // nil: not known, or it does not come to that
	Plan             string   // whose rate they tell of, where there are several
	Try              sample
}

// Answer is a response to a caller, as far as limits are concerned.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Head is the first lines of the response.
func (a *Answer) Head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\n", a.Status, http.StatusText(a.Status))
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		for _, value := range a.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}

// Text is the body, laid out where it is JSON.
func (a *Answer) Text() string {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(a.Body), "", "  "); err != nil {
		return string(a.Body)
	}
	return b.String()
}

// definitions are those of the candidate and the stable, once it is known which these are.
func (u *UI) definitions(ctx context.Context, page *rulePage) (list []definition, err error) {
	for _, v := range []struct {
		role string
		is   *version
	}{{"candidate", page.Candidate}, {"stable", page.Stable}} {
		if v.is == nil {
			continue
		}
		d := definition{version: v.is, Role: v.role}
		d.Lines = strings.Split(strings.TrimSuffix(ruleText(page.Domain, page.Name, v.is), "\n"), "\n")
		if v.is.Spec != nil {
			d.Try = sampleOf(v.is.Spec)
			if err := u.answer(ctx, page.Name, &d); err != nil {
				return nil, err
			}
		}
		list = append(list, d)
	}
	return list, nil
}

// answer finds out what callers get. What a request has to be to meet the rule, and what its key is, does not matter to
// that, and neither does which plan has the rate: that of the first limited one by name is shown.
func (u *UI) answer(ctx context.Context, name string, d *definition) (err error) {
	if u.answers == nil {
		return nil
	}
	spec := rules.Spec{Limits: slices.Clone(d.Spec.Limits), Response: d.Spec.Response}
	for i := range spec.Limits {
		l := &spec.Limits[i]
		if l.By != nil {
			d.Plan = "other"
			for _, value := range slices.Sorted(maps.Keys(l.Values)) {
				if l.Rate.Unlimited {
					d.Plan, l.Rate = value, l.Values[value]
				}
			}
			l.By, l.Values = nil, nil
		}
	}
	d.Allowed, d.Refused, err = u.answers(ctx, name, &spec)
	return err
}
