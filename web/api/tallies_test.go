package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/tallytest"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
)

// counting is a store of counts that knows the rules of a ledger.
type counting struct {
	*tallytest.Memory
	ledger *rollouttest.Memory
}

func (c counting) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	return c.ledger.Births(ctx, uids)
}

func setupCounts(t *testing.T) (*api.Server, counting) {
	t.Helper()
	c := counting{tallytest.New(), rollouttest.New()}
	return api.NewServer(rollout.NewService(c.ledger, time.Now), api.Options{Program: "controlplane test", Alerts: c.ledger, Tallies: c}), c
}

// at is a time of the first of January 2000, in UTC; the day on which synctest's clock begins.
func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2000-01-01 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

// until has the clock go on until then.
func until(clock string) { <-time.After(time.Until(at(clock))) }

// save stores what a node counted in a window; its epochs have one window each, and it says goodbye in each.
func (c counting) save(t *testing.T, node, start string, w tally.Window) {
	t.Helper()
	w.Number, w.Start, w.End, w.Last = 1, at(start), at(start).Add(tally.Span), true
	for i := range w.Refusals {
		w.Refusals[i].Node = node
	}
	source := tally.SourceWindows{Source: tally.Source{Node: node, Epoch: start}, Windows: []tally.Window{w}}
	if err := c.SaveWindows(t.Context(), []tally.SourceWindows{source}); err != nil {
		t.Fatal(err)
	}
}

// version is what was counted of a version: of cells, so often.
func (c counting) version(t *testing.T, domain, rule string, number int64, counts map[tally.Cell]int64) tally.VersionTally {
	t.Helper()
	v := tally.VersionTally{Domain: domain, UID: c.uid(t, domain, rule), Version: number}
	for cell, n := range counts {
		v.Counts[cell] = n
	}
	return v
}

func (c counting) uid(t *testing.T, domain, rule string) string {
	t.Helper()
	history, err := c.ledger.History(t.Context(), domain, rule)
	if err != nil {
		t.Fatal(err)
	}
	return history[0].Rule.UID
}

func window(versions ...tally.VersionTally) tally.Window { return tally.Window{Versions: versions} }

// canary gives a domain a rule whose v2 is tried at 25 % beside v1.
func canary(t *testing.T, s *api.Server, domain string) {
	t.Helper()
	apply(t, s, file("f", domain, "x", "1/s"))
	promote(t, s, domain, "x", 10_000)
	apply(t, s, file("f", domain, "x", "5/s"))
	promote(t, s, domain, "x", 2500)
}

var (
	refused      = tally.BindingCell(tally.Refused, 0)
	wouldAllow   = tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false)
	allowShared  = tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, true)
	noLonger     = tally.WhatIfCell(tally.WouldAllow, tally.BesideRefused, false)
	newly        = tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false)
	newlyShared  = tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, true)
	alone        = tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false)
	noneKnows    = tally.WhatIfCell(tally.Unknown, tally.BesideAllowed, false)
	failedClosed = tally.BindingCell(tally.FailedClosed, 0)
)

func TestStatsAreTheFiguresOfEachVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		canary(t, s, "a")
		until("12:34:56")
		c.save(t, "n1", "11:33:50", window(c.version(t, "a", "x", 1, map[tally.Cell]int64{tally.CellAllowed: 999}))) // before
		c.save(t, "n1", "12:00:00", window(
			c.version(t, "a", "x", 1, map[tally.Cell]int64{tally.CellAllowed: 80, refused: 15, tally.CellRefused: 2, failedClosed: 3}),
			c.version(t, "a", "x", 2, map[tally.Cell]int64{wouldAllow: 77, allowShared: 3, noLonger: 5, newly: 6, newlyShared: 4, noneKnows: 5})))
		c.save(t, "n2", "12:00:10", window(c.version(t, "a", "x", 1, map[tally.Cell]int64{tally.CellAllowed: 10})))
		resp, err := s.Stats(as(t, access.Viewer, "a"), &adminpb.StatsRequest{Domain: "a", Rule: "x", Step: durationpb.New(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		one := &adminpb.VersionFigures{Matched: 110, Decided: 110, Allowed: 90, Refused: 17, FailedClosed: 3}
		two := &adminpb.VersionFigures{
			Matched: 100, Judged: 95, WouldAllow: 85, WouldRefuse: 10, WouldRefuseShared: 4, Compared: 95, NewlyRefused: 10, NoLongerRefused: 5, Unknown: 5, JudgedShared: 7,
		}
		interval := func(i tally.Interval) *adminpb.Interval {
			return &adminpb.Interval{Estimate: i.Estimate, Low: i.Low, High: i.High}
		}
		want := &adminpb.StatsResponse{
			From: timestamppb.New(at("11:34:00")), To: timestamppb.New(at("12:34:56")), Step: durationpb.New(time.Minute),
			Versions: []*adminpb.VersionStats{{
				Rule: "x", Version: 1, Role: "stable", Total: one, Refused: interval(tally.Ratio(20, 110, tally.Z95)),
				Limits: []*adminpb.LimitRefusals{{Number: 0, Refused: 2}, {Number: 1, Refused: 15}},
				Points: []*adminpb.VersionPoint{{Start: timestamppb.New(at("12:00:00")), Figures: one}},
			}, {
				Rule: "x", Version: 2, Role: "candidate", Total: two, WouldRefuse: interval(tally.Ratio(10, 95, tally.Z95)),
				WouldRefuseAlone: interval(tally.Ratio(6, 95, tally.Z95)), Difference: interval(tally.Difference(10, 5, 95, tally.Z95)),
				Points: []*adminpb.VersionPoint{{Start: timestamppb.New(at("12:00:00")), Figures: two}},
			}},
		}
		if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}

		// In steps of ten seconds the two windows are two points.
		resp, err = s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a", Rule: "x"})
		if err != nil || resp.GetStep().AsDuration() != tally.Span || len(resp.GetVersions()[0].GetPoints()) != 2 {
			t.Errorf("by default: %v, %v", resp, err)
		}
	})
}

func TestStatsOfADomainHaveItsRulesAndRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		canary(t, s, "a")
		apply(t, s, file("f", "a", "b", "1/s"), file("g", "other", "x", "1/s"))
		until("12:00:05")
		w := window(
			c.version(t, "a", "x", 1, map[tally.Cell]int64{tally.CellAllowed: 8, refused: 2}), c.version(t, "a", "b", 1, map[tally.Cell]int64{alone: 3}),
			c.version(t, "other", "x", 1, map[tally.Cell]int64{alone: 7}))
		w.Domains = []tally.DomainTally{{Domain: "a", Counts: tally.DomainCounts{8, 2, 5, 6, 1, 3}}, {Domain: "other", Counts: tally.DomainCounts{100}}}
		c.save(t, "n1", "11:59:40", w)
		c.save(t, "n1", "11:59:50", w)
		resp, err := s.Stats(as(t, access.Viewer, "a"), &adminpb.StatsRequest{Domain: "a"})
		if err != nil {
			t.Fatal(err)
		}
		figures := func(n int64) *adminpb.DomainFigures {
			return &adminpb.DomainFigures{Allowed: 8 * n, Refused: 2 * n, Exempt: 5 * n, Unmatched: 6 * n, Malformed: n, WouldRefuse: 3 * n}
		}
		want := &adminpb.DomainStats{Total: figures(2), Points: []*adminpb.DomainPoint{{Start: timestamppb.New(at("11:58:00")), Figures: figures(2)}}}
		if diff := cmp.Diff(want, resp.GetRequests(), protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		var got []string
		for _, v := range resp.GetVersions() {
			got = append(got, fmt.Sprintf("%s v%d %s %d %d", v.GetRule(), v.GetVersion(), v.GetRole(), v.GetTotal().GetMatched(), v.GetTotal().GetWouldRefuse()))
		}
		if diff := cmp.Diff([]string{"b v1 candidate 6 6", "x v1 stable 20 0"}, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if _, err := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "none"}); !errors.Is(err, rules.ErrNotFound) {
			t.Errorf("of a domain that is not there: %v", err)
		}
	})
}

