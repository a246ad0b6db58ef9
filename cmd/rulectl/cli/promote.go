package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// promoteFlags say how far, or by which plan.
type promoteFlags struct {
	to, plan, onTrip string
	gates            []string
	force            bool
}

func (a *app) promoteCommand() *cobra.Command {
	var f promoteFlags
	cmd := &cobra.Command{
		Use:   "promote RULE --to PERCENT|next | --plan STEPS",
		Short: "Let a rule's candidate bind for a percentage of keys, at once or by a plan",
		Long: "Promote moves a candidate up or down, in steps of 0.01%. The percentage is of keys, not of requests: raising it\n" +
			"only adds keys, lowering it returns exactly the earlier ones. At 100% the candidate becomes the stable version;\n" +
			"at 0% it is back in shadow. First it shows what the candidate would refuse, as far as it was counted, and asks where\n" +
			"somebody can be asked.\n\n" +
			"With --plan the control plane goes on by itself, step by step: each is held at least as long as it says, and left\n" +
			"only on evidence: every sidecar has it and has reported, enough requests were judged, and every --gate passes.\n" +
			"Otherwise the plan holds, and rollout status says why. --to next takes its next step at once; --to PERCENT, abort\n" +
			"and rollback end it.\n\n" +
			"A --gate is maxWouldRefuse PERCENT (what the candidate refuses, or would and no other rule does), maxDelta PERCENT\n" +
			"(newly refused less no longer refused) or minRequests N (judged in the step; 100). It passes, or trips, when that is\n" +
			"sure to 95%. A tripped gate stops a promotion (exit 7).\n\nRULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl promote public-api/login --to 25% -m \"shadow looks right\" --wait\n" +
			"  rulectl promote public-api/login --plan 'shadow 1h, 1% 15m, 10% 15m, 50% 30m, 100%' --gate 'maxWouldRefuse 2%'\n" +
			"  rulectl promote public-api/login --plan '+30% 15m, max 100%' --gate 'maxDelta 0.5%' --on-trip rollback\n" +
			"  rulectl promote public-api/login --to next",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.promoteBy(ctx, args[0], &f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "", "share of keys, for example 25% or 0.5%; or next, the plan's next step")
	flags.StringVar(&f.plan, "plan", "", "steps, for example 'shadow 1h, 1% 15m, 10% 15m, 100%' or '+30% 15m, max 100%'")
	flags.StringArrayVar(&f.gates, "gate", nil, "what evidence is held to, for example 'maxWouldRefuse 2%'; may be repeated")
	flags.StringVar(&f.onTrip, "on-trip", "", "what the plan does when a gate trips: pause (default) or rollback")
	flags.BoolVar(&f.force, "force-gate", false, "go on also where a gate has tripped; needs -m")
	a.ruleChangeFlags(cmd)
	return cmd
}

// stepNext is the --to of a plan's next step.
const stepNext = "next"

// request is what the flags ask for, and how people say it, with %s for the rule.
func (f *promoteFlags) request(message string) (req *adminpb.PromoteRequest, what string, err error) {
	req = &adminpb.PromoteRequest{Next: f.to == stepNext, Plan: f.plan, Gates: f.gates, OnTrip: f.onTrip, ForceGate: f.force}
	if _, err := rules.ParseGates(f.gates...); err != nil {
		return nil, "", usagef("--gate: %w", err)
	}
	switch {
	case f.to == "" && f.plan == "":
		return nil, "", usagef("--to is missing: say how far, for example --to 25%%, or name a --plan")
	case f.to != "" && f.plan != "":
		return nil, "", usagef("--to and --plan exclude each other: a plan begins with its first step")
	case f.force && message == "":
		return nil, "", usagef("--force-gate needs -m: say why, for the audit record")
	case f.onTrip != "" && f.plan == "":
		return nil, "", usagef("--on-trip is for a --plan")
	case f.plan != "":
		plan, err := rules.NewPlan(f.plan, f.gates, f.onTrip)
		if err != nil {
			return nil, "", usagef("--plan: %w", err)
		}
		return req, "promote %s by the plan " + strings.ReplaceAll(plan.StepsText(), "%", "%%"), nil
	case req.GetNext():
		return req, "promote %s to the next step of its plan", nil
	}
	to, err := rules.ParsePercent(f.to)
	if err != nil {
		return nil, "", usagef("--to: %w", err)
	}
	req.To = uint32(to)
	return req, fmt.Sprintf("promote %%s to %s", strings.ReplaceAll(to.String(), "%", "%%")), nil
}

// promoteBy shows the evidence, asks where somebody can be asked, and promotes.
func (a *app) promoteBy(ctx context.Context, rule string, f *promoteFlags) error {
	req, what, err := f.request(a.message)
	if err != nil {
		return err
	}
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	what = fmt.Sprintf(what, domain+"/"+name)
	if req.GetTo() > 0 || req.GetNext() || req.GetPlan() != "" {
		if err := a.showEvidence(ctx, domain, name, what); err != nil {
			return err
		}
	}
	c := change{what: what, next: nextStep}
	if f.plan != "" {
		c.next = func(step *adminpb.Step) string { return "next: rulectl rollout status " + step.GetRule() + " -w" }
	}
	return a.changeRule(ctx, c, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		req.Domain, req.Rule, req.Why = domain, name, a.why()
		return one(client.Promote(ctx, req))
	})
}

