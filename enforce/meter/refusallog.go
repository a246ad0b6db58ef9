package meter

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules/tally"
)

// RefusalLogOptions say what is logged.
type RefusalLogOptions struct {
	Log *slog.Logger
	// Rate is how many refusals are logged in a second, at least 1. The others are left out: counted, and said once a second.
	Rate int
	// Would logs what would have been refused, too.
	Would      bool
	Registerer prometheus.Registerer
}

// RefusalLog writes refusals to a structured log, of which a bounded rate is written, and none on the request path. Values
// of keys are masked as in [tally.Label].
type RefusalLog struct {
	o       RefusalLogOptions
	left    atomic.Int64 // that may still be logged in this second
	omitted atomic.Int64
	waiting chan refusal
}

// NewRefusalLog returns a log that begins with Run.
func NewRefusalLog(o RefusalLogOptions) *RefusalLog {
	l := &RefusalLog{o: o, waiting: make(chan refusal, o.Rate)}
	l.left.Store(int64(o.Rate))
	o.Registerer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headgate_refusals_not_logged_total", Help: "Refusals that the log of refusals left out, to keep to its rate.",
	}, func() float64 { return float64(l.omitted.Load()) }))
	return l
}

// offer never waits.
func (l *RefusalLog) offer(v *version, d *enforce.Decision, o *enforce.VersionOutcome) {
	if o.WhatIf && !l.o.Would {
		return
	}
	if l.left.Load() > 0 && l.left.Add(-1) >= 0 {
		select {
		case l.waiting <- newRefusal(v, d, o):
			return
		default:
		}
	}
	l.omitted.Add(1)
}

// Run writes until ctx ends, and then what was offered until then.
func (l *RefusalLog) Run(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var said int64
	sayOmitted := func() {
		if n := l.omitted.Load(); n > said {
			l.o.Log.InfoContext(ctx, "refusals left out of the log", "refusals", n-said)
			said = n
		}
	}
	for {
		select {
		case r := <-l.waiting:
			l.write(ctx, &r)
		case <-second.C:
			sayOmitted()
			l.left.Store(int64(l.o.Rate))
		case <-ctx.Done():
			for range len(l.waiting) {
				r := <-l.waiting
				l.write(ctx, &r)
			}
			sayOmitted()
			return nil
		}
	}
}

// write has the time of the refusal, not that of the writing.
func (l *RefusalLog) write(ctx context.Context, r *refusal) {
	message := "request refused"
	if r.outcome == tally.WouldRefuse {
		message = "request would be refused"
	}
	line := slog.NewRecord(r.at, slog.LevelInfo, message, 0)
	line.AddAttrs(
		slog.String("rule", r.version.domain+"/"+r.version.rule), slog.Int64("version", r.version.number), slog.String("key", r.label()),
		slog.String("path", r.shownPath()), slog.String("limit", r.limit), slog.String("decision", r.outcome.String()),
		slog.String("reference", r.reference),
	)
	if h := l.o.Log.Handler(); h.Enabled(ctx, slog.LevelInfo) {
		_ = h.Handle(ctx, line) // as slog.Logger does
	}
}
