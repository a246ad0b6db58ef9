package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// span is the value of a flag that says how long: as Go writes durations, and in days ("90d").
type span time.Duration

func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Type names the values in the help.
func (s *span) Type() string { return "DURATION" }

// Set reads the flag.
func (s *span) Set(value string) error {
	d, err := time.ParseDuration(value)
	if days, ok := strings.CutSuffix(value, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(days, 10, 16) // so that the length fits
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is no length of time above 0, such as 15m, 2h or 90d", value)
	}
	*s = span(d)
	return nil
}

// timeText is how times are written in tables.
const timeText = "2006-01-02 15:04:05Z"

func when(t time.Time) string { return t.UTC().Format(timeText) }

// left is how long it takes until the time: "12m".
func left(until, now time.Time) string { return age(until.Sub(now)) }

// timeJSON is a time in JSON; "" for one that is absent.
func timeJSON(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339)
}
