package ui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

var (
	freezeLengths  = []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour}
	silenceLengths = []time.Duration{15 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 7 * 24 * time.Hour}
)

// length reads a length of time from the query.
func (r *request) length(name string, usual time.Duration) (time.Duration, error) {
	text := r.Query.Get(name)
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%w: %s is %q; it is a length of time such as 15m, 4h or 2d", rules.ErrInvalid, name, text)
	}
	return d, nil
}

// lengthChoices offer lengths of time, and to name another one.
func lengthChoices(r *request, verb string, lengths []time.Duration, now time.Duration) *choices {
	c := &choices{Label: "For", Exact: &field{Name: "for", Label: "Another time", Value: rules.HoldText(now), Hint: "such as 45m"}}
	for _, d := range lengths {
		text := rules.HoldText(d)
		c.Items = append(c.Items, choice{text, backFrom(r.Request) + "/do/" + verb + "?for=" + text, d == now})
	}
	return c
}

// frozenThing is a domain, or one rule of it.
func frozenThing(r *request) string {
	if rule := r.PathValue("rule"); rule != "" {
		return r.PathValue("domain") + "/" + rule
	}
	return r.PathValue("domain")
}

// freezeForm is of a domain or of a rule. A freeze always gets through: it is based on no revision.
func (u *UI) freezeForm(ctx context.Context, r *request) (form, error) {
	length, err := r.length("for", 15*time.Minute)
	if err != nil {
		return form{}, err
	}
	what, text := frozenThing(r), rules.HoldText(length)
	words := []string{"freeze", what, "--for", text}
	f, err := u.settingsForm(ctx, r, fmt.Sprintf("Freeze %s for %s?", what, text), "Freeze for "+text, words)
	if err != nil {
		return form{}, err
	}
	f.Revision, f.Danger = 0, true
	f.Choices = lengthChoices(r, "freeze", freezeLengths, length)
	f.Fields = []field{hidden("for", text)}
	f.Says = []string{"Nothing of it refuses anybody from now until then. It ends by itself. What is admitted is counted all the same, so that its end is no fresh budget."}
	if r.PathValue("rule") == "" {
		f.Fields = append(f.Fields, field{Name: "including_closed", Label: "Include rules with failure: closed", Kind: "checkbox", Value: r.Query.Get("including_closed"), Hint: "they guard something that is worse than a refusal"})
	}
	return f, nil
}

func (u *UI) freeze(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	length, err := r.length("for", 0)
	if err != nil {
		return done{}, err
	}
	resp, err := u.api.Freeze(ctx, &adminpb.FreezeRequest{
		Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), For: durationpb.New(length),
		IncludingClosed: r.knowingly() || r.Query.Get("including_closed") == "true", Why: why,
	})
	return done{outcome: resp.GetOutcome()}, err
}

func (u *UI) unfreezeForm(ctx context.Context, r *request) (form, error) {
	what := frozenThing(r)
	f, err := u.settingsForm(ctx, r, "End the freeze of "+what+"?", "Unfreeze", []string{"unfreeze", what})
	f.Says = []string{"Its versions decide again at once."}
	if r.PathValue("rule") != "" {
		f.Says = append(f.Says, "A freeze of the whole domain is not ended by this.")
	}
	return f, err
}

func (u *UI) unfreeze(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.Unfreeze(ctx, &adminpb.UnfreezeRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Why: why})
	return done{outcome: resp.GetOutcome()}, err
}

// settingsForm is what the forms that change the settings of a domain have in common.
func (u *UI) settingsForm(ctx context.Context, r *request, title, verb string, words []string) (form, error) {
	domain := r.PathValue("domain")
	resp, err := u.api.ListDomains(ctx, &adminpb.ListDomainsRequest{Domain: domain})
	if err != nil {
		return form{}, err
	}
	i := slices.IndexFunc(resp.GetDomains(), func(d *adminpb.Domain) bool { return d.GetName() == domain })
	if i < 0 {
		return form{}, fmt.Errorf("%w: there is no domain %q", rules.ErrNotFound, domain)
	}
	nodes, err := u.api.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: domain})
	if err != nil {
		return form{}, err
	}
	_, all, _ := haveRevision(nodes.GetNodes(), 0)
	sidecars := "none serves the domain yet: nothing is enforced"
	if all > 0 {
		sidecars = have(all) + " to acknowledge it"
	}
	return form{
		Title: title, Verb: verb, Revision: resp.GetDomains()[i].GetRevision(), Command: command(append(words, "-m", "MESSAGE")...),
		Facts: []fact{{"Sidecars", sidecars}},
	}, nil
}
