package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) alertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "alert", Aliases: []string{"alerts"}, Short: "Rules that refuse far more than they used to", GroupID: groupLook,
		Long: "The control plane watches every version of every rule, without Prometheus: what it refuses, and in shadow would\n" +
			"refuse, in five minutes, compared with what is usual. Where alerts are sent is said to the control plane; see\n" +
			"controlplane --help.",
	}
	return group(cmd, a.listAlertsCommand("list"), a.silenceCommand(), a.unsilenceCommand(), a.testAlertsCommand())
}

// listAlertsCommand is `alert list`, and `get alerts` for those who look for it there.
func (a *app) listAlertsCommand(use string, aliases ...string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     use,
		Aliases: aliases,
		Short:   "Show the alerts that fire, and which rules are silenced",
		Long: "HITS says who is hit: many keys, one_client (more than four fifths of it), everybody (the key tells no callers apart)\n" +
			"or unknown. Numbers, keys and commands are those of when it fired.",
		Example: "  rulectl alert list\n  rulectl alert list --all -d public-api -o json",
		Args:    cobra.NoArgs,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.listAlerts(ctx, all) }),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are resolved, of the last 90 days")
	a.domainFlag(cmd, "only the rules of this domain")
	a.listFlags(cmd)
	a.watchFlag(cmd)
	hasNames(cmd)
	return cmd
}

type alertItem struct {
	ID          string      `json:"id"`
	Rule        string      `json:"rule"`
	Version     int64       `json:"version"`
	Type        string      `json:"type"` // refused or would_refuse
	Severity    string      `json:"severity"`
	Summary     string      `json:"summary"`
	Description string      `json:"description"`
	Since       string      `json:"since"`
	Resolved    string      `json:"resolved,omitempty"` // absent: it fires
	Ending      string      `json:"ending,omitempty"`
	Silenced    string      `json:"silencedUntil,omitempty"`
	Refused     int64       `json:"refused"` // of the requests, in the five minutes before
	Requests    int64       `json:"requests"`
	Bound       float64     `json:"bound"`    // of the ratio: what it surely is
	Baseline    float64     `json:"baseline"` // what it usually is
	Limit       float64     `json:"limit"`    // what the bound was above
	Hits        string      `json:"hits"`
	Distinct    int64       `json:"distinctKeys"`
	Keys        []keyItem   `json:"keys,omitempty"`
	Offers      []offerItem `json:"offers,omitempty"`
	State       string      `json:"state"` // of the rule, in words

	since, resolved time.Time
}

type keyItem struct {
	Label string `json:"label"`
	Count int64  `json:"count"`
}

type offerItem struct {
	Command string `json:"command"`
	Effect  string `json:"effect"`
}

func newAlertItem(m *adminpb.Alert, silenced string) alertItem {
	item := alertItem{
		ID: m.GetId(), Rule: m.GetDomain() + "/" + m.GetRule(), Version: m.GetVersion(), Type: m.GetKind(), Severity: m.GetSeverity(),
		Summary: m.GetSummary(), Description: m.GetDescription(), Since: timeJSON(m.GetSince()), Resolved: timeJSON(m.GetResolved()),
		Ending: m.GetEnding(), Silenced: silenced, Refused: m.GetRefused(), Requests: m.GetRequests(), Bound: m.GetBound(),
		Baseline: m.GetBaseline(), Limit: m.GetLimit(), Hits: m.GetHits(), Distinct: m.GetDistinct(), State: m.GetState(),
		since: m.GetSince().AsTime(), resolved: m.GetResolved().AsTime(),
	}
	if m.GetResolved() != nil {
		item.Silenced = ""
	}
	for _, k := range m.GetKeys() {
		item.Keys = append(item.Keys, keyItem{k.GetLabel(), k.GetCount()})
	}
	for _, o := range m.GetOffers() {
		item.Offers = append(item.Offers, offerItem{o.GetCommand(), o.GetEffect()})
	}
	return item
}

