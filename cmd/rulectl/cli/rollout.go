package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) rolloutCommand() *cobra.Command {
	var follow bool
	var revision int64
	status := &cobra.Command{
		Use:   "status RULE",
		Short: "Show where a rule's promotion stands, and on what evidence",
		Long: "Status shows the plan of a rule with its steps and gates, what it waits for, for which share of keys the candidate is\n" +
			"set to bind and which share of the requests it has decided since, in five minutes at most, and what was counted\n" +
			"since the step began. The range behind a share is its 95% interval. Where other rules refused as well, what the candidate\n" +
			"would refuse is an estimate, and called so.\n\n" +
			"With -w it goes on until the plan is done (exit 0), a gate has tripped (exit 7) or something else was done with the\n" +
			"rule (exit 5); without a plan until Ctrl-C. With --revision it ends with exit 5 when anybody but the plan itself has\n" +
			"changed the rule after that revision.\n\nRULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl rollout status public-api/login\n  rulectl rollout status public-api/login -w --timeout 2h",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if follow {
				return a.watchRollout(ctx, args[0], revision)
			}
			return a.rolloutStatus(ctx, args[0], revision)
		}),
	}
	status.Flags().BoolVarP(&follow, "watch", "w", false, "go on, and show what changes; --timeout bounds it where it is given")
	status.Flags().Int64Var(&revision, "revision", 0, "the revision you have looked at: exit 5 when it was overtaken")
	a.domainFlag(status, "domain of the rule")
	return group(&cobra.Command{Use: "rollout", Short: "Look at promotions", GroupID: groupLook}, status)
}

func (a *app) rolloutStatus(ctx context.Context, rule string, revision int64) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.GetRolloutResponse, error) {
		return client.GetRollout(ctx, &adminpb.GetRolloutRequest{Domain: domain, Rule: name})
	})
	if err != nil {
		return err
	}
	r := resp.GetRollout()
	if a.structured() {
		return firstOf(a.printData(newRolloutItem(r)), overtaken(r, revision))
	}
	_, err = fmt.Fprint(a.io.Out, rolloutText(r, time.Now()))
	return firstOf(err, overtaken(r, revision))
}

// overtaken is a conflict when somebody else than the plan has changed the rule after the revision; 0 is none.
func overtaken(r *adminpb.Rollout, revision int64) error {
	is := r.GetRule().GetRevision()
	ours := r.GetPlan() != nil && r.GetPlan().GetBegun() <= revision
	if revision == 0 || is <= revision || ours {
		return nil
	}
	return fmt.Errorf("%w: revision %d was overtaken by revision %d: %s/%s is %s", rules.ErrConflict, revision, is,
		r.GetRule().GetDomain(), r.GetRule().GetName(), r.GetRule().GetState())
}

// rolloutWatch is one watch, over all its streams.
type rolloutWatch struct {
	app      *app
	revision int64
	begun    int64  // the plan that is watched; 0: none
	last     string // what was shown, but for what moves all the time
	lines    int    // of what was shown, to be redrawn on a terminal
}

// errWatched ends a watch that has seen the end.
var errWatched = errors.New("the plan is done")

// watchRollout shows a rollout until its end. A stream that breaks, or that has become old, is opened again.
func (a *app) watchRollout(ctx context.Context, rule string, revision int64) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	client, closeConn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConn()
	run, cancel := ctx, context.CancelFunc(func() {})
	if a.flags.Changed("timeout") {
		run, cancel = context.WithTimeout(ctx, a.timeout)
	}
	defer cancel()
	w := &rolloutWatch{app: a, revision: revision}
	for {
		err := w.stream(run, client, domain, name)
		switch {
		case errors.Is(err, errWatched):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case run.Err() != nil:
			a.complain("%s/%s has not come to its end within %s", domain, name, a.timeout)
			return explained{exitFailed}
		case w.last == "" || !errors.Is(err, rules.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		select {
		case <-run.Done():
		case <-time.After(retryAfter):
		}
	}
}

func (w *rolloutWatch) stream(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.WatchRollout(ctx, &adminpb.WatchRolloutRequest{Domain: domain, Rule: name})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return rules.ErrUnavailable
		}
		if err != nil {
			return err
		}
		if err := firstOf(w.show(resp.GetRollout()), w.end(ctx, client, resp.GetRollout())); err != nil {
			return err
		}
	}
}

// show prints it: on a terminal in place of what was there, elsewhere when more than counts has changed.
func (w *rolloutWatch) show(r *adminpb.Rollout) error {
	says := fmt.Sprint(r.GetStanding(), r.GetRule().GetState(), r.GetAcked(), r.GetNodes(), r.GetPlan().GetStep())
	again := says == w.last
	w.last = says
	if w.app.structured() {
		if again {
			return nil
		}
		return w.app.printLine(w.app.io.Out, newRolloutItem(r))
	}
	text := rolloutText(r, time.Now())
	switch {
	case terminal(w.app.io.Out):
		if w.lines > 0 {
			fmt.Fprintf(raw(w.app.io.Out), "\x1b[%dA\x1b[J", w.lines)
		}
		w.lines = strings.Count(text, "\n")
	case again:
		return nil
	}
	_, err := fmt.Fprint(w.app.io.Out, text)
	return err
}

// end says whether it is over, and how.
func (w *rolloutWatch) end(ctx context.Context, client adminpb.AdminServiceClient, r *adminpb.Rollout) error {
	if err := overtaken(r, w.revision); err != nil {
		return err
	}
	plan := r.GetPlan()
	switch {
	case r.GetStanding() == standingDone:
		return errWatched
	case r.GetStanding() == standingTripped:
		w.app.advise("to go on: rulectl resume "+ruleID(r), "to undo: rulectl rollback "+ruleID(r))
		return explained{exitGuarded}
	case w.begun != 0 && plan.GetBegun() != w.begun:
		return w.vanished(ctx, client, r)
	case plan != nil:
		w.begun = plan.GetBegun()
	}
	return nil
}

// vanished is the end of a plan that is not there any more.
func (w *rolloutWatch) vanished(ctx context.Context, client adminpb.AdminServiceClient, r *adminpb.Rollout) error {
	history, err := client.History(ctx, &adminpb.HistoryRequest{Domain: r.GetRule().GetDomain(), Rule: r.GetRule().GetName()})
	if err != nil {
		return err
	}
	last := history.GetEntries()[0]
	w.app.complain("the plan has ended before its last step: %s by %s%s", last.GetAction(), actorText(last.GetActor(), last.GetVerified()), quoted(last.GetMessage()))
	if last.GetAction() == "rollback" && strings.HasPrefix(last.GetActor(), "plan of ") {
		return explained{exitGuarded}
	}
	return explained{exitConflict}
}

func ruleID(r *adminpb.Rollout) string { return r.GetRule().GetDomain() + "/" + r.GetRule().GetName() }

// The standings of a plan that end a watch.
const (
	standingDone    = "done"
	standingTripped = "tripped"
)

// versionsByAge are the counts, the newest version last.
func versionsByAge(r *adminpb.Rollout) []*adminpb.VersionCounts {
	return slices.SortedFunc(slices.Values(r.GetVersions()), func(a, b *adminpb.VersionCounts) int { return int(a.GetVersion() - b.GetVersion()) })
}
