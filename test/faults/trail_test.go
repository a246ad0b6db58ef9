package faults_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// trail is the audit trail as far as it was read and found good. It goes on where it ended: were an earlier record
// another one now, the seals of those after it would not fit.
type trail struct {
	t        *testing.T
	chain    rollout.Chain
	revision int64              // the last
	last     map[string]*change // by rule
	history  map[string][]*change
}

func newTrail(t *testing.T) *trail {
	return &trail{t: t, last: map[string]*change{}, history: map[string][]*change{}}
}

// follow reads what is new, and checks it against what was asked for and acknowledged.
func (r *trail) follow(p *plane, publishers []*publisher) {
	r.t.Helper()
	asked := map[string]*change{}
	for _, u := range publishers {
		for _, c := range u.changes {
			asked[c.tag] = c
		}
	}
	for _, record := range r.read(p) {
		if err := r.chain.Add(&record); err != nil {
			r.t.Fatalf("the audit trail is broken: %v", err)
		}
		c := asked[record.Message]
		switch {
		case record.Refused != "" || record.Revision == 0:
			r.t.Fatalf("record %d is of no change: %+v", record.Number, record)
		case record.Revision != r.revision+1:
			r.t.Fatalf("revision %d follows revision %d", record.Revision, r.revision)
		case c == nil || c.revision != 0 || c.acked != 0 && c.acked != record.Revision:
			r.t.Fatalf("revision %d is %q, which was asked for as %+v", record.Revision, record.Message, c)
		}
		r.revision, c.revision = record.Revision, record.Revision
		for _, rule := range c.rules {
			r.last[rule] = c
			r.history[rule] = append(r.history[rule], c)
		}
	}
	for _, c := range asked {
		if c.acked != 0 && c.revision == 0 {
			r.t.Errorf("%q was acknowledged as revision %d, and is not in the audit trail", c.tag, c.acked)
		}
	}
	r.checkRules(p)
}

// read returns the records after those that are known, oldest first.
func (r *trail) read(p *plane) []rollout.Record {
	r.t.Helper()
	var list []rollout.Record
	before := int64(0)
	for {
		page, err := p.admin.ListAudit(r.t.Context(), &adminpb.ListAuditRequest{Before: before, Limit: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, m := range page.GetRecords() {
			if m.GetNumber() <= r.chain.Records {
				slices.Reverse(list)
				return list
			}
			list = append(list, recordOf(m))
			before = m.GetNumber()
		}
		if len(page.GetRecords()) == 0 || before == 1 {
			slices.Reverse(list)
			return list
		}
	}
}

func recordOf(m *adminpb.Record) rollout.Record {
	return rollout.Record{
		Number: m.GetNumber(), Revision: m.GetRevision(), Refused: m.GetRefused(), Domain: m.GetDomain(), Time: m.GetTime().AsTime(),
		Actor: rollout.Actor{Name: m.GetActor(), Verified: m.GetVerified()}, Action: rollout.Action(m.GetAction()), Target: m.GetTarget(),
		Message: m.GetMessage(), Detail: m.GetDetail(), Before: json.RawMessage(m.GetBefore()), After: json.RawMessage(m.GetAfter()),
		Seal: m.GetSeal(),
	}
}

// checkRules compares the rules as they stand with the last change of each.
func (r *trail) checkRules(p *plane) {
	r.t.Helper()
	answer, err := p.admin.ListRules(r.t.Context(), &adminpb.ListRulesRequest{Domain: domain})
	if err != nil {
		r.t.Fatal(err)
	}
	if got := len(answer.GetRules()); got != len(r.last) {
		r.t.Errorf("there are %d rules, and %d by the audit trail", got, len(r.last))
	}
	for _, m := range answer.GetRules() {
		c := r.last[m.GetName()]
		if c == nil || m.GetRevision() != c.revision {
			r.t.Errorf("%s is of revision %d; by the audit trail it is %+v", m.GetName(), m.GetRevision(), c)
			continue
		}
		if want := c.is(r.state(m.GetStable(), m.GetCandidate(), m.GetPercent())); want != "" {
			r.t.Errorf("%s has %s, want %s as of %q", m.GetName(), m.GetState(), want, c.tag)
		}
	}
	head, err := p.admin.WhoAmI(r.t.Context(), &adminpb.WhoAmIRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	if head.GetRevision() != r.revision {
		r.t.Errorf("the head is revision %d; the audit trail ends with %d", head.GetRevision(), r.revision)
	}
}

// whole reads everything once more from the first record on, and the history of every rule.
func (r *trail) whole(p *plane) {
	r.t.Helper()
	known := r.chain
	r.chain = rollout.Chain{}
	for _, record := range r.read(p) {
		if err := r.chain.Add(&record); err != nil {
			r.t.Fatalf("the audit trail is broken: %v", err)
		}
	}
	if r.chain != known {
		r.t.Errorf("the audit trail ends with %+v, and ended with %+v", r.chain, known)
	}
	end, err := p.admin.ListAudit(r.t.Context(), &adminpb.ListAuditRequest{Limit: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	if end.GetHeadNumber() != known.Records || end.GetHeadSeal() != known.Seal {
		r.t.Errorf("the head says record %d with seal %s, not %+v", end.GetHeadNumber(), end.GetHeadSeal(), known)
	}
	for rule, want := range r.history {
		answer, err := p.admin.History(r.t.Context(), &adminpb.HistoryRequest{Domain: domain, Rule: rule})
		if err != nil {
			r.t.Fatal(err)
		}
		got := answer.GetEntries()
		slices.Reverse(got)
		if len(got) != len(want) {
			r.t.Errorf("%s has %d states, and %d changes", rule, len(got), len(want))
			continue
		}
		for i, e := range got {
			if c := want[i]; e.GetRevision() != c.revision || e.GetMessage() != c.tag || c.is(r.state(e.GetStable(), e.GetCandidate(), e.GetPercent())) != "" {
				r.t.Errorf("%s at revision %d is %s by %q; want revision %d by %q", rule, e.GetRevision(), e.GetState(), e.GetMessage(), c.revision, c.tag)
			}
		}
	}
}

func (r *trail) state(stable, candidate *adminpb.Version, percent uint32) *state {
	r.t.Helper()
	limit := func(m *adminpb.Version) int64 {
		if m == nil {
			return 0
		}
		spec, err := rules.DecodeSpec([]byte(m.GetSpec()))
		if err != nil {
			r.t.Fatal(err)
		}
		return limitOf(&rules.Version{Spec: spec})
	}
	return &state{stable: limit(stable), candidate: limit(candidate), percent: percent}
}

// limitAt is the stable limit of the rule as of a revision; 0 where it was not there.
func (r *trail) limitAt(rule string, revision int64) int64 {
	var is int64
	for _, c := range r.history[rule] {
		if c.revision > revision {
			break
		}
		is = c.limit
	}
	return is
}