func (a *app) listAlerts(ctx context.Context, all bool) error {
	l := &listing[alertItem]{
		kind:   "AlertList",
		header: []string{"RULE", "VERSION", "TYPE", "STATUS", "SEVERITY", "HITS", "COUNT", "USUAL", "SINCE"},
		right:  []string{"COUNT", "USUAL"},
		row:    alertItem.row,
		notes:  alertItem.notes,
		name:   func(item alertItem) string { return item.Rule },
		id:     func(item alertItem) string { return item.ID },
		none:   func() { a.nothing("alerts", "nothing refuses far more than usual") },
	}
	var silences []*adminpb.SilenceState
	err := l.list(ctx, a, func(ctx context.Context) ([]alertItem, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListAlertsResponse, error) {
			return client.ListAlerts(ctx, &adminpb.ListAlertsRequest{Domain: a.domain, All: all})
		})
		silences = resp.GetSilences()
		until := map[string]string{}
		for _, s := range silences {
			until[s.GetDomain()+"/"+s.GetRule()] = timeJSON(s.GetUntil())
		}
		items := make([]alertItem, len(resp.GetAlerts()))
		for i, m := range resp.GetAlerts() {
			items[i] = newAlertItem(m, until[m.GetDomain()+"/"+m.GetRule()])
		}
		return items, err
	})
	if err != nil || a.structured() || a.output == outputName {
		return err
	}
	for _, s := range silences {
		end := s.GetUntil().AsTime()
		a.tell("silenced until %s (%s left) by %s: %s/%s; %s", when(end), left(end, time.Now()),
			oneLine(s.GetActor()), oneLine(s.GetDomain()), oneLine(s.GetRule()), oneLine(s.GetMessage()))
	}
	return nil
}

func (item alertItem) row(bool) []string {
	status := "✖ Firing"
	switch {
	case item.Resolved != "":
		status = "✔ Resolved"
	case item.Silenced != "":
		status = "‖ Silenced"
	}
	return []string{
		item.Rule, fmt.Sprintf("v%d", item.Version), item.Type, status, item.Severity, item.Hits,
		fmt.Sprintf("%d of %d", item.Refused, item.Requests), fmt.Sprintf("%.1f%%", 100*item.Baseline), when(item.since),
	}
}

// notes are who is hit and what helps, while it fires, and how it ended.
func (item alertItem) notes(time.Time) (list []string) {
	if item.Resolved != "" {
		return []string{fmt.Sprintf("resolved %s: %s", when(item.resolved), item.Ending)}
	}
	keys := make([]string, len(item.Keys))
	for i, k := range item.Keys {
		keys[i] = fmt.Sprintf("%s (%d)", k.Label, k.Count)
	}
	if len(keys) > 0 {
		list = append(list, "hit most: "+strings.Join(keys, ", "))
	}
	for _, o := range item.Offers {
		list = append(list, fmt.Sprintf("to have %s: %s", o.Effect, o.Command))
	}
	return list
}

func (a *app) silenceCommand() *cobra.Command {
	var length span
	cmd := &cobra.Command{
		Use:   "silence RULE --for DURATION",
		Short: "Have no alert of a rule sent for a time, and take what it refuses now for usual",
		Long: "A silence ends by itself, after seven days at most, and what fires then is sent. What fires already is acknowledged:\n" +
			"what is refused now becomes the usual. An Alertmanager that has the alert keeps it: silence it there as well.",
		Example: "  rulectl alert silence public-api/login --for 1h -m \"load test\"",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if length == 0 {
				return usagef("--for is missing: say for how long, for example --for 1h")
			}
			return a.silence(ctx, args[0], time.Duration(length))
		}),
	}
	cmd.Flags().Var(&length, "for", "how long, for example 1h")
	a.alertChangeFlags(cmd)
	return cmd
}

