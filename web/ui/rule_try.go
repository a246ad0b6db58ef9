package ui

import (
	"context"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// tryTab is what a limit would meet, by how often keys called in the last hour.
type tryTab struct {
	*adminpb.KeyRatesResponse
	Rate  int64 // calls per minute
	Would *adminpb.RateStep
	// YAML is the rule with the limit, in three parts, of which the rate is the second.
	YAML     [3]string
	Replaces int   // limits that it takes the place of, where it has several or plans
	Burst    int64 // that it takes the place of; 0 where the rule's is its amount
}

// tryTab asks for the curve. Where no rate is asked for it is the rule's own.
func (u *UI) tryTab(ctx context.Context, r *request, page *rulePage) error {
	rate, err := r.perMinute("rate", perMinuteOf(page.text()))
	if err != nil {
		return err
	}
	resp, err := u.api.KeyRates(ctx, &adminpb.KeyRatesRequest{Domain: page.Domain, Rule: page.Name, Tried: []int64{rate}})
	if err != nil {
		return err
	}
	tab := &tryTab{KeyRatesResponse: resp, Rate: rate, Would: &adminpb.RateStep{CallsPerMinute: rate}}
	if len(resp.GetTried()) > 0 {
		tab.Would = resp.GetTried()[0]
	}
	tab.fill(page)
	page.Try = tab
	return nil
}

// perMinute reads a rate such as 60/min.
func (r *request) perMinute(name string, otherwise int64) (int64, error) {
	text := r.Query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	rate, err := rules.ParseRate(text)
	if err != nil || rate.Unlimited || rate.Window != time.Minute || rate.Amount < 1 {
		return 0, fmt.Errorf("%w: %s is %q; it is calls a minute, such as 60/min", rules.ErrInvalid, name, text)
	}
	return rate.Amount, nil
}

// perMinuteOf is the first limit of a spec in calls per minute; 60 where it has none.
func perMinuteOf(s *rules.Spec) int64 {
	if len(s.Limits) == 0 || s.Limits[0].Window() == 0 {
		return 60
	}
	l := &s.Limits[0]
	perMinute := float64(l.Rate.Amount) * float64(time.Minute) / float64(l.Window())
	return max(1, int64(math.Round(perMinute)))
}

// fill writes the rule as a file with the limit in place of those that it has.
func (t *tryTab) fill(page *rulePage) {
	v := page.Newest()
	if v == nil || v.Spec == nil {
		return
	}
	spec := *v.Spec
	if len(spec.Limits) > 1 || spec.Limits[0].By != nil {
		t.Replaces = len(spec.Limits)
	} else if is := spec.Limits[0].Rate; is.Burst != is.Amount {
		t.Burst = is.Burst
	}
	algorithm := rules.TokenBucket
	if len(spec.Limits) == 1 {
		algorithm = spec.Limits[0].Algorithm
	}
	spec.Limits = []rules.Limit{{Algorithm: algorithm, Rate: rules.Rate{Amount: t.Rate, Window: time.Minute, Burst: t.Rate}}}
	text := ruleText(page.Domain, page.Name, &version{Number: v.Number, Spec: &spec})
	before, after, _ := strings.Cut(text, fmt.Sprintf("    limit: %s\n", spec.Limits[0].Rate))
	t.YAML = [3]string{before + "    limit: ", fmt.Sprint(t.Rate), "/min\n" + after}
}

// Estimated reports that only a sample of the keys is known.
func (t *tryTab) Estimated() bool { return t.GetShareSampled() < 1 }

// ShareOfCalls is which part of all calls are above the rate.
func (t *tryTab) ShareOfCalls() float64 {
	return float64(t.Would.GetCalls()) / float64(max(1, t.GetCalls()))
}

// Most is the largest rate of the scale.
func (t *tryTab) Most() int64 {
	steps := t.GetSteps()
	if len(steps) == 0 {
		return 1
	}
	return max(2, steps[len(steps)-1].GetCallsPerMinute())
}

// scale is how fine the handle of the line is.
const scale = 1000

// Place is where a rate stands on the logarithmic scale, from 0 to 1000.
func (t *tryTab) Place() int64 { return int64(math.Round(scale * t.place(t.Rate))) }

func (t *tryTab) place(rate int64) float64 {
	return min(1, math.Log(float64(max(1, rate)))/math.Log(float64(t.Most())))
}

// Ticks are rates at even distances on the scale.
func (t *tryTab) Ticks() []int64 {
	const between = 4
	ticks := make([]int64, between+1)
	for i := range ticks {
		ticks[i] = int64(math.Round(math.Pow(float64(t.Most()), float64(i)/between)))
	}
	return slices.Compact(ticks)
}

// SVG is the histogram of keys by their largest minute, with the line. Both axes are logarithmic: few keys are fast, and
// they are those that a limit is about. The script moves the line.
func (t *tryTab) SVG() template.HTML {
	var most int64 = 1
	for _, b := range t.GetHistogram() {
		most = max(most, b.GetKeys())
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="histogram" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`, plotWide, plotHigh)
	for _, bucket := range t.GetHistogram() {
		if bucket.GetKeys() <= 0 {
			continue
		}
		from, to := plotWide*t.place(bucket.GetFrom()), plotWide*t.place(bucket.GetBelow())
		high := (plotHigh - 10) * math.Log1p(float64(bucket.GetKeys())) / math.Log1p(float64(most))
		class := "allowed"
		if bucket.GetFrom() >= t.Rate && bucket.GetBelow() > t.Rate+1 {
			class = "would"
		}
		fmt.Fprintf(&b, `<rect class="%s" data-from="%d" data-below="%d" x="%s" y="%s" width="%s" height="%s"/>`, class, bucket.GetFrom(), bucket.GetBelow(),
			decimal(from+1), decimal(plotHigh-high), decimal(max(1, to-from-2)), decimal(high))
	}
	at := decimal(plotWide * t.place(t.Rate))
	fmt.Fprintf(&b, `<path class="line" d="M%s 0V%d"/></svg>`, at, plotHigh)
	return template.HTML(b.String()) //nolint:gosec // made of numbers alone
}
