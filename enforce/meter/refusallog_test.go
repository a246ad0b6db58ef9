package meter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules/tally"
)

func TestRefusalLogTellsOfEachRefusalAndNoSecret(t *testing.T) {
	t.Parallel()
	for _, would := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			reg := prometheus.NewRegistry()
			l := meter.NewRefusalLog(meter.RefusalLogOptions{Log: slog.New(slog.NewJSONHandler(&out, nil)), Rate: 2, Would: would, Registerer: reg})
			m := meter.New(reg, meter.WithRefusalLog(l))
			r := newRule(t, "r", 3)
			r.Stable.Spec.Key = specOf(t, "header:authorization", "ip").Key
			m.Install(indexOf(r))
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- l.Run(ctx) }()
			begun := time.Now()
			for i, o := range []tally.Outcome{tally.Refused, tally.WouldRefuse, tally.Allowed, tally.FailedClosed, tally.LocalRefused, tally.Refused} {
				req := requestOf(1)
				req.Path = "/v1/" + fmt.Sprint(i) + "\n"
				req.Header = map[string][]string{"Authorization": {"secret"}}
				m.Record("d", &enforce.Decision{Reference: fmt.Sprint("ref", i), Outcomes: []enforce.VersionOutcome{outcome(r, o, req)}})
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			line := func(i int, message, limit, decision string) string {
				at := begun.Add(time.Duration(i) * 500 * time.Millisecond).Format(time.RFC3339Nano)
				return fmt.Sprintf("%s %s d/r 3 LABEL /v1/%d\uFFFD %s %s ref%d", at, message, i, limit, decision, i)
			}
			want := []string{
				line(0, "request refused", "day", "refused"), line(3, "request refused", "", "failed_closed"),
				line(4, "request refused", "", "local_refused"), line(5, "request refused", "day", "refused"),
			}
			if would {
				want = append(want[:1:1], append([]string{line(1, "request would be refused", "day", "would_refuse")}, want[1:]...)...)
			}
			if diff := cmp.Diff(want, linesOf(t, &out)); diff != "" {
				t.Errorf("would %v (-want +got):\n%s", would, diff)
			}
		})
	}
}

// A value that any rule of the request hashes is part of the path that all of them show.
func TestPathOfARefusalHidesWhatIsHashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		reg := prometheus.NewRegistry()
		l := meter.NewRefusalLog(meter.RefusalLogOptions{Log: slog.New(slog.NewJSONHandler(&out, nil)), Rate: 2, Registerer: reg})
		m := meter.New(reg, meter.WithRefusalLog(l))
		all, reset := newRule(t, "all", 1), newRule(t, "reset", 1)
		reset.Stable.Spec.Key = specOf(t, "path.token").Key
		reset.Stable.Spec.Key[0].Hash = true
		reset.Stable.Spec.Match.Path = []string{"/reset/{token}"}
		m.Install(indexOf(all, reset))
		req := requestOf(1)
		req.Path = "/reset/s3cret"
		m.Record("d", &enforce.Decision{Outcomes: []enforce.VersionOutcome{outcome(all, tally.Refused, req), outcome(reset, tally.Refused, req)}})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		if text := out.String(); strings.Count(text, `"path":"/reset/#"`) != 2 || strings.Contains(text, "s3cret") {
			t.Errorf("logged %s", text)
		}
		for _, r := range m.Close(time.Now(), false).Refusals {
			if r.Path != "/reset/#" {
				t.Errorf("rule %s reports %s", r.UID, r.Path)
			}
		}
	})
}

func TestRefusalLogSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		reg := prometheus.NewRegistry()
		l := meter.NewRefusalLog(meter.RefusalLogOptions{Log: slog.New(slog.NewJSONHandler(&out, nil)), Rate: 2, Registerer: reg})
		m := meter.New(reg, meter.WithRefusalLog(l))
		r := newRule(t, "r", 1)
		m.Install(indexOf(r))
		storm := func() {
			for range 10 {
				d := refusal(r, 1)
				m.Record("d", &d)
			}
		}
		storm() // the log does not run yet, and nobody waits for it
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		storm()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		lines := linesOf(t, &out)
		var short []string
		for _, l := range lines {
			_, rest, _ := strings.Cut(l, " ")
			short = append(short, rest)
		}
		refused, left := "request refused d/r 1 10.0.0.* /v1/x day refused ref", "8 left out"
		if diff := cmp.Diff([]string{refused, refused, left, refused, refused, left}, short); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n := metric(t, reg, "headgate_refusals_not_logged_total"); n != 16 {
			t.Errorf("%v not logged, want 16", n)
		}
	})
}

// linesOf makes a log readable; a key that is not shown as hashed where it has to be stays as it is.
func linesOf(t *testing.T, out *bytes.Buffer) (lines []string) {
	t.Helper()
	for text := range strings.Lines(out.String()) {
		var l struct {
			Time                                             time.Time
			Msg, Rule, Key, Path, Limit, Decision, Reference string
			Version, Refusals                                int
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		at := l.Time.Format(time.RFC3339Nano)
		if l.Refusals > 0 {
			lines = append(lines, fmt.Sprintf("%s %d left out", at, l.Refusals))
			continue
		}
		if strings.HasPrefix(l.Key, "#") && strings.HasSuffix(l.Key, ",10.0.0.*") {
			l.Key = "LABEL"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %d %s %s %s %s %s", at, l.Msg, l.Rule, l.Version, l.Key, l.Path, l.Limit, l.Decision, l.Reference))
	}
	return lines
}
