package enforce_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// What an outcome says beside its word: the limit, the key, what else was said.

// recorded are copies of the outcomes of all decisions.
type recorded []enforce.VersionOutcome

func (r *recorded) Record(_ string, d *enforce.Decision) { *r = append(*r, d.Outcomes...) }

// said returns one line for each outcome, and forgets them.
func (r *recorded) said() (lines []string) {
	for _, o := range *r {
		lines = append(lines, fmt.Sprintf("%s v%d %s by %d, beside %d, other %v", o.Rule.Name, o.Version.Number, o.Outcome, o.Limit, o.Beside, o.OtherRefused))
	}
	*r = nil
	return lines
}

func TestOutcomeNamesTheLimitOfTheSpecThatRefuses(t *testing.T) {
	t.Parallel()
	refusing := version(t, 1, "1/d")
	refusing.Spec.MissingKey = rules.MissingRefuse
	closed, local := version(t, 1, "a=1/d"), version(t, 1, "a=9/d")
	closed.Spec.Failure.Mode = rules.FailClosed
	local.Spec.Failure = rules.Failure{Mode: rules.FailLocal, Local: rate(t, "0/d")}
	nobody := request("k")
	nobody.Header = nil
	several := []string{"free=unlimited", "second=5/s", "day=1/d", "hour=1/h"}
	for name, c := range map[string]struct {
		store enforce.Limiter
		rules []*rules.Rule
		calls int
		req   *rules.Request
		want  []string // of the last call
	}{
		"the one with the longest wait": {
			memlimit.New(),
			[]*rules.Rule{rule("r", version(t, 1, several...), nil)},
			2, request("k"),
			[]string{"r v1 refused by 2, beside 0, other false"},
		},
		"what-if, beside one that allows, and another rule refuses": {
			memlimit.New(),
			[]*rules.Rule{rule("r", version(t, 1, "9/d"), version(t, 2, several...)), rule("s", version(t, 1, "1/d"), nil)},
			2, request("k"),
			[]string{
				"r v1 refused_by_other by -1, beside 0, other true", "r v2 would_refuse by 2, beside 1, other true",
				"s v1 refused by 0, beside 0, other false",
			},
		},
		"what-if, beside one that refuses": {
			memlimit.New(),
			[]*rules.Rule{rule("r", version(t, 1, "0/d"), version(t, 2, "9/d"))},
			1, request("k"),
			[]string{"r v1 refused by 0, beside 0, other false", "r v2 would_allow by -1, beside 2, other false"},
		},
		"what-if alone": {
			memlimit.New(),
			[]*rules.Rule{rule("r", nil, version(t, 2, "0/d"))},
			1, request("k"),
			[]string{"r v2 would_refuse by 0, beside 0, other false"},
		},
		"a value that is missing": {
			memlimit.New(),
			[]*rules.Rule{rule("r", refusing, nil)},
			1, nobody,
			[]string{"r v1 refused by -1, beside 0, other false"},
		},
		"without the store": {
			broken{},
			[]*rules.Rule{rule("r", closed, version(t, 2, "0/d")), rule("s", local, nil), rule("u", refusing, nil)},
			1, request("k"),
			[]string{
				"r v1 failed_closed by -1, beside 0, other false", "r v2 unknown by -1, beside 2, other false",
				"s v1 refused_by_other by -1, beside 0, other true", "u v1 refused_by_other by -1, beside 0, other true",
			},
		},
		"by the local count": {
			broken{},
			[]*rules.Rule{rule("s", local, nil), rule("u", refusing, version(t, 2, "0/d"))},
			1, request("k"),
			[]string{
				"s v1 local_refused by -1, beside 0, other false",
				"u v1 refused_by_other by -1, beside 0, other true", "u v2 unknown by -1, beside 1, other true",
			},
		},
	} {
		var got recorded
		e := enforce.NewEngine(c.store, &got, slog.New(slog.DiscardHandler), enforce.WithLocal(memlimit.New()))
		e.Swap(rules.NewIndex(rules.Domain{Name: "d"}, c.rules))
		var said []string
		for range c.calls {
			e.Decide(t.Context(), c.req)
			said = got.said()
		}
		if diff := cmp.Diff(c.want, said); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A key has one name, whether the counters of its domain are kept together by a part of it or not.
func TestOutcomeNamesTheKeyAsTheTallyDoes(t *testing.T) {
	t.Parallel()
	shard, err := rules.ParseSource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	two := version(t, 1, "9/d")
	two.Spec.Key = append(two.Spec.Key, source(t, "ip/64"))
	other := version(t, 1, "9/d")
	other.Spec.Key = []rules.KeySource{source(t, "ip")}
	all := version(t, 1, "9/d")
	all.Spec.Key = nil
	list := []*rules.Rule{rule("all", all, nil), rule("one", version(t, 1, "9/d"), version(t, 2, "0/d")), rule("other", other, nil), rule("two", two, nil)}
	for name, s := range map[string]*rules.Source{"no shard": nil, "shard": &shard} {
		var got recorded
		e := enforce.NewEngine(memlimit.New(), &got, slog.New(slog.DiscardHandler))
		domain := rules.Domain{Name: "d", Secret: [16]byte{1, 2, 3}, Shard: s}
		e.Swap(rules.NewIndex(domain, list))
		e.Decide(t.Context(), request("k"))
		if len(got) != 5 {
			t.Fatalf("%s: %d outcomes, want 5", name, len(got))
		}
		for _, o := range got {
			key := rules.KeyOf(&o.Version.Spec, o.Request)
			if want := tally.KeyOf(domain.Secret, &o.Version.Spec, key); o.Key != want || !bytes.Equal(o.Values.Encoded(), key.Encoded()) {
				t.Errorf("%s: the key of %s is %s of %q, want %s of %q", name, o.Rule.Name, o.Key, o.Values.Encoded(), want, key.Encoded())
			}
		}
	}
}