// A page of a table has some of the rules; the requests are those of the domain all the same.
func TestStatsOfADomainMayBeOfSomeOfItsRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		apply(t, s, file("f", "a", "x", "1/s"), file("f", "a", "y", "2/s"), file("f", "a", "z", "3/s"))
		until("12:00:05")
		w := window()
		for _, rule := range []string{"x", "y", "z"} {
			w.Versions = append(w.Versions, c.version(t, "a", rule, 1, map[tally.Cell]int64{alone: 3}))
		}
		w.Domains = []tally.DomainTally{{Domain: "a", Counts: tally.DomainCounts{tally.RequestsAllowed: 9}}}
		c.save(t, "n1", "11:59:40", w)
		resp, err := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a", Rules: []string{"z", "gone", "x", "z"}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range resp.GetVersions() {
			got = append(got, v.GetRule())
		}
		if diff := cmp.Diff([]string{"x", "z"}, got); diff != "" || resp.GetRequests().GetTotal().GetAllowed() != 9 {
			t.Errorf("%d requests, and of rules -want +got\n%s", resp.GetRequests().GetTotal().GetAllowed(), diff)
		}
		many := make([]string, 201)
		for _, req := range []*adminpb.StatsRequest{{Domain: "a", Rules: many}, {Domain: "a", Rule: "x", Rules: []string{"x"}}} {
			if _, err := s.Stats(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
				t.Errorf("%d rules beside %q: %v, want ErrInvalid", len(req.GetRules()), req.GetRule(), err)
			}
		}
	})
}

// A domain may have more versions than a reply: those that refused most are told.
func TestStatsLeaveOutWhatRefusedLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		var text strings.Builder
		text.WriteString("apiVersion: headgate/v1\nkind: RuleSet\ndomain: a\nrules:\n")
		for i := range 1003 {
			fmt.Fprintf(&text, "  - {name: r%04d, match: {path: /%d}, key: [ip], limit: 1/s}\n", i, i)
		}
		apply(t, s, &adminpb.File{Name: "f", Content: []byte(text.String())})
		list, err := c.ledger.Rules(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var w tally.Window
		for i := range list {
			v := tally.VersionTally{Domain: "a", UID: list[i].UID, Version: 1}
			v.Counts[alone] = int64(i) + 1
			w.Versions = append(w.Versions, v)
		}
		until("00:01:00")
		c.save(t, "n", "00:00:30", w)
		resp, err := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a"})
		if err != nil || len(resp.GetVersions()) != 1000 || resp.GetLeftOut() != 3 || resp.GetVersions()[0].GetRule() != "r0003" {
			t.Errorf("%d versions and %d left out, from %s, %v", len(resp.GetVersions()), resp.GetLeftOut(), resp.GetVersions()[0].GetRule(), err)
		}
	})
}

func TestStatsChooseTheirSteps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		s, _ := setupCounts(t)
		apply(t, s, file("f", "a", "x", "1/s"))
		until("12:34:56")
		for _, c := range []struct {
			since, least, want time.Duration
			domain             bool
		}{
			{since: time.Minute, want: 10 * time.Second},
			{since: time.Hour, want: 10 * time.Second},
			{since: 2 * time.Hour, want: 30 * time.Second},
			{since: time.Hour, least: 2 * time.Minute, want: 2 * time.Minute},
			{since: time.Hour, least: 3 * time.Minute, want: 5 * time.Minute},
			{since: time.Hour, domain: true, want: 2 * time.Minute},
			{since: 5 * time.Hour, want: time.Minute},
			{since: day, want: 5 * time.Minute},
			{since: 7 * day, want: 30 * time.Minute},
			{since: 30 * day, want: 2 * time.Hour},
			{since: 400 * day, want: day},
			{since: 9000 * day, want: day},
			{since: 400 * day, domain: true, want: 14 * day},
			{since: 9 * day, least: time.Minute, want: time.Hour}, // minutes are not kept so long
			{since: time.Hour, least: 1000 * day, want: 14 * day},
		} {
			req := &adminpb.StatsRequest{Domain: "a", Rule: "x", From: timestamppb.New(time.Now().Add(-c.since)), Step: durationpb.New(c.least)}
			if c.domain {
				req.Rule = ""
			}
			resp, err := s.Stats(anybody(t), req)
			if err != nil || resp.GetStep().AsDuration() != c.want || resp.GetFrom().AsTime() != resp.GetFrom().AsTime().Truncate(c.want) {
				t.Errorf("%+v: steps of %s from %s, %v", c, resp.GetStep().AsDuration(), resp.GetFrom().AsTime(), err)
			}
		}
		// An hour of last week, in whole minutes.
		from := time.Now().Add(-6 * day)
		resp, err := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a", Rule: "x", From: timestamppb.New(from), To: timestamppb.New(from.Add(time.Hour))})
		if err != nil || resp.GetStep().AsDuration() != time.Minute || resp.GetTo().AsTime().Sub(resp.GetFrom().AsTime()) != 61*time.Minute {
			t.Errorf("got %v, %v", resp, err)
		}
		for _, req := range []*adminpb.StatsRequest{
			{From: timestamppb.New(time.Now().Add(time.Second))},
			{To: timestamppb.New(time.Now().Add(-500 * day))},
			{From: timestamppb.Now(), To: timestamppb.Now()},
			{From: &timestamppb.Timestamp{Nanos: -1}},
			{Rule: "none at all"},
		} {
			req.Domain = "a"
			if _, err := s.Stats(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
				t.Errorf("%v: %v, want ErrInvalid", req, err)
			}
		}
		if _, err := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a", Rule: "none"}); !errors.Is(err, rules.ErrNotFound) {
			t.Errorf("of a rule that never was: %v", err)
		}
	})
}

