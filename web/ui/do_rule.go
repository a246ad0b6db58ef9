package ui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// actions are all that can be changed from the dashboard.
func (u *UI) actions() {
	const rule = "/d/{domain}/r/{rule}/do/"
	u.action(action{path: rule + "promote", role: access.Operator, form: u.promoteForm, do: u.promote, dry: true, knowingly: "Go on although a gate has tripped: the message says why."})
	u.action(action{path: rule + "abort", role: access.Operator, form: u.abortForm, do: u.abort, dry: true})
	u.action(action{path: rule + "pause", role: access.Operator, form: u.pauseForm, do: u.pause, dry: true})
	u.action(action{path: rule + "resume", role: access.Operator, form: u.resumeForm, do: u.resume, dry: true})
	u.action(action{path: rule + "rollback", role: access.Operator, form: u.rollbackForm, do: u.rollback, dry: true})
	u.action(action{path: rule + "delete", role: access.Operator, form: u.deleteForm, do: u.deleteRule, dry: true})
	u.action(action{path: rule + "freeze", role: access.Operator, form: u.freezeForm, do: u.freeze, dry: true, knowingly: "Freeze it although it is failure: closed."})
	u.action(action{path: rule + "unfreeze", role: access.Operator, form: u.unfreezeForm, do: u.unfreeze, dry: true})
	u.action(action{path: rule + "silence", role: access.Operator, form: u.silenceForm, do: u.silence})
	u.action(action{path: rule + "unsilence", role: access.Operator, form: u.unsilenceForm, do: u.unsilence})
	u.action(action{path: rule + "override", role: access.Operator, form: u.overrideForm, do: u.override, knowingly: "Ten times more or less than the limit is meant."})
	u.action(action{path: rule + "override-delete", role: access.Operator, form: u.endOverrideForm, do: u.endOverride})

	const domain = "/d/{domain}/do/"
	u.action(action{path: domain + "freeze", role: access.Operator, form: u.freezeForm, do: u.freeze, dry: true})
	u.action(action{path: domain + "unfreeze", role: access.Operator, form: u.unfreezeForm, do: u.unfreeze, dry: true})
	u.action(action{path: domain + "rollback", role: access.Operator, form: u.restoreForm, do: u.restore, dry: true})

	const settings = "/settings/do/"
	u.action(action{path: settings + "create-token", role: access.Admin, form: u.createTokenForm, do: u.createToken})
	u.action(action{path: settings + "revoke-token", role: access.Admin, form: u.revokeTokenForm, do: u.revokeToken})
	u.action(action{path: settings + "test-alerts", role: access.Operator, form: u.testAlertsForm, do: u.testAlerts, others: targetsTime})
	u.action(action{path: settings + "sign-out-everywhere", form: u.signOutForm, do: u.signOutEverywhere})
}

// onRule is a rule that an action is about.
type onRule struct {
	*adminpb.Rollout
	id string // "domain/name"
}

func (u *UI) ruleOf(ctx context.Context, r *request) (onRule, error) {
	domain, name := r.PathValue("domain"), r.PathValue("rule")
	resp, err := u.api.GetRollout(ctx, &adminpb.GetRolloutRequest{Domain: domain, Rule: name})
	return onRule{resp.GetRollout(), domain + "/" + name}, err
}

// form is what the forms about a rule have in common.
func (o onRule) form(title, verb string, words ...string) form {
	f := form{Title: title, Verb: verb, Revision: o.GetRule().GetRevision(), Command: command(append(words, "-m", "MESSAGE")...)}
	f.Facts = append(f.Facts, fact{"Sidecars", o.fleetWords()})
	if until := o.GetRule().GetFrozenUntil(); until != nil {
		f.Warnings = append(f.Warnings, "The rule is frozen until "+until.AsTime().UTC().Format(utc)+": it refuses nothing until then, whatever its versions say.")
	}
	return f
}

const utc = "2006-01-02 15:04:05 UTC"

// fleetWords say who has to take a change.
func (o onRule) fleetWords() string {
	switch n := int(o.GetNodes()); {
	case n == 0:
		return "none serves the domain yet: nothing is enforced"
	case len(o.GetUnacked()) > 0:
		return fmt.Sprintf("%s to acknowledge it; %s not even acknowledged what stands: %s", have(n), have(len(o.GetUnacked())), few(o.GetUnacked()))
	default:
		return have(n) + " to acknowledge it"
	}
}

// have is "1 has" or "3 have".
func have(n int) string {
	if n == 1 {
		return "1 has"
	}
	return tally.Thousands(int64(n)) + " have"
}

// few is the begin of a list that may be long.
func few(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

func (u *UI) abortForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	f := o.form("Put the candidate of "+o.id+" back in shadow?", "Abort", "abort", o.id)
	f.Says = []string{"The candidate refuses nobody any more, and goes on being judged. A stable version decides for all keys again; without one the rule refuses nothing."}
	return f, nil
}

func (u *UI) abort(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.Promote(ctx, &adminpb.PromoteRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Why: why})
	return done{outcome: resp.GetOutcome()}, err
}

func (u *UI) pauseForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	f := o.form("Hold "+o.id+" where it is?", "Pause", "pause", o.id)
	f.Says = []string{"Neither a person nor a plan promotes it until it is resumed. What it refuses it goes on refusing: to end that, abort or roll back."}
	return f, nil
}