func (a *app) alertChangeFlags(cmd *cobra.Command) {
	a.domainFlag(cmd, "domain of the rule")
	a.messageFlag(cmd)
	a.yesFlag(cmd, "it is meant: do not ask")
}

type silenceItem struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Rule       string `json:"rule"`
	Until      string `json:"until,omitempty"` // absent: it was ended
}

func (a *app) silence(ctx context.Context, rule string, length time.Duration) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	if err := a.allow(ctx, "silence the alerts of "+domain+"/"+name); err != nil {
		return err
	}
	a.changing = true
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.SilenceResponse, error) {
		return client.Silence(ctx, &adminpb.SilenceRequest{Domain: domain, Rule: name, For: durationpb.New(length), Message: a.message})
	})
	if err != nil {
		return err
	}
	a.changing = false
	until := resp.GetSilence().GetUntil()
	if a.structured() {
		return a.printData(silenceItem{apiVersion, "Silence", domain + "/" + name, timeJSON(until)})
	}
	fmt.Fprintf(a.io.Out, "%s/%s  silenced until %s\n", domain, name, when(until.AsTime()))
	a.tell("it ends by itself; to end it now: rulectl alert unsilence %s/%s", domain, name)
	return nil
}

func (a *app) unsilenceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "unsilence RULE",
		Short:   "End a silence",
		Example: "  rulectl alert unsilence public-api/login",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.unsilence(ctx, args[0]) }),
	}
	a.alertChangeFlags(cmd)
	return cmd
}

func (a *app) unsilence(ctx context.Context, rule string) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	if err := a.allow(ctx, "end the silence of "+domain+"/"+name); err != nil {
		return err
	}
	a.changing, a.lists = true, "rulectl alert list"
	if _, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.UnsilenceResponse, error) {
		return client.Unsilence(ctx, &adminpb.UnsilenceRequest{Domain: domain, Rule: name, Message: a.message})
	}); err != nil {
		return err
	}
	a.changing = false
	if a.structured() {
		return a.printData(silenceItem{apiVersion, "Silence", domain + "/" + name, ""})
	}
	fmt.Fprintf(a.io.Out, "%s/%s  alerts are sent again\n", domain, name)
	return nil
}

func (a *app) testAlertsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send an alert that says it is a test to every target, and show what each answers",
		Long:  "It needs the operator role for all domains. Exit 1: a target did not take it, or there is none.",
		Args:  cobra.NoArgs,
		RunE:  a.run(func(ctx context.Context, _ []string) error { return a.testAlerts(ctx) }),
	}
	a.messageFlag(cmd)
	a.yesFlag(cmd, "it is meant: do not ask")
	return cmd
}

type targetItem struct {
	Target string `json:"target"`
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
}

func (t targetItem) row(bool) []string {
	if t.OK {
		return []string{t.Target, "✔ took it"}
	}
	return []string{t.Target, "✖ " + t.Error}
}

func (a *app) testAlerts(ctx context.Context) error {
	if err := a.allow(ctx, "send a test alert to every target"); err != nil {
		return err
	}
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.TestAlertsResponse, error) {
		return client.TestAlerts(ctx, &adminpb.TestAlertsRequest{Message: a.message})
	})
	if err != nil {
		return err
	}
	l := &listing[targetItem]{
		kind:   "AlertTestList",
		header: []string{"TARGET", "ANSWER"},
		row:    targetItem.row,
		none: func() {
			a.tell("there are no targets: name them to the control plane, with --alertmanager, --webhook or --slack-webhook-file")
		},
	}
	items, failed := []targetItem{}, len(resp.GetAnswers()) == 0
	for _, answer := range resp.GetAnswers() {
		items = append(items, targetItem{answer.GetTarget(), answer.GetError() == "", answer.GetError()})
		failed = failed || answer.GetError() != ""
	}
	err = l.show(a, items)
	if err == nil && failed {
		err = explained{exitFailed}
	}
	return err
}
