package rules

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Algorithm names how a limit counts.
type Algorithm string

// The algorithms.
const (
	// TokenBucket holds up to burst tokens and refills amount of them in each window.
	TokenBucket Algorithm = "token-bucket"
	// SlidingWindow admits about amount in any window: the count of the current window, and of the one before it the
	// share that the last window's length still covers.
	SlidingWindow Algorithm = "sliding-window"
)

// maxExact bounds every product and sum a verdict needs: 2^53, up to which a Lua number holds all integers.
const maxExact = 1 << 53

// The shortest and the longest window.
const (
	MinWindow = time.Second
	MaxWindow = 366 * 24 * time.Hour
)

// Rate is an amount in a window, with the burst a token bucket may save up: "60/min burst 120". All three numbers are
// enforced exactly. Or it is "unlimited". As text and in JSON it has that form.
type Rate struct {
	Amount    int64
	Window    time.Duration // whole seconds
	Burst     int64
	Unlimited bool // never refuses and counts nothing; the other fields are 0
}

const unlimited = "unlimited"

// maxRateText is far above what a rate has. Messages repeat the text.
const maxRateText = 100

// ParseRate reads `amount/window [burst amount]`, or `unlimited`. The window is an optional count and a unit: s, sec, second, min,
// minute, h, hour, d or day. Digits may be grouped with "_". Without a burst, the burst is the amount.
func ParseRate(text string) (Rate, error) {
	if len(text) > maxRateText {
		return Rate{}, fmt.Errorf(`a limit of %d bytes is none: write for example "60/min" or "60/min burst 120"`, len(text))
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return Rate{}, errors.New(`a limit is missing: write for example "60/min" or "60/min burst 120"`)
	}
	if len(fields) == 1 && fields[0] == unlimited {
		return Rate{Unlimited: true}, nil
	}
	amount, window, found := strings.Cut(fields[0], "/")
	if !found {
		return Rate{}, fmt.Errorf(`limit %q names no window: write for example "%s/min"`, text, fields[0])
	}
	var r Rate
	var err error
	if r.Amount, err = parseAmount(amount); err != nil {
		return Rate{}, fmt.Errorf("limit %q: %w", text, err)
	}
	if r.Window, err = parseWindow(window); err != nil {
		return Rate{}, fmt.Errorf("limit %q: %w", text, err)
	}
	switch {
	case len(fields) == 1:
		r.Burst = r.Amount
	case len(fields) == 3 && fields[1] == "burst":
		if r.Burst, err = parseAmount(fields[2]); err != nil {
			return Rate{}, fmt.Errorf("limit %q: burst: %w", text, err)
		}
	default:
		return Rate{}, fmt.Errorf(`limit %q: after the window only "burst AMOUNT" may follow`, text)
	}
	return r, nil
}

func parseAmount(text string) (int64, error) {
	digits := strings.ReplaceAll(text, "_", "")
	if digits == "" || strings.HasPrefix(text, "_") || strings.HasSuffix(text, "_") || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return n, nil
}

var units = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
}

func parseWindow(text string) (time.Duration, error) {
	unit := strings.TrimLeft(text, "0123456789")
	count := int64(1)
	if digits := text[:len(text)-len(unit)]; digits != "" {
		var err error
		if count, err = strconv.ParseInt(digits, 10, 64); err != nil {
			return 0, fmt.Errorf("window %q is too long: at most 366d", text)
		}
	}
	length, ok := units[unit]
	switch {
	case unit == "m" || unit == "month":
		return 0, fmt.Errorf(`window %q is ambiguous: write "%smin" for minutes or "%sd" for days`, text, text[:len(text)-len(unit)], text[:len(text)-len(unit)])
	case !ok:
		return 0, fmt.Errorf("window %q has no known unit: use s, min, h or d", text)
	case count < 1:
		return 0, fmt.Errorf("window %q is empty: at least 1s", text)
	case count > int64(MaxWindow/length):
		return 0, fmt.Errorf("window %q is too long: at most 366d", text)
	}
	return time.Duration(count) * length, nil
}

// String is the canonical form: the largest unit that divides the window, the burst only where it is not the amount.
func (r Rate) String() string {
	if r.Unlimited {
		return unlimited
	}
	text := strconv.FormatInt(r.Amount, 10) + "/" + windowText(r.Window)
	if r.Burst != r.Amount {
		text += " burst " + strconv.FormatInt(r.Burst, 10)
	}
	return text
}

