package replay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func withWindows(t *testing.T, windows ...string) []*rules.Rule {
	t.Helper()
	var list []*rules.Rule
	for _, w := range windows {
		rate, err := rules.ParseRate("1/" + w)
		if err != nil {
			t.Fatal(err)
		}
		v := &rules.Version{Spec: rules.Spec{Limits: []rules.Limit{{Algorithm: rules.SlidingWindow, Rate: rate}}}}
		list = append(list, &rules.Rule{Stable: v})
	}
	return list
}

func TestStartIsAlignedToEveryWindow(t *testing.T) {
	t.Parallel()
	for _, windows := range [][]string{
		nil,
		{"s"},
		{"min", "h"},
		{"7s", "11s", "13s"},
		{"366d"},
		{"365d", "366d"},
		{"7d", "3600s", "17min"},
		{"31622399s", "31622377s"}, // their product is three million years
	} {
		list := withWindows(t, windows...)
		start := replay.Start(list)
		if start < 0 || start > 1<<52 {
			t.Errorf("%v: start %d leaves no room for exact instants", windows, start)
		}
		for _, r := range list {
			if w := r.Stable.Spec.Limits[0].Window(); start%w.Microseconds() != 0 {
				t.Errorf("%v: start %d is not a multiple of %s", windows, start, w)
			}
		}
		if again := replay.Start(list); again != start {
			t.Errorf("%v: start %d, then %d", windows, start, again)
		}
	}
	if got, want := replay.Start(nil), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(); got != want {
		t.Errorf("without rules it starts at %d, want %d", got, want)
	}
}

// The year 1970 is the start of last resort: a counter must not take its zero for "never".
func TestDecisionsDoNotDependOnTheStart(t *testing.T) {
	t.Parallel()
	sets, err := rulefile.Decode("x.yaml", []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n"+
		"- {name: a, key: [], limit: 3/10s}\n- {name: b, key: [], limit: 4/20s, algorithm: sliding-window}\n"))
	if err != nil {
		t.Fatal(err)
	}
	decide := func(store string, start int64) (answers []enforce.Decision) {
		p, err := replay.New(store)
		if err != nil {
			t.Fatal(err)
		}
		p.Put(rules.NewIndex(replay.NewDomain(&sets[0]), replay.NewRules(&sets[0], nil)))
		for n := range int64(60) {
			d, err := p.Decide(t.Context(), start+n*999_999, &rules.Request{Domain: "d", Path: "/", Hits: 1})
			if err != nil {
				t.Fatal(err)
			}
			d.Outcomes = nil
			answers = append(answers, d)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return answers
	}
	redis := "redis://" + harness.Redis(t).Addr
	want := decide(replay.Memory, 20_000_000*100)
	for _, got := range [][]enforce.Decision{decide(replay.Memory, 0), decide(redis, 0), decide(redis, 20_000_000*100)} {
		for n := range want {
			if got[n].Allowed != want[n].Allowed || got[n].Left != want[n].Left || got[n].Wait != want[n].Wait || got[n].Rule != want[n].Rule {
				t.Errorf("request %d: got %+v, want %+v", n, got[n], want[n])
			}
		}
	}
}

func TestStoresAreNamedStrictly(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"": true, "memory": true, "redis://127.0.0.1:6379": true, "redis://[::1]:6379/": true, "redis://user:secret@h:1/2": true,
		"Memory": false, "127.0.0.1:6379": false, "http://h:1": false, "unix:///tmp/redis": false, "redis://user:secret@h:1?db=2": false,
	} {
		if err := replay.CheckStore(name); (err == nil) != valid || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v, want one: %t", name, err, !valid)
		}
	}
}

func TestRetryAfterIsRoundedUpAndNeverZero(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int64{
		0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 4900 * time.Millisecond: 5, 1<<63 - 1: 9223372037,
	} {
		if got, ok := replay.RetryAfter(&enforce.Decision{Wait: wait}); !ok || got != want {
			t.Errorf("%s: %d, %t; want %d", wait, got, ok, want)
		}
	}
	for _, d := range []enforce.Decision{{Allowed: true, Wait: time.Second}, {Wait: enforce.Never}} {
		if got, ok := replay.RetryAfter(&d); ok {
			t.Errorf("%+v: %d, want none", d, got)
		}
	}
}