func (u *UI) resumeForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	f := o.form("Let "+o.id+" be promoted again?", "Resume", "resume", o.id)
	f.Facts = append(o.proof(), f.Facts...)
	if o.GetPlan() != nil {
		f.Says = []string{"Its plan begins the step anew, and what was counted before counts no more."}
	}
	return f, nil
}

func (u *UI) pause(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.Pause(ctx, &adminpb.PauseRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Why: why})
	return done{outcome: resp.GetOutcome()}, err
}

func (u *UI) resume(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.Pause(ctx, &adminpb.PauseRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Resume: true, Why: why})
	return done{outcome: resp.GetOutcome()}, err
}

func (u *UI) deleteForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	f := o.form("Delete "+o.id+"?", "Delete", "delete", o.id)
	f.Danger = true
	f.Says = []string{"It is taken out of force at once: it refuses nobody any more. Its overrides end. A rollback restores it."}
	return f, nil
}

func (u *UI) deleteRule(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.Delete(ctx, &adminpb.DeleteRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Why: why})
	return done{outcome: resp.GetOutcome()}, err
}

// maxVersions is how many versions the form of a rollback offers.
const maxVersions = 12

func (u *UI) rollbackForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	to, err := rollbackTo(r)
	if err != nil {
		return form{}, err
	}
	history, err := u.api.History(ctx, &adminpb.HistoryRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule")})
	if err != nil {
		return form{}, err
	}
	f := o.form("Undo the last step of "+o.id+"?", "Roll back", "rollback", o.id)
	if to > 0 {
		version := fmt.Sprintf("v%d", to)
		f = o.form(fmt.Sprintf("Make %s the stable version of %s again?", version, o.id), "Roll back to "+version, "rollback", o.id, "--to", version)
		f.Fields = []field{hidden("to", strconv.FormatInt(to, 10))}
	}
	f.Choices = &choices{Label: "Back to", Items: []choice{{"before the last step", backFrom(r.Request) + "/do/rollback", to == 0}}}
	all := stables(history.GetEntries())
	for _, v := range all[:min(len(all), maxVersions)] {
		if n := v.GetNumber(); n != o.GetRule().GetStable().GetNumber() || o.GetRule().GetCandidate() != nil {
			f.Choices.Items = append(f.Choices.Items, choice{fmt.Sprintf("v%d", n), fmt.Sprintf("%s/do/rollback?to=%d", backFrom(r.Request), n), n == to})
		}
	}
	f.foretold = func(f *form, out *adminpb.Outcome) error {
		return f.compareWith(o, out.GetSteps()[0], history.GetEntries())
	}
	return f, nil
}

// rollbackTo reads the version to go back to; 0 undoes the last step.
func rollbackTo(r *request) (int64, error) {
	text := r.Query.Get("to")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "v"), 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: to is %q; it is a version, such as v7", rules.ErrInvalid, text)
	}
	return n, nil
}

func (u *UI) rollback(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	to, err := rollbackTo(r)
	if err != nil {
		return done{}, err
	}
	resp, err := u.api.Rollback(ctx, &adminpb.RollbackRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), To: to, Why: why})
	return done{outcome: resp.GetOutcome()}, err
}

// stables are the versions that have been in force, the newest first.
func stables(history []*adminpb.HistoryEntry) (list []*adminpb.Version) {
	for _, e := range history {
		v := e.GetStable()
		if v != nil && !slices.ContainsFunc(list, func(o *adminpb.Version) bool { return o.GetNumber() == v.GetNumber() }) {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b *adminpb.Version) int { return int(b.GetNumber() - a.GetNumber()) })
	return list
}

// compareWith says in words, and line by line, how what decides after a rollback differs from what was to be undone: the
// candidate, or else the stable.
func (f *form) compareWith(o onRule, step *adminpb.Step, history []*adminpb.HistoryEntry) error {
	was := o.GetRule().GetCandidate()
	if was == nil {
		was = o.GetRule().GetStable()
	}
	var will *adminpb.Version
	for _, e := range history {
		for _, v := range []*adminpb.Version{e.GetStable(), e.GetCandidate()} {
			if v != nil && v.GetNumber() == step.GetStable() {
				will = v
			}
		}
	}
	f.Changes = append(f.Changes, change{"Limits", saysWords(was), saysWords(will)})
	diff, err := o.between(was, will)
	f.Diff = diff
	return err
}

// between is how two versions differ, line by line; nothing where one of them is none.
func (o onRule) between(was, will *adminpb.Version) ([]diffLine, error) {
	if was == nil || will == nil {
		return nil, nil
	}
	text := func(v *adminpb.Version) string {
		return ruleText(o.GetRule().GetDomain(), o.GetRule().GetName(), versionOf(v))
	}
	diff, err := newTextDiff(fmt.Sprintf("v%d", was.GetNumber()), fmt.Sprintf("v%d", will.GetNumber()), text(was), text(will))
	if diff == nil {
		return nil, err
	}
	return diff.Unified, err
}

// saysWords are what a version says, in plain words.
func saysWords(v *adminpb.Version) string {
	if v == nil {
		return "none: nothing is refused"
	}
	return fmt.Sprintf("v%d: %s", v.GetNumber(), versionOf(v).Summary)
}
