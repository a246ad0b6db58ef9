package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
)

// Tallies is what was counted: part of a [tally.Store].
type Tallies interface {
	Series(ctx context.Context, q tally.Query) ([]tally.Point, error)
	Keys(ctx context.Context, q tally.Query) ([]tally.VersionKeys, error)
}

// Rules is what is known of rules: part of a [rollout.Ledger].
type Rules interface {
	Rules(ctx context.Context, domain string) ([]rules.Rule, error)
	History(ctx context.Context, domain, name string) ([]rollout.Entry, error)
	Silences(ctx context.Context, domain string) ([]rollout.Silence, error)
}

const (
	// catchUp is how much of what nobody looked at, since there was no leader, becomes part of the baselines.
	catchUp = time.Hour
	// clockBack is by how much the last round may be later than the clock. More, and a clock has been set back: rounds go on.
	clockBack = 5 * time.Minute
	// faded is how many decisions a baseline has to know, to be worth keeping.
	faded = 1
)

// Options are the settings of a [Watcher].
type Options struct {
	Now        func() time.Time      // nil: time.Now
	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: none
}

// Watcher makes the rounds. Only the leader's is to run: others would only meet conflicts. It is not safe for concurrent use.
type Watcher struct {
	store   Store
	tallies Tallies
	rules   Rules
	now     func() time.Time
	log     *slog.Logger
	firing  *prometheus.GaugeVec
	shown   map[[2]string]float64 // the series of firing, by domain and rule
}

// NewWatcher returns a watcher, which runs once [Watcher.Run] is called.
func NewWatcher(store Store, tallies Tallies, rules Rules, o Options) (*Watcher, error) {
	w := &Watcher{store: store, tallies: tallies, rules: rules, now: o.Now, log: o.Log, firing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "headgate_alerts_firing", Help: "Alerts of a rule that fire. Only the control plane that leads has series.",
	}, []string{"domain", "rule"})}
	if w.now == nil {
		w.now = time.Now
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(w.firing); err != nil {
			return nil, fmt.Errorf("register the metric of alerts: %w", err)
		}
	}
	return w, nil
}

// Run makes a round at every multiple of thirty seconds until ctx ends, and returns nil then. A round that fails is a
// round less.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.show(nil)
	for {
		if err := w.Look(ctx); errors.Is(err, rules.ErrConflict) {
			w.log.Info("another control plane made this round of alerts")
		} else if err != nil && ctx.Err() == nil {
			w.log.Warn("alerts could not be evaluated", "err", err)
		}
		next := w.now().Truncate(spike.Every).Add(spike.Every)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next.Sub(w.now())):
		}
	}
}

// Look makes the round that is due, unless it was made.
func (w *Watcher) Look(ctx context.Context) error {
	at := w.now().UTC().Truncate(spike.Every)
	last, err := w.store.LastRound(ctx)
	if err != nil {
		return fmt.Errorf("evaluate alerts: %w", err)
	}
	if ahead := last.At.Sub(at); ahead >= 0 && ahead < clockBack {
		w.show(last.Alerts)
		return nil
	}
	l := &look{Watcher: w, at: at, last: last, next: Round{At: at, Settled: at.Add(-spike.Lag)}}
	if err := l.run(ctx); err != nil {
		return fmt.Errorf("evaluate alerts: %w", err)
	}
	if err := w.store.SaveRound(ctx, last.At, l.next); err != nil {
		return fmt.Errorf("evaluate alerts: %w", err)
	}
	w.show(l.firing())
	for i := range l.next.Alerts {
		a := &l.next.Alerts[i]
		if a.Resolved.IsZero() {
			w.log.Warn("alert", "rule", a.Domain+"/"+a.Rule, "version", a.Version, "severity", a.Severity, "summary", a.Summary(), "hits", a.Hits)
		} else {
			w.log.Info("alert resolved", "rule", a.Domain+"/"+a.Rule, "version", a.Version, "why", a.Ending)
		}
	}
	return nil
}

// show makes the metric say what fires. A series goes on while its rule does: made anew each time, it would be missed
// by who looks meanwhile.
func (w *Watcher) show(firing []Alert) {
	counts := map[[2]string]float64{}
	for i := range firing {
		counts[[2]string{firing[i].Domain, firing[i].Rule}]++
	}
	for of, n := range counts {
		w.firing.WithLabelValues(of[0], of[1]).Set(n)
	}
	for of := range w.shown {
		if counts[of] == 0 {
			w.firing.DeleteLabelValues(of[0], of[1])
		}
	}
	w.shown = counts
}

// counts are what one version counted.
type counts struct {
	refused, would spike.Count // of the last five minutes
	shared         int64       // of those judged then, refused by other rules
	settled        spike.Count
}

// read asks for what all rules counted: two queries, however many rules there are.
func (w *Watcher) read(ctx context.Context, settledFrom, at time.Time) (map[VersionID]counts, error) {
	all := map[VersionID]counts{}
	recent, err := w.tallies.Series(ctx, tally.Query{From: at.Add(-spike.Window), To: at, Step: tally.StepWindow})
	if err != nil {
		return nil, err
	}
	for i := range recent {
		p := &recent[i]
		c := all[VersionID{p.UID, p.Version}]
		would, _ := p.Counts.WouldRefuse()
		c.refused = plus(c.refused, p.Counts.Refusals(), p.Counts.Bound())
		c.would = plus(c.would, would, p.Counts.Judged())
		shared, _ := p.Counts.Shared()
		c.shared += shared
		all[VersionID{p.UID, p.Version}] = c
	}
	settled, err := w.tallies.Series(ctx, tally.Query{From: settledFrom, To: at.Add(-spike.Lag), Step: tally.StepWindow})
	if err != nil {
		return nil, err
	}
	for i := range settled {
		p := &settled[i]
		c := all[VersionID{p.UID, p.Version}]
		would, _ := p.Counts.WouldRefuse()
		c.settled = plus(c.settled, p.Counts.Refusals()+would, p.Counts.Bound()+p.Counts.Judged())
		all[VersionID{p.UID, p.Version}] = c
	}
	return all, nil
}

func plus(c spike.Count, refused, of int64) spike.Count {
	return spike.Count{Refused: c.Refused + refused, Of: c.Of + of}
}

func compareVersions(a, b VersionID) int {
	return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version))
}

// later returns the later of two times.
func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
