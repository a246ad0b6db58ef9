package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) getCommand() *cobra.Command {
	of := &cobra.Command{
		Use:        "rules [RULE...]",
		Aliases:    []string{"rule"},
		SuggestFor: []string{"list", "ls", "show", "status", "rollout", "rollouts", "candidates"},
		Short:      "Show rules as they stand",
		Long:       "Get rules shows all rules, those of the domain that -d names, or those that are named: RULE is DOMAIN/NAME, or a\nname with -d.",
		Example:    "  rulectl get rules -d public-api\n  rulectl get rule public-api/login -o json",
		RunE:       a.run(a.getRules),
	}
	a.domainFlag(of, "only the rules of this domain")
	a.listFlags(of)
	a.watchFlag(of)
	hasNames(of)
	return group(&cobra.Command{Use: "get", Short: "Show things as they stand", GroupID: groupLook},
		of, a.getDomainsCommand(), a.listSidecarsCommand("sidecars", "sidecar"), a.listAlertsCommand("alerts", "alert"))
}

func (a *app) getRules(ctx context.Context, args []string) error {
	l := &listing[ruleItem]{
		kind:   "RuleList",
		header: []string{"NAME", "STAGE", "STABLE", "CANDIDATE", "KEY", "LIMIT", "REVISION"},
		wide:   []string{"OWNER", "UID", "SUMMARY"},
		right:  []string{"REVISION"},
		texts:  []string{"KEY", "LIMIT"},
		row:    ruleItem.row,
		notes:  ruleItem.notes,
		name:   ruleItem.id,
		none:   func() { a.nothing("rules", "make one with: rulectl apply -f FILE") },
	}
	if len(args) == 1 {
		l.single = func(r ruleItem) any {
			return struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
				ruleItem
			}{apiVersion, "Rule", r}
		}
	}
	return l.list(ctx, a, func(ctx context.Context) ([]ruleItem, error) {
		list, err := a.findRules(ctx, args)
		items := make([]ruleItem, len(list))
		for i, r := range list {
			items[i] = newRuleItem(r)
		}
		return items, err
	})
}

// findRules returns the named rules in their order, or all of the domain.
func (a *app) findRules(ctx context.Context, args []string) ([]*adminpb.Rule, error) {
	type id struct{ domain, name string }
	wanted := make([]id, len(args))
	domain := a.domain
	for i, arg := range args {
		var err error
		if wanted[i].domain, wanted[i].name, err = a.ruleName(arg); err != nil {
			return nil, err
		}
		domain = wanted[i].domain
	}
	if slices.ContainsFunc(wanted, func(w id) bool { return w.domain != domain }) {
		domain = "" // of several domains: ask for all
	}
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListRulesResponse, error) {
		return client.ListRules(ctx, &adminpb.ListRulesRequest{Domain: domain})
	})
	if err != nil || len(args) == 0 {
		return resp.GetRules(), err
	}
	list := make([]*adminpb.Rule, len(wanted))
	for i, w := range wanted {
		at := slices.IndexFunc(resp.GetRules(), func(r *adminpb.Rule) bool { return r.GetDomain() == w.domain && r.GetName() == w.name })
		if at < 0 {
			return nil, fmt.Errorf("rule %s/%s: %w", w.domain, w.name, rules.ErrNotFound)
		}
		list[i] = resp.GetRules()[at]
	}
	return list, nil
}

