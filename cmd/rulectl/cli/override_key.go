package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

const keyUsage = "values of the rule's key in its order, with commas between them (\\, is a comma in a value); given more than once: one value each, as it is"

type overrideFlags struct {
	key               []string
	limit, rate, till string
	length            span
}

// values are those of the key. They must not get into any text.
func (f *overrideFlags) values() []string {
	if len(f.key) != 1 {
		return f.key
	}
	const comma = "\x00" // which no argument of a program can have in it
	parts := strings.Split(strings.ReplaceAll(f.key[0], `\,`, comma), ",")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], comma, ",")
	}
	return parts
}

// named returns the source that one of the values begins with, as in "header:x-api-key=k8"; "" for none.
func (f *overrideFlags) named(sources []string) string {
	for _, source := range sources {
		if slices.ContainsFunc(f.values(), func(v string) bool { return strings.HasPrefix(v, source+"=") }) {
			return source
		}
	}
	return ""
}

// refuseNamed refuses values with the name of their source before them: the rule would be asked for a key that nobody has.
func (f *overrideFlags) refuseNamed(sources []string) error {
	if source := f.named(sources); source != "" {
		return usagef("--key takes the value alone: leave out %q", source+"=")
	}
	return nil
}

// checkKey looks at the rule where a value might have the name of its source before it.
func (a *app) checkKey(ctx context.Context, rule string, f *overrideFlags) error {
	if !slices.ContainsFunc(f.key, func(v string) bool { return strings.Contains(v, "=") }) {
		return nil
	}
	found, err := a.findRules(ctx, []string{rule})
	if err != nil {
		return err
	}
	var sources []string
	for _, v := range []*adminpb.Version{found[0].GetStable(), found[0].GetCandidate()} {
		s, err := rules.DecodeSpec([]byte(v.GetSpec()))
		if v == nil || err != nil {
			continue
		}
		for _, source := range s.Key {
			sources = append(sources, source.Source.String())
		}
	}
	return f.refuseNamed(sources)
}

// askTenfold reports whether the control plane is told that the rate is meant: by --yes, or by an answer where somebody
// can be asked and the rate is ten times more or less than the limit's.
func (a *app) askTenfold(ctx context.Context, rule, limit string, rate rules.Rate) (confirmed bool, err error) {
	if a.yes.given() || !a.io.Interactive {
		return a.yes.given(), nil
	}
	found, err := a.findRules(ctx, []string{rule})
	if err != nil {
		return false, err
	}
	r := found[0]
	was, err := rules.DecodeSpec([]byte(inForce(r).GetSpec()))
	if err != nil {
		return false, nil //nolint:nilerr // a newer control plane knows what the spec says, and judges by itself
	}
	will := was
	will.Limits = slices.Clone(was.Limits)
	for i := range will.Limits {
		if will.Limits[i].Name == limit {
			will.Limits[i].Rate = rate
		}
	}
	problems := rules.CompareLimits(&was, &will)
	if len(problems) == 0 {
		return false, nil
	}
	if a.expect == 0 {
		a.expect = r.GetRevision() // the answer is about this one
	}
	a.warn("%s: %s", oneLine(r.GetDomain()+"/"+r.GetName()), oneLine(problems[0].Message))
	return true, a.confirm(ctx, fmt.Sprintf("override a key of %s/%s with %s", r.GetDomain(), r.GetName(), rate))
}
