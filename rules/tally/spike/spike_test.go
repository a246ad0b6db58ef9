package spike_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally/spike"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// evaluate runs the detector over counts, one each 30 s, and returns what changed: "fired@3 resolved@20".
func evaluate(d *spike.Detector, from time.Time, recent ...spike.Count) string {
	text := ""
	for i, c := range recent {
		switch change, _ := d.Evaluate(from.Add(time.Duration(i)*spike.Every), c, spike.Count{}); change {
		case spike.Same:
		case spike.Fired:
			text += fmt.Sprintf(" fired@%d", i)
		case spike.Resolved:
			text += fmt.Sprintf(" resolved@%d", i)
		}
	}
	return text
}

func repeat(n int, c spike.Count) []spike.Count {
	list := make([]spike.Count, n)
	for i := range list {
		list[i] = c
	}
	return list
}

// The lower bounds are Wilson's at z = 3.09; what is usual comes from 10,000 decisions.
func TestEachTestAloneHoldsTheAlarmBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		usual, recent  spike.Count
		want           string
		bound, atLeast float64
	}{
		{"49 decisions are too few", spike.Count{0, 10_000}, spike.Count{10, 49}, "", 0, 0},
		{"9 refusals are too few", spike.Count{0, 10_000}, spike.Count{9, 50}, "", 0, 0},
		{"50 and 10 are enough: 8.1 % above 2.5 %", spike.Count{0, 10_000}, spike.Count{10, 50}, " fired@3", 0.0809, 0.025},
		{"10 of 20 are enough: 21.6 %", spike.Count{0, 10_000}, spike.Count{10, 20}, " fired@3", 0.2158, 0.025},
		{"10 of 21 are not", spike.Count{0, 10_000}, spike.Count{10, 21}, "", 0, 0},
		{"3.3 % is above 2.5 %", spike.Count{0, 10_000}, spike.Count{50, 1000}, " fired@3", 0.033, 0.025},
		{"2.4 % is not", spike.Count{0, 10_000}, spike.Count{40, 1000}, "", 0.025, 0.025},
		{"three times 5 %", spike.Count{500, 10_000}, spike.Count{150, 1000}, "", 0.118, 0.150},
		{"18 % is above three times 5 %", spike.Count{500, 10_000}, spike.Count{220, 1000}, " fired@3", 0.182, 0.150},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d spike.Detector
			d.Baseline.Add(start, c.usual)
			if got := evaluate(&d, start, repeat(6, c.recent)...); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			_, e := d.Evaluate(start.Add(time.Hour), c.recent, spike.Count{})
			if c.bound != 0 && (math.Abs(e.Bound-c.bound) > 0.0005 || math.Abs(e.Limit-c.atLeast) > 0.0005) {
				t.Errorf("bound %.4f above %.4f, want %.3f above %.3f", e.Bound, e.Limit, c.bound, c.atLeast)
			}
		})
	}
}

func TestOneQuietEvaluationBeginsTheStreakAgain(t *testing.T) {
	t.Parallel()
	var d spike.Detector
	d.Baseline.Add(start, spike.Count{0, 10_000})
	loud, quiet := spike.Count{100, 1000}, spike.Count{0, 1000}
	if got := evaluate(&d, start, loud, loud, loud, quiet, loud, loud, loud, loud); got != " fired@7" {
		t.Errorf("got %q", got)
	}
}

func TestItResolvesAfterFiveCalmMinutes(t *testing.T) {
	t.Parallel()
	var d spike.Detector
	d.Baseline.Add(start, spike.Count{0, 10_000})
	loud, calm := spike.Count{100, 1000}, spike.Count{1, 1000} // bound 0.01 %, below 1.5 · 0.5 %
	course := append(repeat(4, loud), repeat(9, calm)...)      // calm from 4 to 12
	course = append(course, loud)                              // 13: begins again
	course = append(course, repeat(12, calm)...)               // calm from 14, resolved 10 evaluations later
	if got := evaluate(&d, start, course...); got != " fired@3 resolved@24" {
		t.Errorf("got %q", got)
	}
}

func TestTheBaselineLosesHalfInSixHours(t *testing.T) {
	t.Parallel()
	var b spike.Baseline
	b.Add(start, spike.Count{100, 1000})
	b.Add(start.Add(6*time.Hour), spike.Count{0, 500})
	if math.Abs(b.Refused-50) > 1e-9 || math.Abs(b.Of-1000) > 1e-9 {
		t.Errorf("%+v, want 50 of 1000", b)
	}
	if got, want := b.Ratio(), 50.5/1001; math.Abs(got-want) > 1e-12 {
		t.Errorf("ratio %v, want %v", got, want)
	}
	var unknown, quiet spike.Baseline
	if unknown.Ratio() != 0.005 {
		t.Errorf("ratio %v of a version that nobody knows, want the floor", unknown.Ratio())
	}
	quiet.Add(start, spike.Count{0, 1_000_000})
	if quiet.Ratio() != 0.005 {
		t.Errorf("ratio %v, want the floor", quiet.Ratio())
	}
}

