package rules_test

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/rules"
)

func TestParsePercent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]rules.Percent{
		"25%": 2500, "25": 2500, "0.01%": 1, "0.1%": 10, "100%": rules.AllKeys, "0%": 0, "99.99%": 9999,
	} {
		if got, err := rules.ParsePercent(in); err != nil || got != want {
			t.Errorf("ParsePercent(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "%", "-1%", "101%", "100.01%", "1.234%", "0.25", "ten", "1.%2"} {
		if got, err := rules.ParsePercent(in); err == nil {
			t.Errorf("ParsePercent(%q) = %v, want an error", in, got)
		}
	}
}

// The vectors fix the cohorts for good: a change here would move callers between versions in every running rollout.
func TestCohortPositionGoldenVectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		uid  string
		salt uint64
		key  string
		want rules.Percent
	}{
		{"", 0, "", 856},
		{"9f86d081884c7d65", 1, "k1", 2882},
		{"9f86d081884c7d65", 1, "k2", 5980},
		{"9f86d081884c7d65", 2, "k1", 5180},
		{"another", math.MaxUint64, "\x00\xff", 6064},
	} {
		if got := rules.CohortPosition(v.uid, v.salt, []byte(v.key)); got != v.want {
			t.Errorf("CohortPosition(%q, %d, %q) = %d, want %d", v.uid, v.salt, v.key, got, v.want)
		}
	}
}

// Size, nesting and independence over 100,000 keys. The bounds are five standard deviations of a fair draw.
func TestCohortsAreNestedAndIndependent(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	one := rules.Rule{UID: "one", Salt: 1, Candidate: byIP(t)}
	two := rules.Rule{UID: "two", Salt: 1, Candidate: byIP(t)}
	var inOne, inTwo, inBoth int
	for i := range keys {
		req := &rules.Request{IP: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
		was := false
		for _, p := range []rules.Percent{0, 1, 100, 2500, 5000, 9999, rules.AllKeys} {
			one.Percent = p
			is := one.InCohort(req)
			if was && !is {
				t.Fatalf("key %d left the cohort when the percentage rose to %s", i, p)
			}
			was = is
		}
		if !was {
			t.Fatalf("key %d is not in the cohort at 100%%", i)
		}
		one.Percent, two.Percent = 2500, 2500
		a, b := one.InCohort(req), two.InCohort(req)
		if a {
			inOne++
		}
		if b {
			inTwo++
		}
		if a && b {
			inBoth++
		}
	}
	near(t, "25% of one rule", inOne, keys, 0.25)
	near(t, "25% of another", inTwo, keys, 0.25)
	near(t, "both", inBoth, keys, 0.0625)
}

func byIP(t *testing.T) *rules.Version {
	t.Helper()
	k, err := rules.ParseKeySource("ip")
	if err != nil {
		t.Fatal(err)
	}
	return &rules.Version{Number: 1, Spec: rules.Spec{Key: []rules.KeySource{k}}}
}

func near(t *testing.T, what string, got, n int, share float64) {
	t.Helper()
	mean := float64(n) * share
	if limit := 5 * math.Sqrt(mean*(1-share)); math.Abs(float64(got)-mean) > limit {
		t.Errorf("%s: %d keys, want %.0f within %.0f", what, got, mean, limit)
	}
}

func TestCohortFollowsTheClientWhereTheKeyIsShared(t *testing.T) {
	t.Parallel()
	r := rules.Rule{UID: "u", Salt: 1, Percent: 5000, Candidate: &rules.Version{Number: 1}} // no key: one counter for all
	sides := map[bool]int{}
	for host := range 100 {
		req := &rules.Request{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(host)})}
		sides[r.InCohort(req)]++
	}
	if sides[true] == 0 || sides[false] == 0 {
		t.Errorf("all clients of a shared counter are on one side: %v", sides)
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	v7, v8 := &rules.Version{Number: 7}, &rules.Version{Number: 8}
	for want, r := range map[string]rules.Rule{
		"v7 stable":                           {Stable: v7},
		"v8 in shadow beside stable v7":       {Stable: v7, Candidate: v8},
		"v8 at 12.5% beside stable v7":        {Stable: v7, Candidate: v8, Percent: 1250},
		"v8 in shadow with no stable version": {Candidate: v8},
	} {
		if got := r.State(); got != want {
			t.Errorf("State() = %q, want %q", got, want)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	matching := func(name string, paths ...string) *rules.Rule {
		return &rules.Rule{Domain: "d", Name: name, Stable: &rules.Version{Spec: rules.Spec{Match: rules.Match{Path: paths}}}}
	}
	post := matching("post")
	post.Stable.Spec.Match.Method = []string{"POST"}
	x := rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{
		matching("feed", "/api/feed"), matching("api", "/api/*"), matching("both", "/api/*", "/api/feed"), matching("all"),
		matching("root", "/*"), post,
	})
	for path, want := range map[string]string{
		"/api/feed": "[all api both feed root]",
		"/api/x/y":  "[all api both root]",
		"/api":      "[all root]",
		"/apix":     "[all root]",
		"*":         "[all]",
	} {
		var names []string
		for _, h := range x.Lookup(&rules.Request{Method: "GET", Path: path}, nil) {
			names = append(names, h.Rule.Name)
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// express-rate-limit#667, traefik#9721: notation decided the bucket, and one host walked through its /64.
func TestC26KeyOfAnAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"::ffff:192.0.2.4":              "192.0.2.4",
		"::ffff:c000:204":               "192.0.2.4",
		"192.0.2.4":                     "192.0.2.4",
		"2001:db8:1234:5678::192.0.2.4": "2001:db8:1234:5600::/56",
		"2001:db8:1234:5678::c000:204":  "2001:db8:1234:5600::/56",
		"64:ff9b::192.0.2.4":            "64:ff9b::/56",
		"2001:db8:1234:5678::1%eth0":    "2001:db8:1234:5600::/56",
	} {
		k, err := rules.ParseKeySource("ip/56")
		if err != nil {
			t.Fatal(err)
		}
		got := rules.KeyOf(&rules.Spec{Key: []rules.KeySource{k}}, &rules.Request{IP: netip.MustParseAddr(address)})
		if wantBytes := rules.AppendString([]byte{1}, want); string(got.Encoded()) != string(wantBytes) {
			t.Errorf("%s: got %q, want %q", address, got.Encoded(), wantBytes)
		}
	}
}
