package api_test

import (
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
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
)

// key is the key of a version of a rule with the values, and its label, as a sidecar makes them.
func (c counting) key(t *testing.T, domain, rule string, version int64, values ...string) (tally.KeyID, string) {
	t.Helper()
	domains, err := c.ledger.Domains(t.Context(), domain)
	if err != nil {
		t.Fatal(err)
	}
	history, err := c.ledger.History(t.Context(), domain, rule)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range history {
		for _, v := range []*rules.Version{e.Rule.Stable, e.Rule.Candidate} {
			if v == nil || v.Number != version {
				continue
			}
			key, err := rules.KeyOfValues(&v.Spec, values)
			if err != nil {
				t.Fatal(err)
			}
			return tally.KeyOf(domains[0].Secret, &v.Spec, key), tally.Label(domains[0].Secret, &v.Spec, key)
		}
	}
	t.Fatalf("%s/%s has no v%d", domain, rule, version)
	return tally.KeyID{}, ""
}

// hit adds a key to what a version went against.
func (c counting) hit(t *testing.T, v tally.VersionTally, rule, value string, refused, would int64) tally.VersionTally {
	t.Helper()
	id, label := c.key(t, v.Domain, rule, v.Version, value)
	v.Keys = append(v.Keys, tally.KeyCount{Key: id, Label: label, Refused: refused, Would: would})
	v.Distinct.Add(id)
	return v
}

// crowd hits so many other keys once each.
func (c counting) crowd(t *testing.T, v tally.VersionTally, rule string, n int) tally.VersionTally {
	t.Helper()
	for i := range n {
		v = c.hit(t, v, rule, fmt.Sprintf("198.51.%d.%d", 100+i/256, i%256), 1, 0)
	}
	return v
}

func TestTopShowsTheKeysThatWereHitMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		canary(t, s, "a")
		until("12:34:56")
		one := c.hit(t, c.hit(t, c.version(t, "a", "x", 1, map[tally.Cell]int64{refused: 8}), "x", "192.0.2.1", 6, 0), "x", "192.0.3.1", 2, 0)
		two := c.hit(t, c.version(t, "a", "x", 2, map[tally.Cell]int64{newly: 3, newlyShared: 2}), "x", "192.0.2.1", 0, 5)
		c.save(t, "n1", "12:18:50", window(one)) // before
		c.save(t, "n1", "12:19:00", window(one, two))
		c.save(t, "n2", "12:34:40", window(one))
		id, _ := c.key(t, "a", "x", 1, "192.0.2.1")
		resp, err := s.Top(as(t, access.Viewer, "a"), &adminpb.TopRequest{Domain: "a", Rule: "x", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := &adminpb.TopResponse{
			From: timestamppb.New(at("12:19:00")), To: timestamppb.New(at("12:34:56")),
			Versions: []*adminpb.VersionKeys{{
				Version: 2, Role: "candidate", Distinct: 1, WouldRefuse: 5, WouldRefuseShared: 2, JudgedShared: 2,
				Keys: []*adminpb.TopKey{{Label: "192.0.2.*", Id: id.String(), WouldRefuse: 5, Share: 1, FirstSeen: timestamppb.New(at("12:19:00")), LastSeen: timestamppb.New(at("12:19:00"))}},
			}, {
				Version: 1, Role: "stable", Distinct: 2, Refused: 16,
				Keys: []*adminpb.TopKey{{Label: "192.0.2.*", Id: id.String(), Refused: 12, Share: 0.75, FirstSeen: timestamppb.New(at("12:19:00")), LastSeen: timestamppb.New(at("12:34:00"))}},
			}},
		}
		if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}

		// More keys than a list holds: the counts may be of others, and how many there are is an estimate.
		for _, start := range []string{"12:33:00", "12:33:10"} {
			c.save(t, "n1", start, window(c.crowd(t, c.version(t, "a", "x", 1, map[tally.Cell]int64{refused: 100}), "x", 100)))
		}
		many := c.version(t, "a", "x", 1, map[tally.Cell]int64{refused: 100})
		for i := range 100 {
			many = c.hit(t, many, "x", fmt.Sprintf("203.0.113.%d", i), 3, 0)
		}
		c.save(t, "n1", "12:33:20", window(many))
		resp, err = s.Top(anybody(t), &adminpb.TopRequest{Domain: "a", Rule: "x", Limit: 1000})
		if err != nil || len(resp.GetVersions()[1].GetKeys()) != tally.MaxTopKeys {
			t.Fatalf("got %v, %v", resp, err)
		}
		if n := resp.GetVersions()[1].GetDistinct(); n < 196 || n > 208 {
			t.Errorf("about %d keys, want 202", n)
		}

		for _, req := range []*adminpb.TopRequest{
			{Rule: "x", Since: durationpb.New(0)}, {Rule: "x", Since: durationpb.New(-time.Second)}, {Rule: "x", Since: durationpb.New(9 * 24 * time.Hour)}, {Rule: "A/B"},
		} {
			req.Domain = "a"
			if _, err := s.Top(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
				t.Errorf("%v: %v, want ErrInvalid", req, err)
			}
		}
		if _, err := s.Top(anybody(t), &adminpb.TopRequest{Domain: "a", Rule: "none"}); !errors.Is(err, rules.ErrNotFound) {
			t.Errorf("of a rule that never was: %v", err)
		}
	})
}