func TestTheBaselineIsFrozenWhileItFires(t *testing.T) {
	t.Parallel()
	settled := spike.Count{100, 1000}
	fire := func() *spike.Detector {
		var d spike.Detector
		d.Baseline.Add(start, spike.Count{0, 10_000})
		evaluate(&d, start, repeat(4, settled)...)
		return &d
	}
	at := func(d *spike.Detector, after time.Duration) float64 {
		d.Evaluate(start.Add(after), spike.Count{100, 1000}, settled)
		return d.Baseline.Refused
	}
	d := fire()
	if got := at(d, time.Hour); got != 0 {
		t.Errorf("%v refusals in the baseline while it fires", got)
	}
	if got := at(d, 6*time.Hour+3*spike.Every); got != 100 {
		t.Errorf("%v refusals in the baseline after six hours, want 100", got)
	}
	d = fire()
	d.Acknowledge()
	if got := at(d, time.Hour); got != 100 {
		t.Errorf("%v refusals in the baseline after it was acknowledged, want 100", got)
	}
}

// rule is one rule with made-up traffic.
type rule struct {
	random *rand.Rand
	rate   float64 // requests a second
	ratio  float64 // of them refused
	// burst multiplies the rate for about three minutes of each half hour; 1 is even traffic. Its length and height vary.
	burst  float64
	left   int     // steps of the burst that goes on
	height float64 // of it
	counts []spike.Count
	d      spike.Detector
}

const (
	recentSteps = int(spike.Window / spike.Every)
	lagSteps    = int(spike.Lag / spike.Every)
)

// step makes the next 30 s and evaluates.
func (r *rule) step(i int) spike.Change {
	rate := r.rate
	switch {
	case r.left > 0:
		r.left--
		rate *= r.height
	case r.burst > 1 && r.random.IntN(60) == 0:
		r.left, r.height = 1+r.random.IntN(12), 1+r.random.ExpFloat64()*r.burst
	}
	n := r.poisson(rate * spike.Every.Seconds())
	x := r.poisson(float64(n) * r.ratio)
	r.counts = append(r.counts, spike.Count{Refused: min(x, n), Of: n})
	var recent, settled spike.Count
	for _, c := range r.counts[max(0, len(r.counts)-recentSteps):] {
		recent.Refused, recent.Of = recent.Refused+c.Refused, recent.Of+c.Of
	}
	if len(r.counts) > lagSteps {
		settled = r.counts[len(r.counts)-1-lagSteps]
	}
	change, _ := r.d.Evaluate(start.Add(time.Duration(i)*spike.Every), recent, settled)
	if len(r.counts) > 2*lagSteps {
		r.counts = append(r.counts[:0], r.counts[len(r.counts)-lagSteps-1:]...)
	}
	return change
}

// poisson draws by Knuth's product for small means and by the normal approximation above 10.
func (r *rule) poisson(mean float64) int64 {
	if mean > 10 {
		return max(0, int64(math.Round(mean+math.Sqrt(mean)*r.random.NormFloat64())))
	}
	limit, n := math.Exp(-mean), int64(0)
	for p := r.random.Float64(); p > limit; p *= r.random.Float64() {
		n++
	}
	return n
}

// The traffic: from one request in ten seconds to fifty a second, even and in bursts of five and fifty times as much, of
// which none to a fifth is refused. A baseline of an hour is there, as of a version that was in shadow.
func TestFalseAlarmsAreBelowOneInAThousandRuleDays(t *testing.T) {
	t.Parallel()
	const ruleDays, days = 10_000, 2
	stepsPerDay := int(24 * time.Hour / spike.Every)
	random := rand.New(rand.NewPCG(6, 1)) // the same each time
	alarms := 0
	for i := range ruleDays / days {
		r := &rule{
			random: random,
			rate:   []float64{0.1, 1, 5, 10, 50}[i%5],
			ratio:  []float64{0, 0.001, 0.01, 0.05, 0.2}[i/5%5],
			burst:  []float64{1, 5, 50}[i/25%3],
		}
		n := r.poisson(3600 * r.rate)
		r.d.Baseline.Add(start, spike.Count{Refused: r.poisson(float64(n) * r.ratio), Of: n})
		for s := range days * stepsPerDay {
			if r.step(s) == spike.Fired {
				alarms++
			}
		}
	}
	t.Logf("%d false alarms in %d rule-days", alarms, ruleDays)
	if alarms >= ruleDays/1000 {
		t.Errorf("%d false alarms in %d rule-days", alarms, ruleDays)
	}
}

func TestAJumpFromOneToTenPercentIsFoundWithinFiveMinutes(t *testing.T) {
	t.Parallel()
	const runs = 2000
	random := rand.New(rand.NewPCG(6, 2)) // the same each time
	found := 0
	for range runs {
		r := &rule{random: random, rate: 10, ratio: 0.01, burst: 1}
		day := int(24 * time.Hour / spike.Every / 4)
		for s := range day {
			r.step(s)
		}
		r.ratio = 0.1
		for s := range recentSteps {
			if r.step(day+s) == spike.Fired {
				found++
				break
			}
		}
	}
	t.Logf("found in %d of %d runs", found, runs)
	if found < runs*99/100 {
		t.Errorf("found in %d of %d runs", found, runs)
	}
}
