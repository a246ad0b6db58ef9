package ui

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// overrideLengths are for how long an override is offered; usualOverride is what its form begins with.
var overrideLengths = []string{"1h", "4h", "1d", "3d", "7d", "30d", "90d"}

const usualOverride = "4h"

// overrideForm asks for another rate of one key. The values of the key travel in the body of the form alone: an address is
// kept in histories and logs.
func (u *UI) overrideForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	spec, err := o.spec()
	if err != nil {
		return form{}, err
	}
	f := o.form("Give one key of "+o.id+" another rate?", "Set the override", overrideWords("set", o, spec, "--limit", "RATE", "--for", usualOverride)...)
	f.Changes = nil
	f.Fields = append(keyFields(r, spec), limitFields(r, spec)...)
	f.Fields = append(f.Fields,
		field{Name: "rate", Label: "Rate", Kind: "text", Value: r.Query.Get("rate"), Required: true, Hint: "with the window of the limit, which is " + rateOf(spec) + "; or unlimited"},
		field{Name: "for", Label: "For", Value: orElse(r.Query.Get("for"), usualOverride), Options: overrideOptions()})
	f.Says = []string{"It takes effect at once, in place of an override that the key has, and ends by itself. It counts in the same counter: neither its begin nor its end is a fresh budget. The values are hashed; they are neither kept nor shown again."}
	return f, nil
}

// spec is what the rule says to most keys.
func (o onRule) spec() (*rules.Spec, error) {
	v := o.GetRule().GetStable()
	if v == nil {
		v = o.GetRule().GetCandidate()
	}
	if v == nil {
		return nil, fmt.Errorf("%w: %s is deleted: it has no overrides; a rollback restores it", rules.ErrConflict, o.id)
	}
	known := versionOf(v)
	if known.Spec == nil {
		return nil, fmt.Errorf("%w: %s", rules.ErrConflict, known.Summary)
	}
	return known.Spec, nil
}

// overrideWords are the command, with a place for each value.
func overrideWords(verb string, o onRule, spec *rules.Spec, more ...string) []string {
	words := []string{"override", verb, o.id}
	for range spec.Key {
		words = append(words, "--key", "VALUE")
	}
	return append(words, more...)
}

// keyFields ask for the values of a key, in its order.
func keyFields(r *request, spec *rules.Spec) []field {
	fields := make([]field, len(spec.Key))
	for i, k := range spec.Key {
		name := "key" + strconv.Itoa(i+1)
		fields[i] = field{Name: name, Label: k.String(), Kind: "text", Required: true, Hint: "as a request has it"}
		if r.Method == "POST" {
			fields[i].Value = r.Query.Get(name)
		}
	}
	return fields
}

// keyOf reads what keyFields asked for: as many values as there are.
func keyOf(r *request) (values []string) {
	for i := 1; r.Query.Has("key" + strconv.Itoa(i)); i++ {
		values = append(values, r.Query.Get("key"+strconv.Itoa(i)))
	}
	return values
}

// limitFields ask which limit is meant, where there are several.
func limitFields(r *request, spec *rules.Spec) []field {
	if len(spec.Limits) < 2 {
		return nil
	}
	f := field{Name: "limit", Label: "Limit", Value: r.Query.Get("limit")}
	for i := range spec.Limits {
		l := &spec.Limits[i]
		f.Options = append(f.Options, option{l.Name, l.Name + ": " + limitRate(l)})
	}
	return []field{f}
}

// rateOf are the rates of a spec.
func rateOf(spec *rules.Spec) string {
	list := make([]string, len(spec.Limits))
	for i := range spec.Limits {
		list[i] = limitRate(&spec.Limits[i])
	}
	return strings.Join(list, "; ")
}

// limitRate is the rate of a limit, or the one for whoever is on no plan.
func limitRate(l *rules.Limit) string { return l.Rate.String() }

func overrideOptions() []option {
	list := make([]option, len(overrideLengths))
	for i, text := range overrideLengths {
		list[i] = option{text, text}
	}
	return list
}

func orElse(text, usual string) string {
	if text == "" {
		return usual
	}
	return text
}

func (u *UI) override(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	length, err := r.length("for", 0)
	if err != nil {
		return done{}, err
	}
	resp, err := u.api.SetOverride(ctx, &adminpb.SetOverrideRequest{
		Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Key: keyOf(r), Limit: r.Query.Get("limit"), Rate: r.Query.Get("rate"),
		Until: timestamppb.New(time.Now().Add(length)), Confirmed: r.knowingly(), Why: why,
	})
	return done{outcome: resp.GetOutcome()}, err
}

// endOverrideForm is of the override that a list shows (?id=, and &limit= where the rule has several), or asks for the key.
func (u *UI) endOverrideForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	spec, err := o.spec()
	if err != nil {
		return form{}, err
	}
	f := o.form("End an override of "+o.id+"?", "End the override", overrideWords("delete", o, spec)...)
	f.Says = []string{"The limit of the rule holds for the key again at once, and what was spent stays spent."}
	id, limit := r.Query.Get("id"), r.Query.Get("limit")
	if id == "" {
		f.Fields = keyFields(r, spec)
		return f, nil
	}
	f.Fields = []field{hidden("id", id), hidden("limit", limit)}
	list, err := u.api.ListOverrides(ctx, &adminpb.ListOverridesRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule")})
	if err != nil {
		return form{}, err
	}
	for _, one := range list.GetOverrides() {
		if one.GetKey() == id && (limit == "" || one.GetLimit() == limit) {
			name := strings.TrimSpace("Key #" + one.GetKey()[:8] + " " + one.GetLimit())
			f.Changes = append(f.Changes, change{name, one.GetRate() + " until " + one.GetUntil().AsTime().UTC().Format(utc), "the rule's limit: " + rateOf(spec)})
		}
	}
	if len(f.Changes) == 0 {
		return form{}, fmt.Errorf("%w: %s has no such override any more", rules.ErrNotFound, o.id)
	}
	return f, nil
}

func (u *UI) endOverride(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.DeleteOverride(ctx, &adminpb.DeleteOverrideRequest{
		Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Key: keyOf(r), Id: r.Query.Get("id"), Limit: r.Query.Get("limit"), Why: why,
	})
	return done{outcome: resp.GetOutcome()}, err
}