// customer is a world in which one customer was refused: by v1, which counted by address, and by v2, which does by API key.
func customer(t *testing.T) (*api.Server, counting) {
	t.Helper()
	s, c := setupCounts(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	promote(t, s, "a", "x", 10_000)
	by := file("f", "a", "x", "5/s")
	by.Content = []byte(strings.ReplaceAll(string(by.Content), "ip", "header:x-api-key"))
	apply(t, s, by)
	promote(t, s, "a", "x", 10_000)
	until("12:00:05")
	ipID, ipLabel := c.key(t, "a", "x", 1, "192.0.2.1")
	keyID, keyLabel := c.key(t, "a", "x", 2, "s3cret")
	w := window(
		c.hit(t, c.version(t, "a", "x", 1, map[tally.Cell]int64{refused: 4}), "x", "192.0.2.1", 4, 0),
		c.hit(t, c.hit(t, c.version(t, "a", "x", 2, map[tally.Cell]int64{refused: 9}), "x", "another", 7, 0), "x", "s3cret", 2, 0))
	of := tally.Refusal{Domain: "a", UID: c.uid(t, "a", "x"), Outcome: tally.Refused, Path: "/v1"}
	first, second, shadow := of, of, of
	first.Time, first.Version, first.Key, first.Label, first.Reference = at("11:59:51"), 1, ipID, ipLabel, "REFONE"
	second.Time, second.Version, second.Key, second.Label, second.Reference, second.Limit = at("11:59:53"), 2, keyID, keyLabel, "REFTWO", "burst"
	shadow.Time, shadow.Version, shadow.Key, shadow.Label, shadow.Outcome = at("11:59:52"), 2, keyID, keyLabel, tally.WouldRefuse
	w.Refusals = []tally.Refusal{first, second, shadow}
	c.save(t, "n1", "11:59:50", w)
	return s, c
}

func TestLookupTellsWhatHappenedToACustomer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := customer(t)
		id, label := c.key(t, "a", "x", 2, "s3cret")
		resp, err := s.Lookup(as(t, access.Viewer, "a"), &adminpb.LookupRequest{Domain: "a", Rule: "x", Key: []string{"s3cret"}})
		if err != nil {
			t.Fatal(err)
		}
		refusal := func(clock, limit, outcome, reference string) *adminpb.Refusal {
			return &adminpb.Refusal{
				Time: timestamppb.New(at(clock)), Domain: "a", Rule: "x", Version: 2, Limit: limit, Outcome: outcome,
				Label: label, KeyId: id.String(), Path: "/v1", Reference: reference, Node: "n1",
			}
		}
		want := &adminpb.LookupResponse{
			From: timestamppb.New(at("12:00:00").Add(-24 * time.Hour)), To: timestamppb.New(at("12:00:05")),
			Standings: []*adminpb.KeyStanding{{Rule: "x", Version: 2, Role: "stable", Rank: 2, Refused: 2, Label: label}},
			Refusals:  []*adminpb.Refusal{refusal("11:59:53", "burst", "refused", "REFTWO"), refusal("11:59:52", "", "would_refuse", "")},
			Unknown: []string{
				"calls that passed are not counted by key, and only a sample of the last refusals is kept",
				"versions of the rule with another key are not in this: ip",
			},
		}
		if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}

		// Of an earlier version, and by all rules of the domain.
		resp, err = s.Lookup(anybody(t), &adminpb.LookupRequest{Domain: "a", Rule: "x", Key: []string{"192.0.2.1"}, Limit: 1})
		if err != nil || len(resp.GetStandings()) != 2 || resp.GetStandings()[0].GetRank() != 1 || resp.GetStandings()[0].GetRole() != "earlier" ||
			resp.GetStandings()[1].GetRank() != 0 || len(resp.GetRefusals()) != 1 || resp.GetRefusals()[0].GetReference() != "REFONE" {
			t.Errorf("by address: %v, %v", resp, err)
		}
		resp, err = s.Lookup(anybody(t), &adminpb.LookupRequest{Domain: "a", Key: []string{"s3cret"}})
		if err != nil || len(resp.GetStandings()) != 1 || resp.GetStandings()[0].GetRank() != 2 || len(resp.GetRefusals()) != 2 {
			t.Errorf("by the domain: %v, %v", resp, err)
		}
		resp, err = s.Lookup(anybody(t), &adminpb.LookupRequest{Domain: "a", Rule: "x", Key: []string{"nobody"}})
		if err != nil || len(resp.GetStandings()) != 1 || resp.GetStandings()[0].GetRank() != 0 || resp.GetStandings()[0].GetOver() != 0 || len(resp.GetRefusals()) != 0 {
			t.Errorf("who was not refused: %v, %v", resp, err)
		}
	})
}