func windowText(w time.Duration) string {
	unit, name := time.Second, "s"
	switch {
	case w%(24*time.Hour) == 0:
		unit, name = 24*time.Hour, "d"
	case w%time.Hour == 0:
		unit, name = time.Hour, "h"
	case w%time.Minute == 0:
		unit, name = time.Minute, "min"
	}
	if n := w / unit; n != 1 {
		return strconv.FormatInt(int64(n), 10) + name
	}
	return name
}

// MarshalText writes the canonical form.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what [ParseRate] reads.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// Tick is the unit of time a limit with this window counts in: 1 µs up to 10 s, 1 ms up to 10,000 s, 1 s above. Window
// divided by Tick is the W of the formulas, at most ten million for windows up to 10,000 s.
func Tick(window time.Duration) time.Duration {
	switch {
	case window <= 10*time.Second:
		return time.Microsecond
	case window <= 10_000*time.Second:
		return time.Millisecond
	}
	return time.Second
}

// check bounds the numbers so that 2·B·W and 3·A·W stay below 2^53, and says the largest allowed value otherwise.
func (r Rate) check(a Algorithm) error {
	if r.Unlimited {
		return nil
	}
	if r.Window < MinWindow || r.Window > MaxWindow || r.Window%time.Second != 0 {
		return fmt.Errorf("the window %s is not a number of whole seconds from 1s to 366d", r.Window)
	}
	ticks := int64(r.Window / Tick(r.Window))
	if largest := (maxExact - 1) / (3 * ticks); r.Amount > largest {
		return fmt.Errorf("limit %q: the amount is too large to be enforced exactly: at most %d per %s", r, largest, windowText(r.Window))
	}
	if a == SlidingWindow {
		if r.Burst != r.Amount {
			return fmt.Errorf("limit %q: a burst is only for %s; %s has none", r, TokenBucket, SlidingWindow)
		}
		return nil
	}
	if largest := (maxExact - 1) / (2 * ticks); r.Burst > largest {
		return fmt.Errorf("limit %q: the burst is too large to be enforced exactly: at most %d with this window", r, largest)
	}
	if r.Burst < 1 && r.Amount > 0 {
		return fmt.Errorf("limit %q: a burst below 1 admits nothing; write 0/%s to refuse always", r, windowText(r.Window))
	}
	return nil
}

// Limit is one limit of a spec: one rate, or one for each value of a source, such as a plan.
type Limit struct {
	Name      string    `json:"name,omitempty"` // "" where the spec has only one
	Algorithm Algorithm `json:"algorithm"`
	Rate      Rate      `json:"rate"` // with By, of all other values
	// By chooses among Values. All rates share algorithm and window, and the source is not part of the counter: changing
	// plan never gives a new budget.
	By     *Source         `json:"by,omitempty"`
	Values map[string]Rate `json:"values,omitempty"`
}

// Choose returns the rate for a request of the spec, and the value it was chosen by; "" where that is none of Values.
func (l *Limit) Choose(s *Spec, r *Request) (value string, rate Rate) {
	if l.By == nil {
		return "", l.Rate
	}
	if given, n := l.By.value(r, s.Match.Path); n > 0 {
		if rate, ok := l.Values[given]; ok {
			return given, rate
		}
	}
	return "", l.Rate
}

// Rates returns all rates: the first is Rate, the others follow in the order of their values.
func (l *Limit) Rates() []Rate {
	rates := []Rate{l.Rate}
	for _, value := range slices.Sorted(maps.Keys(l.Values)) {
		rates = append(rates, l.Values[value])
	}
	return rates
}

// Window is the one window of all rates; 0 when all of them are unlimited. A rate of 0 refuses whatever its window, so it
// may be written with another one ("0/s") and is counted in that of the others.
func (l *Limit) Window() time.Duration {
	window, zero := time.Duration(0), time.Duration(0)
	see := func(r Rate) {
		switch {
		case r.Unlimited:
		case r.Amount == 0:
			zero = max(zero, r.Window)
		default:
			window = r.Window
		}
	}
	for _, r := range l.Values {
		see(r)
	}
	see(l.Rate) // last: it counts where the others are at odds with it, which validation reports
	return cmp.Or(window, zero)
}

// Ceiling is the largest burst of a token bucket, or the largest amount of a sliding window, over all rates.
func (l *Limit) Ceiling() int64 {
	most := l.Rate.Burst
	for _, r := range l.Values {
		most = max(most, r.Burst)
	}
	return most
}
