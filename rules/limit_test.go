package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		rate rules.Rate
		text string
	}{
		"60/min":                {rules.Rate{Amount: 60, Window: time.Minute, Burst: 60}, "60/min"},
		"600/minute burst 1200": {rules.Rate{Amount: 600, Window: time.Minute, Burst: 1200}, "600/min burst 1200"},
		"1_000/60s":             {rules.Rate{Amount: 1000, Window: time.Minute, Burst: 1000}, "1000/min"},
		"5/15min":               {rules.Rate{Amount: 5, Window: 15 * time.Minute, Burst: 5}, "5/15min"},
		"7/17sec":               {rules.Rate{Amount: 7, Window: 17 * time.Second, Burst: 7}, "7/17s"},
		"50_000/day":            {rules.Rate{Amount: 50_000, Window: 24 * time.Hour, Burst: 50_000}, "50000/d"},
		"0/s":                   {rules.Rate{Window: time.Second}, "0/s"},
	} {
		got, err := rules.ParseRate(in)
		if err != nil || got != want.rate {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", in, got, err, want.rate)
		}
		if got.String() != want.text {
			t.Errorf("ParseRate(%q) prints %q, want %q", in, got, want.text)
		}
	}
}

func TestParseRateSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "missing",
		"60":                     "names no window",
		"60/m":                   "ambiguous",
		"60/month":               "ambiguous",
		"60/fortnight":           "no known unit",
		"60/0s":                  "at least 1s",
		"60/367d":                "at most 366d",
		"-1/s":                   "not a whole number",
		"1.5/s":                  "not a whole number",
		"_1/s":                   "not a whole number",
		"60/min burst":           "burst AMOUNT",
		"60/min burst x":         "not a whole number",
		"60/min 5":               "burst AMOUNT",
		"99999999999999999999/s": "too large",
	} {
		if _, err := rules.ParseRate(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRate(%q): got %v, want an error with %q", in, err, want)
		}
	}
}

// envoyproxy/gateway#8797: 30,000,000,000 a month was silently cut to 32 bits.
// An override comes over the wire, as long as a request may be.
func TestParseRateDoesNotRepeatLongTexts(t *testing.T) {
	t.Parallel()
	for _, in := range []string{strings.Repeat("9", 1<<20) + "/h", strings.Repeat("x", 1<<20), "60/min" + strings.Repeat(" x", 1<<20)} {
		if _, err := rules.ParseRate(in); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.10s…: got %d bytes of error, want a short one", in, len(fmt.Sprint(err)))
		}
	}
}

func TestC15NumbersAreEnforcedExactlyOrRefused(t *testing.T) {
	t.Parallel()
	problems := spec(t, "30_000_000_000/30d").Validate()
	if len(problems) == 0 || !strings.Contains(problems[0].Message, "at most 1158333237 per 30d") {
		t.Errorf("got %v, want a refusal that names the largest amount", problems)
	}
	if problems := spec(t, "1158333237/30d").Validate(); len(problems) != 0 {
		t.Errorf("the largest amount is refused: %v", problems)
	}
	if problems := spec(t, "0/s").Validate(); len(problems) != 0 {
		t.Errorf("0/s is refused: %v", problems)
	}
}

func spec(t *testing.T, limit string) *rules.Spec {
	t.Helper()
	r, err := rules.ParseRate(limit)
	if err != nil {
		t.Fatal(err)
	}
	return &rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: r}}}
}

func TestTick(t *testing.T) {
	t.Parallel()
	for window, want := range map[time.Duration]time.Duration{
		time.Second: time.Microsecond, 10 * time.Second: time.Microsecond, 11 * time.Second: time.Millisecond,
		10_000 * time.Second: time.Millisecond, 10_001 * time.Second: time.Second,
	} {
		if got := rules.Tick(window); got != want {
			t.Errorf("Tick(%v) = %v, want %v", window, got, want)
		}
	}
}