// A list that is full does not say that a key was not refused.
func TestLookupSaysWhatAFullListDoesNotTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		apply(t, s, file("f", "a", "x", "1/s"))
		until("12:00:05")
		c.save(t, "n1", "11:59:50", window(c.crowd(t, c.version(t, "a", "x", 1, map[tally.Cell]int64{refused: 200}), "x", tally.MaxTopKeys)))
		for _, rule := range []string{"x", ""} {
			resp, err := s.Lookup(anybody(t), &adminpb.LookupRequest{Domain: "a", Rule: rule, Key: []string{"192.0.2.9"}})
			want := "x v1: not among the 128 keys that were hit most; a key that was refused a few times, 1 at most, may be missing"
			if err != nil || len(resp.GetStandings()) != 1 || resp.GetStandings()[0].GetOver() != 1 || resp.GetUnknown()[1] != want {
				t.Errorf("rule %q: %v, %v", rule, resp, err)
			}
		}
	})
}

func TestLookupByReference(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := customer(t)
		for name, req := range map[string]*adminpb.LookupRequest{
			"of the rule": {Domain: "a", Rule: "x", Reference: "REFTWO"}, "of the domain": {Domain: "a", Reference: " reftwo\n"}, "of all": {Reference: "REFTWO"},
		} {
			resp, err := s.Lookup(as(t, access.Viewer, "a"), req)
			if err != nil || len(resp.GetRefusals()) != 1 || resp.GetRefusals()[0].GetLimit() != "burst" || resp.GetRefusals()[0].GetRule() != "x" || len(resp.GetUnknown()) > 0 {
				t.Errorf("%s: %v, %v", name, resp, err)
			}
		}
		resp, err := s.Lookup(as(t, access.Viewer, "b", "c"), &adminpb.LookupRequest{Reference: "REFTWO"})
		if err != nil || len(resp.GetRefusals()) > 0 || len(resp.GetUnknown()) != 1 {
			t.Errorf("by who may see other domains: %v, %v", resp, err)
		}
		if resp, err = s.Lookup(anybody(t), &adminpb.LookupRequest{Reference: "REFTWO", Since: durationpb.New(6 * time.Second)}); err != nil || len(resp.GetRefusals()) != 1 {
			t.Errorf("of the last seconds, in whole minutes: %v, %v", resp, err)
		}
	})
}

// What a customer is known by is in no error.
func TestLookupRefusesWithoutTheValues(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	for text, c := range map[string]struct {
		kind error
		req  *adminpb.LookupRequest
	}{
		"is not an address":             {rules.ErrInvalid, &adminpb.LookupRequest{Domain: "a", Rule: "x", Key: []string{"s3cret"}}},
		"2 values for a key of 1 parts": {rules.ErrInvalid, &adminpb.LookupRequest{Domain: "a", Rule: "x", Key: []string{"s3cret", "s3cret"}}},
		"0 values for a key of 1 parts": {rules.ErrInvalid, &adminpb.LookupRequest{Domain: "a", Rule: "x"}},
		"key of 1 such values":          {rules.ErrInvalid, &adminpb.LookupRequest{Domain: "a", Key: []string{"s3cret"}}},
		"or a reference":                {rules.ErrInvalid, &adminpb.LookupRequest{Domain: "a"}},
		"exclude each other":            {rules.ErrInvalid, &adminpb.LookupRequest{Domain: "a", Key: []string{"s3cret"}, Reference: "s3cret"}},
		"form that callers are told":    {rules.ErrInvalid, &adminpb.LookupRequest{Reference: strings.Repeat("s3cret", 20)}},
		"the reference is not":          {rules.ErrInvalid, &adminpb.LookupRequest{Reference: "s3cret\x00x"}},
		"domain: ":                      {rules.ErrInvalid, &adminpb.LookupRequest{Key: []string{"s3cret"}}},
		"rule a/none":                   {rules.ErrNotFound, &adminpb.LookupRequest{Domain: "a", Rule: "none", Key: []string{"s3cret"}}},
		"domain none":                   {rules.ErrNotFound, &adminpb.LookupRequest{Domain: "none", Key: []string{"s3cret"}}},
		"at most the 8 days":            {rules.ErrInvalid, &adminpb.LookupRequest{Reference: "X", Since: durationpb.New(200 * time.Hour)}},
	} {
		_, err := s.Lookup(anybody(t), c.req)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), text) || strings.Contains(strings.ToLower(err.Error()), "s3cret") {
			t.Errorf("got %v, want %v with %q and without the value", err, c.kind, text)
		}
	}
}
