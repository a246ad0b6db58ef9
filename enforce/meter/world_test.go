package meter_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

var secret = [16]byte{7}

func specOf(t testing.TB, parts ...string) *rules.Spec {
	t.Helper()
	s := &rules.Spec{}
	for _, text := range parts {
		k, err := rules.ParseKeySource(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Key = append(s.Key, k)
	}
	return s
}

// newRule is a rule by address, with one limit.
func newRule(t testing.TB, name string, number int64) *rules.Rule {
	t.Helper()
	v := &rules.Version{Number: number, Spec: *limited(specOf(t, "ip"))}
	return &rules.Rule{Domain: "d", Name: name, UID: "uid-" + name, Stable: v}
}

func limited(s *rules.Spec) *rules.Spec {
	s.Limits = []rules.Limit{{Name: "day"}}
	return s
}

func indexOf(list ...*rules.Rule) *rules.Index {
	return rules.NewIndex(rules.Domain{Name: "d", Secret: secret}, list)
}

func requestOf(n int) *rules.Request {
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], 10<<24|uint32(n))
	return &rules.Request{Domain: "d", Method: "GET", Path: "/v1/x", IP: netip.AddrFrom4(address), Hits: 1}
}

// outcome is of the rule's only version.
func outcome(r *rules.Rule, o tally.Outcome, req *rules.Request) enforce.VersionOutcome {
	v := r.Stable
	if v == nil {
		v = r.Candidate
	}
	key := rules.KeyOf(&v.Spec, req)
	out := enforce.VersionOutcome{
		Rule: r, Version: v, Request: req, Key: tally.KeyOf(secret, &v.Spec, key), Values: key,
		Outcome: o, WhatIf: o.WhatIf(), Limit: tally.NoLimit,
	}
	if o == tally.Refused || o == tally.WouldRefuse {
		out.Limit = 0
	}
	return out
}

func refusal(r *rules.Rule, key int) enforce.Decision {
	return enforce.Decision{Reference: "ref", Outcomes: []enforce.VersionOutcome{outcome(r, tally.Refused, requestOf(key))}}
}