type ruleItem struct {
	Domain    string       `json:"domain"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	Revision  int64        `json:"revision"`
	Stage     string       `json:"stage"`
	Percent   float64      `json:"percent"` // of keys for which the candidate binds
	Stable    *versionItem `json:"stable,omitempty"`
	Candidate *versionItem `json:"candidate,omitempty"`

	State       string `json:"state"` // in words
	Paused      bool   `json:"paused"`
	Overrides   int32  `json:"overrides"` // that have not ended
	FrozenUntil string `json:"frozenUntil,omitempty"`
	Plan        string `json:"plan,omitempty"` // that it is under, in words
}

type versionItem struct {
	Version int64           `json:"version"`
	Spec    json.RawMessage `json:"spec"`
}

func newRuleItem(r *adminpb.Rule) ruleItem {
	return ruleItem{
		Domain: r.GetDomain(), Name: r.GetName(), UID: r.GetUid(), Revision: r.GetRevision(), Stage: r.GetStage(),
		Percent: float64(r.GetPercent()) / 100, Stable: newVersionItem(r.GetStable()), Candidate: newVersionItem(r.GetCandidate()),
		State: r.GetState(), Paused: r.GetPaused(), Overrides: r.GetOverrides(), FrozenUntil: timeJSON(r.GetFrozenUntil()),
		Plan: r.GetPlan(),
	}
}

func (r ruleItem) id() string { return r.Domain + "/" + r.Name }

// notes say what must not be overlooked.
func (r ruleItem) notes(now time.Time) []string {
	var list []string
	if until, err := time.Parse(time.RFC3339, r.FrozenUntil); err == nil {
		list = append(list, fmt.Sprintf("❄ FROZEN until %s (%s left): it refuses nobody; see: rulectl get domains -d %s", when(until), left(until, now), r.Domain))
	}
	if r.Plan != "" {
		list = append(list, fmt.Sprintf("⟳ PLAN: %s; see: rulectl rollout status %s", r.Plan, r.id()))
	}
	if r.Paused {
		list = append(list, "‖ PAUSED: it is not promoted; to go on: rulectl resume "+r.id())
	}
	if r.Overrides > 0 {
		list = append(list, fmt.Sprintf("⚠ %s; see: rulectl override list %s", count(int(r.Overrides), "override"), r.id()))
	}
	return list
}

func newVersionItem(v *adminpb.Version) *versionItem {
	if v == nil {
		return nil
	}
	spec := json.RawMessage(v.GetSpec())
	if !json.Valid(spec) {
		spec = json.RawMessage("null")
	}
	return &versionItem{v.GetNumber(), spec}
}

func (r ruleItem) row(wide bool) []string {
	stable, candidate := r.Stable.said(), r.Candidate.said()
	var stableText, candidateText string
	if r.Stable != nil {
		stableText = fmt.Sprintf("v%d", r.Stable.Version)
	}
	if r.Candidate != nil {
		candidateText = fmt.Sprintf("v%d at %s%%", r.Candidate.Version, strconv.FormatFloat(r.Percent, 'f', -1, 64))
		if r.Stage == string(rules.StageShadow) {
			candidateText = fmt.Sprintf("v%d in shadow", r.Candidate.Version)
		}
	}
	row := []string{
		r.id(), r.stageText(), stableText, candidateText, becomes(stable.key(), candidate.key()),
		becomes(stable.limits(), candidate.limits()), strconv.FormatInt(r.Revision, 10),
	}
	if wide {
		owner := stable.Owner
		if r.Candidate != nil {
			owner = candidate.Owner
		}
		row = append(row, owner, r.UID, cmp.Or(r.Candidate, r.Stable).summary())
	}
	return row
}

// stageText is the stage, with the stable beside the candidate: that one is in force for all others.
func (r ruleItem) stageText() string {
	switch {
	case r.Stable == nil || r.Candidate == nil:
		return r.Stage
	case r.Stage == string(rules.StageShadow):
		return "stable + shadow"
	}
	return fmt.Sprintf("stable + %s%%", strconv.FormatFloat(r.Percent, 'f', -1, 64))
}

// becomes shows what the stable says and what the candidate says instead.
func becomes(stable, candidate string) string {
	switch {
	case stable == "" || stable == candidate:
		return candidate
	case candidate == "":
		return stable
	}
	return stable + " -> " + candidate
}

// said is what a table shows of a spec. It is read leniently, so that an older rulectl shows what it knows of a newer
// spec.
type said struct {
	Owner string `json:"owner"`

	Description string `json:"description"`

	Key    []keyPart `json:"key"`
	Limits []struct {
		Name   string            `json:"name"`
		Rate   string            `json:"rate"`
		By     string            `json:"by"`
		Values map[string]string `json:"values"`
	} `json:"limits"`
	known bool
}

// keyPart is a source, or an object that says from where and what is done to it.
type keyPart string

// UnmarshalJSON reads either form.
func (k *keyPart) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(k))
	}
	var o struct {
		From string `json:"from"`
		As   string `json:"as"`
	}
	err := json.Unmarshal(b, &o)
	*k = keyPart(cmp.Or(o.As, o.From))
	return err
}

func (v *versionItem) summary() string {
	if v == nil {
		return ""
	}
	return specSummary(string(v.Spec))
}

func (v *versionItem) said() said {
	var s said
	if v != nil {
		s.known = json.Unmarshal(v.Spec, &s) == nil
	}
	return s
}

func (s said) key() string {
	switch {
	case !s.known:
		return ""
	case len(s.Key) == 0:
		return "(all)"
	}
	parts := make([]string, len(s.Key))
	for i, k := range s.Key {
		parts[i] = string(k)
	}
	return strings.Join(parts, ",")
}

func (s said) limits() string {
	list := make([]string, len(s.Limits))
	for i, l := range s.Limits {
		list[i] = strings.TrimSpace(l.Name + " " + l.Rate)
		if l.By != "" {
			list[i] += fmt.Sprintf(" or %s by %s", count(len(l.Values), "other"), l.By)
		}
	}
	return strings.Join(list, ", ")
}