// showEvidence prints what is known of what the candidate would do, and asks whether to go on where somebody can be asked.
// That it cannot be read stops nobody.
func (a *app) showEvidence(ctx context.Context, domain, name, what string) error {
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.GetRolloutResponse, error) {
		return client.GetRollout(ctx, &adminpb.GetRolloutRequest{Domain: domain, Rule: name})
	})
	r := resp.GetRollout()
	switch {
	case errors.Is(err, rules.ErrUnavailable) && !rpcstatus.Answered(err):
		return err
	case errors.Is(err, rules.ErrNotFound), errors.Is(err, rules.ErrInvalid), errors.Is(err, rules.ErrForbidden), errors.Is(err, rules.ErrUnauthenticated):
		return nil // which the change itself says
	case err != nil:
		fmt.Fprintf(a.io.Err, "⚠ the evidence cannot be read: %s\n", oneLine(err.Error()))
	case r.GetRule().GetCandidate() == nil:
		return nil
	default:
		fmt.Fprintf(a.io.Err, "%s/%s is %s\n  %s\n  %s\n", domain, name, oneLine(r.GetRule().GetState()), evidenceText(r.GetEvidence()), coversText(r))
	}
	if !a.io.Interactive {
		return nil
	}
	if a.expect == 0 && err == nil { // what was looked at
		a.expect = r.GetRule().GetRevision()
	}
	return a.confirm(ctx, what)
}

// ruleChangeFlags are the flags of every command that changes one rule.
func (a *app) ruleChangeFlags(cmd *cobra.Command) {
	a.domainFlag(cmd, "domain of the rule")
	a.changeFlags(cmd)
}

func (a *app) abortCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "abort RULE",
		Short: "Put a rule's candidate back in shadow",
		Long: "Abort is promote --to 0%: the candidate refuses nobody any more and goes on being judged; a stable version stays\n" +
			"in force. A pause ends with it.",
		Example: "  rulectl abort public-api/login -m \"refusals on checkout\" --wait",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.abort(ctx, args[0]) }),
	}
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) abort(ctx context.Context, rule string) error {
	return a.changeRule(ctx, change{what: "promote %s to 0%", next: nextStep}, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.Promote(ctx, &adminpb.PromoteRequest{Domain: domain, Rule: name, Why: a.why()}))
	})
}

// changeRule makes a change of one rule, whose name is the %s of what it is.
func (a *app) changeRule(ctx context.Context, c change, rule string,
	do func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error),
) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	c.what = strings.Replace(c.what, "%s", domain+"/"+name, 1)
	c.do = func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		return do(ctx, client, domain, name)
	}
	return a.change(ctx, c)
}

func (a *app) pauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause RULE",
		Short: "Hold a rule's candidate where it is",
		Long: "Pause keeps a candidate from being promoted until it is resumed, by hand or by its plan. What it refuses it goes on\n" +
			"refusing: to end that, abort or roll back, which are possible at any time.",
		Example: "  rulectl pause public-api/login -m \"waiting for the partner\"",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.pause(ctx, args[0], false) }),
	}
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume RULE",
		Short: "Let a candidate that was paused be promoted again",
		Long: "Resume lets a candidate be promoted again that was paused, by somebody or because a gate tripped. A plan begins its\n" +
			"step anew, and what was counted before counts no more: so it also helps where a plan holds for what is lost.",
		Example: "  rulectl resume public-api/login",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.pause(ctx, args[0], true) }),
	}
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) pause(ctx context.Context, rule string, resume bool) error {
	c := change{what: "pause %s", next: func(step *adminpb.Step) string { return "next: rulectl resume " + step.GetRule() }}
	if resume {
		c = change{what: "resume %s", next: nextStep}
	}
	return a.changeRule(ctx, c, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.Pause(ctx, &adminpb.PauseRequest{Domain: domain, Rule: name, Resume: resume, Why: a.why()}))
	})
}
