package alert_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/rules/tally/tallytest"
)

// loud is what a spike looks like each 30 s, quiet what is usual.
var (
	loud  = map[tally.Cell]int64{allowed: 100, refused: 100}
	quiet = map[tally.Cell]int64{allowed: 200}
)

// Case C27: 15 calls would be refused before anything else, then none; in between the leader dies, and a sidecar starts
// anew, which counts from 0 again.
func TestTheFirstSpikeOfANewRuleFiresOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(0, 1, 0)
	store := tallytest.New()
	w.tallies = store
	// report stores the only window of one life of the sidecar.
	report := func(epoch string, counts map[tally.Cell]int64) {
		v := tally.VersionTally{Domain: "api", UID: "u", Version: 1}
		for cell, n := range counts {
			v.Counts[cell] = n
		}
		for i := range byte(v.Counts[wouldRefuse] / 5) {
			v.Keys = append(v.Keys, tally.KeyCount{Key: tally.KeyID{i}, Label: "10.0.0.*", Would: 5})
			v.Distinct.Add(tally.KeyID{i})
		}
		end := w.now.Truncate(tally.Span)
		if err := store.SaveWindows(t.Context(), []tally.SourceWindows{{
			Source:  tally.Source{Node: "n", Epoch: epoch},
			Windows: []tally.Window{{Number: 1, Start: end.Add(-tally.Span), End: end, Versions: []tally.VersionTally{v}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	w.elect()
	got := w.run(40, func(i int) {
		switch i {
		case 0:
			report("first life", map[tally.Cell]int64{wouldRefuse: 15})
		case 2, 5, 9:
			w.elect()
		case 7:
			report("second life", map[tally.Cell]int64{wouldAllow: 1})
		}
	})
	want := "3: would_refuse v1 info many fires\n20: would_refuse v1 resolved: it refuses about as much as usual again"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	a := w.all()[0]
	if a.Evidence.Count != (spike.Count{Refused: 15, Of: 15}) || !a.Since.Equal(start.Add(4*spike.Every)) || len(a.Keys) != 3 || a.Distinct != 3 {
		t.Errorf("%+v", a)
	}

	// What comes later is not hidden.
	got = w.run(6, func(i int) { report(fmt.Sprint("life ", i), map[tally.Cell]int64{wouldRefuse: 15}) })
	if want := "4: would_refuse v1 info many fires"; got != want {
		t.Errorf("later: %q, want %q", got, want)
	}
	w.ruleAs(0, 0, 0, nil)
	if got, want := w.look(), "would_refuse v1 resolved: the rule is deleted"; got != want {
		t.Errorf("when it is deleted: %q, want %q", got, want)
	}
}

func TestAPromotedVersionIsComparedWithItsOwnShadow(t *testing.T) {
	t.Parallel()
	for would, want := range map[int64]string{30: "", 0: "3: refused v1 page unknown fires"} {
		w := newWorld(t)
		w.rule(0, 1, 0)
		w.run(60, func(int) { w.count(1, map[tally.Cell]int64{wouldAllow: 100 - would, wouldRefuse: would}) })
		w.news()
		w.rule(1, 0, 0)
		got := w.run(8, func(int) { w.count(1, map[tally.Cell]int64{allowed: 70, refused: 30}) })
		if got != want {
			t.Errorf("%d of 100 in shadow: %q, want %q", would, got, want)
		}
	}
}

func TestWhoIsHitSaysHowBadItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key  string
		hits []int64
		want string
	}{
		"nobody knows yet":              {"ip", nil, "page unknown"},
		"four fifths of one":            {"ip", []int64{80, 20}, "page many"},
		"more than that":                {"ip", []int64{81, 19}, "info one_client"},
		"one alone":                     {"ip", []int64{5}, "info one_client"},
		"one counter for all":           {"", []int64{100}, "page everybody"},
		"one path, whoever asks for it": {"path", []int64{100}, "page everybody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.ruleAs(1, 0, 0, func(int64) rules.Spec { return w.spec("60/min", c.key) })
			if c.hits != nil {
				w.hit(1, c.hits...)
			}
			got := w.run(4, func(int) { w.count(1, loud) })
			if want := "3: refused v1 " + c.want + " fires"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestOneClientThatBecomesManyIsSomebodyElsesMatter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(1, 0, 0)
	w.hit(1, 100, 1)
	got := w.run(8, func(i int) {
		w.count(1, loud)
		if i == 5 {
			w.hit(1, 100, 90, 80)
		}
		if i == 7 {
			w.hit(1, 100, 1) // back: that is still the page
		}
	})
	want := "3: refused v1 info one_client fires\n5: refused v1 resolved: more than one client is hit by now; refused v1 page many fires"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestWhatIsGoneIsResolved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the rule":    {func(w *world) { w.ruleAs(0, 0, 0, nil) }, "the rule is deleted"},
		"the version": {func(w *world) { w.rule(2, 0, 0) }, "v1 is not in force any more: the rule is v2 stable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.rule(1, 0, 0)
			w.run(4, func(int) { w.count(1, loud) })
			if got := testutil.CollectAndCount(w.metrics, "headgate_alerts_firing"); got != 1 {
				t.Errorf("%d series while it fires, want 1", got)
			}
			c.change(w)
			// The windows that are still coming in fire nothing either.
			got := w.run(8, func(int) { w.count(1, loud) })
			if want := "0: refused v1 resolved: " + c.want; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got := testutil.CollectAndCount(w.metrics, "headgate_alerts_firing"); got != 0 {
				t.Errorf("%d series after it, want none", got)
			}
			if r, err := w.LastRound(t.Context()); err != nil || !r.Watches[0].Refused.Since.IsZero() {
				t.Errorf("%+v, %v, want that its detector begins anew, should it come back", r.Watches, err)
			}
		})
	}
}

func TestAnotherTextInheritsWhatIsUsual(t *testing.T) {
	t.Parallel()
	for text, want := range map[bool]string{true: "", false: "3: refused v2 page unknown fires"} {
		w := newWorld(t)
		spec := func(number int64) rules.Spec {
			s := w.spec("60/min", "ip")
			s.Owner = fmt.Sprint(number)
			if !text {
				s = w.spec(fmt.Sprintf("%d/min", number), "ip")
			}
			return s
		}
		w.ruleAs(1, 0, 0, spec)
		often := map[tally.Cell]int64{allowed: 80, refused: 20}
		w.run(5, func(int) { w.count(1, often) })
		if _, err := w.service.Silence(t.Context(), "api", "login", time.Hour, someone()); err != nil {
			t.Fatal(err)
		}
		if got := w.run(80, func(int) { w.count(1, often) }); !strings.Contains(got, "as usual again") {
			t.Fatalf("%q, want that it is usual by now", got)
		}
		w.ruleAs(2, 0, 0, spec)
		w.news()
		if got := w.run(8, func(int) { w.count(2, often) }); got != want {
			t.Errorf("text alone %v: %q, want %q", text, got, want)
		}
	}
}

func TestASilenceAcknowledges(t *testing.T) {
	t.Parallel()
	lasts := func(silenced bool) int {
		w := newWorld(t)
		w.rule(1, 0, 0)
		w.run(40, func(int) { w.count(1, quiet) })
		w.run(5, func(int) { w.count(1, loud) })
		if silenced {
			if _, err := w.service.Silence(t.Context(), "api", "login", time.Hour, someone()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 200 {
			w.count(1, loud)
			if w.look(); !w.all()[0].Resolved.IsZero() {
				return i
			}
		}
		return -1
	}
	if got := lasts(false); got >= 0 {
		t.Errorf("without a silence it was resolved after %d looks, want that it goes on", got)
	}
	if got := lasts(true); got < 0 {
		t.Error("a silence did not make what is refused now the usual")
	}
}

func TestOfTwoLeadersOneMakesTheRound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(1, 0, 0)
	other := w.watcher(nil)
	got := w.run(4, func(int) { w.count(1, loud) })
	if err := other.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.leader = other
	if again := w.run(2, func(int) { w.count(1, loud) }); again != "" || got != "3: refused v1 page unknown fires" {
		t.Errorf("%q, then %q", got, again)
	}

	// One that was stopped between reading and writing: the other has made the round meanwhile.
	w.now = w.now.Add(spike.Every)
	slow, err := alert.NewWatcher(stalled{w, func() {
		if err := w.leader.Look(t.Context()); err != nil {
			t.Error(err)
		}
	}}, w, w, alert.Options{Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Look(t.Context()); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("the slow one: %v, want a conflict", err)
	}
}

// stalled lets something else happen before a round is saved.
type stalled struct {
	*world
	meanwhile func()
}

func (s stalled) SaveRound(ctx context.Context, base time.Time, r alert.Round) error {
	s.meanwhile()
	return s.Memory.SaveRound(ctx, base, r)
}

func TestARoundIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(1, 0, 0)
	w.run(3, func(int) { w.count(1, loud) })
	queries := w.queries
	for range 5 {
		w.now = w.now.Add(time.Second)
		if err := w.leader.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if w.queries != queries {
		t.Errorf("%d more queries within the same 30 s, want none", w.queries-queries)
	}
	if queries != 2*3 {
		t.Errorf("%d queries in three rounds, want two each", queries)
	}
}

func TestAClockThatIsSetBackDoesNotEndTheRounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(1, 0, 0)
	w.run(3, func(int) { w.count(1, quiet) })
	w.now = w.now.Add(-24 * time.Hour)
	if got := w.run(4, func(int) { w.count(1, loud) }); got != "3: refused v1 page unknown fires" {
		t.Errorf("%q", got)
	}
}

func TestWhatKnowsNothingAnyMoreIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(1, 0, 0)
	w.run(40, func(int) { w.count(1, quiet) })
	watches := func() int {
		r, err := w.LastRound(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Watches)
	}
	w.now = w.now.Add(48 * time.Hour)
	if w.look(); watches() != 1 {
		t.Errorf("%d watches after two days, want 1", watches())
	}
	w.now = w.now.Add(240 * time.Hour)
	if w.look(); watches() != 0 {
		t.Errorf("%d watches after twelve days, want none", watches())
	}
}

func TestAnAlertOffersTheWayBack(t *testing.T) {
	t.Parallel()
	const back, abort = "rulectl rollback api/login --wait", "rulectl abort api/login --wait"
	for name, c := range map[string]struct {
		stable, candidate int64
		percent           rules.Percent
		version           int64
		counts            map[tally.Cell]int64
		want              []string
	}{
		"a stable":                           {2, 0, 0, 2, loud, []string{back}},
		"a candidate for some keys":          {2, 3, 2500, 3, loud, []string{back, abort}},
		"one that has no stable beside it":   {0, 3, 2500, 3, loud, []string{back}},
		"a candidate in shadow":              {2, 3, 0, 3, map[tally.Cell]int64{wouldRefuse: 20}, []string{back}},
		"one in shadow with nothing to lose": {0, 3, 0, 3, map[tally.Cell]int64{wouldRefuse: 20}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.rule(c.stable, c.candidate, c.percent)
			w.run(4, func(int) { w.count(c.version, c.counts) })
			a := w.all()[0]
			var got []string
			for _, o := range a.Offers {
				got = append(got, o.Command)
				if !strings.Contains(a.Description(), o.Command) {
					t.Errorf("%q does not name %s", a.Description(), o.Command)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestAnAlertCallsAnEstimateSo(t *testing.T) {
	t.Parallel()
	const words = "would refuse, by estimate, "
	for name, c := range map[string]struct {
		counts map[tally.Cell]int64
		want   bool
	}{
		"no other rule refuses":      {map[tally.Cell]int64{wouldRefuse: 20, wouldAllow: 5}, false},
		"what it would refuse too":   {map[tally.Cell]int64{wouldRefuse: 20, wouldRefuse + 1: 1}, true},
		"what it would allow":        {map[tally.Cell]int64{wouldRefuse: 20, wouldAllow + 1: 1}, true},
		"while it refuses by itself": {map[tally.Cell]int64{refused: 20, wouldAllow + 1: 1}, false},
	} {
		w := newWorld(t)
		w.rule(0, 3, 2500)
		w.run(4, func(int) { w.count(3, c.counts) })
		a := w.all()[0]
		if strings.Contains(a.Summary(), words) != c.want || strings.Contains(a.Description(), words) != c.want {
			t.Errorf("%s: %q, %q", name, a.Summary(), a.Description())
		}
	}
}

func TestAnAlertSaysWhatHappened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(2, 0, 0)
	w.hit(2, 40, 30, 20, 10, 5, 1)
	w.run(4, func(int) { w.count(2, map[tally.Cell]int64{allowed: 40, refused: 10}) })
	a := w.all()[0]
	if want := "api/login v2 refuses at least 12.7%"; a.Summary() != want {
		t.Errorf("%q, want %q", a.Summary(), want)
	}
	want := "v2 refuses 40 of 200 requests in the five minutes before 2026-11-30T12:02:00Z; usual is 0.5%. The rule: v2 stable. " +
		"About 6 keys are hit: key-0 (40), key-1 (30), key-2 (20), key-3 (10), key-4 (5). To have the version in force before it again, " +
		"or where there is none, this one in shadow: rulectl rollback api/login --wait."
	if diff := cmp.Diff(want, a.Description()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	a.Resolved = a.Since.Add(time.Hour)
	if want := "api/login v2 refused at least 12.7%"; a.Summary() != want {
		t.Errorf("when it is over: %q, want %q", a.Summary(), want)
	}
	if text := a.Description(); !strings.HasPrefix(text, "v2 refused 40 of 200") || strings.Contains(text, "rollback") {
		t.Errorf("when it is over: %q, want what was, and nothing to undo", text)
	}
}

func TestRunLooksEveryThirtySeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		watcher, err := alert.NewWatcher(w, w, w, alert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- watcher.Run(ctx) }()
		time.Sleep(5*time.Minute + time.Second)
		w.Fail(errors.New("away"))
		time.Sleep(time.Minute)
		w.Fail(nil)
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Errorf("run ended with %v", err)
		}
		if w.queries != 2*(11+2) { // at 0:00, then every 30 s, of which two failed before they read anything
			t.Errorf("%d queries, want 26", w.queries)
		}
	})
}

func TestSilencesNeedARule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Put(t, "api", "60/min", "plan")
	for _, c := range []struct {
		rule   string
		length time.Duration
		want   error
	}{{"plan", time.Minute, nil}, {"plan", time.Second, rules.ErrInvalid}, {"plan", 8 * 24 * time.Hour, rules.ErrInvalid}, {"other", time.Hour, rules.ErrNotFound}} {
		if _, err := w.service.Silence(t.Context(), "api", c.rule, c.length, someone()); !errors.Is(err, c.want) {
			t.Errorf("%s for %s: %v, want %v", c.rule, c.length, err, c.want)
		}
	}
	w.now = w.now.Add(59 * time.Second)
	if list, err := w.service.Silences(t.Context(), "api"); err != nil || len(list) != 1 {
		t.Errorf("silences: %v, %v, want one", list, err)
	}
	w.now = w.now.Add(time.Second)
	if list, err := w.service.Silences(t.Context(), "api"); err != nil || len(list) != 0 {
		t.Errorf("silences after a minute: %v, %v, want that it has ended by itself", list, err)
	}
	if err := w.service.Unsilence(t.Context(), "api", "plan", someone()); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("end it: %v, want that it is not found", err)
	}
}
