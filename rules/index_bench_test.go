package rules_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/rules"
)

// BenchmarkLookup finds the one rule that matches among n: by path, by attribute and by a template.
func BenchmarkLookup(b *testing.B) {
	req := &rules.Request{
		Domain: "d", Method: "GET", Path: "/v1/things/7/part-7", IP: netip.MustParseAddr("192.0.2.1"),
		Header: map[string][]string{"X-Api-Key": {"k"}}, Attr: map[string]string{"tenant": "t-7"}, Hits: 1,
	}
	kinds := []struct {
		name  string
		match func(i int) rules.Match
	}{
		{"path", func(i int) rules.Match { return rules.Match{Path: []string{fmt.Sprintf("/v1/things/7/part-%d", i)}} }},
		{"prefix", func(i int) rules.Match { return rules.Match{Path: []string{fmt.Sprintf("/v1/things/%d/*", i)}} }},
		{"template", func(i int) rules.Match { return rules.Match{Path: []string{fmt.Sprintf("/v1/things/{id}/part-%d", i)}} }},
		{"attr", func(i int) rules.Match {
			return rules.Match{
				Path: []string{"/v1/things/*"},
				Attr: rules.NewFieldMatches(map[string]rules.ValueMatch{"tenant": {In: []string{fmt.Sprintf("t-%d", i)}}}),
			}
		}},
	}
	for _, kind := range kinds {
		for _, n := range []int{10, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/rules=%d", kind.name, n), func(b *testing.B) {
				list := make([]*rules.Rule, n)
				for i := range list {
					list[i] = &rules.Rule{Name: fmt.Sprintf("r%05d", i), Stable: &rules.Version{Spec: rules.Spec{Match: kind.match(i)}}}
				}
				x := rules.NewIndex(rules.Domain{Name: "d"}, list)
				var buffer [16]rules.Hit
				b.ReportAllocs()
				for b.Loop() {
					if hits := x.Lookup(req, buffer[:0]); len(hits) != 1 {
						b.Fatalf("%d hits, want 1", len(hits))
					}
				}
			})
		}
	}
}