// Counts that will never come are named, where they were of the domain.
func TestMissingCountsAreNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		apply(t, s, file("f", "a", "x", "1/s"), file("f", "b", "x", "1/s"))
		until("12:00:00")
		for _, node := range []string{"mine", "other", "forgotten"} {
			source := tally.SourceWindows{Source: tally.Source{Node: node, Epoch: "e"}, Windows: []tally.Window{{Number: 3, Start: at("11:00:00"), End: at("11:00:10")}}}
			if err := c.SaveWindows(t.Context(), []tally.SourceWindows{source}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.ledger.SaveNodes(t.Context(), []rollout.Node{{ID: "mine", Domain: "a", Seen: time.Now()}, {ID: "other", Domain: "b", Seen: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		for scoped, want := range map[bool]string{false: "forgotten mine ", true: " mine "} {
			ctx := as(t, access.Viewer)
			if scoped {
				ctx = as(t, access.Viewer, "a")
			}
			stats, err := s.Stats(ctx, &adminpb.StatsRequest{Domain: "a", Rule: "x"})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, m := range stats.GetMissing() {
				got += m.GetNode() + " "
			}
			if got != want || stats.GetMissing()[0].GetFrom().AsTime() != at("10:59:40") || stats.GetMissing()[0].GetTo().AsTime() != at("11:00:00") {
				t.Errorf("scoped %v: missing is %v, want %q", scoped, stats.GetMissing(), want)
			}
			top, err := s.Top(ctx, &adminpb.TopRequest{Domain: "a", Rule: "x", Since: durationpb.New(2 * time.Hour)})
			lookup, err2 := s.Lookup(ctx, &adminpb.LookupRequest{Domain: "a", Reference: "X"})
			if err != nil || err2 != nil || len(top.GetMissing()) != 2 || len(lookup.GetMissing()) != 2 {
				t.Errorf("top: %v, %v; lookup: %v, %v", top, err, lookup, err2)
			}
		}
		later, err := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a", From: timestamppb.New(at("11:10:00"))})
		if err != nil || len(later.GetMissing()) > 0 {
			t.Errorf("of a time in which nothing is missing: %v, %v", later.GetMissing(), err)
		}
	})
}

func TestWithoutCountsNothingIsTold(t *testing.T) {
	t.Parallel()
	s := api.NewServer(rollout.NewService(rollouttest.New(), time.Now), api.Options{})
	_, stats := s.Stats(anybody(t), &adminpb.StatsRequest{Domain: "a"})
	_, top := s.Top(anybody(t), &adminpb.TopRequest{Domain: "a", Rule: "x"})
	_, lookup := s.Lookup(anybody(t), &adminpb.LookupRequest{Reference: "X"})
	_, overview := s.Overview(anybody(t), &adminpb.OverviewRequest{})
	_, rates := s.KeyRates(anybody(t), &adminpb.KeyRatesRequest{Domain: "a", Rule: "x"})
	for _, err := range []error{stats, top, lookup, overview, rates} {
		if !errors.Is(err, rules.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	}
}
