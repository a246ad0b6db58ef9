package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/storage/sqlite"
)

// Options say what to measure.
type Options struct {
	Subscribers int
	Rules       int
	Few         int // rules of the small domain; 0: it is left out
	Compared    int // rules in the comparison with LinearCache; 0: it is left out
	Changes     int
	Clients     int      // in the rollback; 0: it is left out
	Memory      bool     // a ledger in memory in place of SQLite
	Rulectl     string   // the program that is measured in the rollback
	Program     string   // of the child that has the subscribers; "": they are in this process
	Args        []string // of it
}

// Run measures everything and writes the table as it goes.
func Run(ctx context.Context, o Options, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "headgate-load-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &run{o: o, dir: dir, report: NewReport(w)}
	if err := r.crowded(ctx, o.Rules, r.whole); err != nil {
		return err
	}
	if o.Few > 0 {
		if err := r.crowded(ctx, o.Few, r.few); err != nil {
			return err
		}
	}
	if o.Compared > 0 {
		if err := r.crowded(ctx, o.Compared, r.compare); err != nil {
			return err
		}
	}
	if o.Clients == 0 {
		return nil
	}
	if err := r.rollback(ctx, "subscribers", Connect{Subscribers: o.Subscribers}); err != nil {
		return err
	}
	return r.rollback(ctx, "clients of sidecars", Connect{Subscribers: o.Clients, Clients: true})
}

type run struct {
	o      Options
	dir    string
	stores int
	report *Report
}

// open returns an empty store and what closes it.
func (r *run) open(ctx context.Context) (rollout.Store, func() error, error) {
	if r.o.Memory {
		return rollouttest.New(), func() error { return nil }, nil
	}
	r.stores++
	store, err := sqlite.Open(ctx, filepath.Join(r.dir, fmt.Sprintf("%d.db", r.stores)))
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}

// crowded runs a measurement on a control plane with n rules and a crowd that is not connected yet.
func (r *run) crowded(ctx context.Context, n int, measure func(context.Context, *Plane, *Remote, int) error) (err error) {
	store, closeStore, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	plane, err := NewPlane(ctx, store, n)
	if err != nil {
		return err
	}
	defer plane.Stop()
	crowd, err := r.crowd(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crowd.Stop()) }()
	return measure(ctx, plane, crowd, n)
}

func (r *run) crowd(ctx context.Context) (*Remote, error) {
	if r.o.Program == "" {
		return Start(), nil
	}
	return StartChild(ctx, r.o.Program, r.o.Args...)
}

// whole measures all there is to know of one size.
func (r *run) whole(ctx context.Context, p *Plane, crowd *Remote, rules int) error {
	n, before := r.o.Subscribers, MemoryNow()
	took, size, err := FromNothing(ctx, p, crowd, n, rules)
	if err != nil {
		return err
	}
	if err := r.fanOut(ctx, p, crowd, rules); err != nil {
		return err
	}
	each := MemoryNow().Each(before, n)
	half := "of the control plane"
	if r.o.Program == "" {
		half = "of the control plane and the subscriber"
	}
	r.report.Row("≤ 50 KB", Kilobytes(each.Heap), "heap for each subscriber, %s", half)
	r.report.Row("", Kilobytes(each.Stack), "goroutine stacks for each subscriber, %s", half)
	r.report.Row("", Milliseconds(took), "all connect at once, from nothing, until the last has %d rules: %s each", rules, Kilobytes(size))
	if took, err = HoldingTheHead(ctx, p, crowd, n); err != nil {
		return err
	}
	r.report.Row("", Milliseconds(took), "all connect at once, holding the head of %d rules, until all are known to have it; nothing is sent", rules)
	return nil
}

func (r *run) few(ctx context.Context, p *Plane, crowd *Remote, rules int) error {
	if _, _, err := FromNothing(ctx, p, crowd, r.o.Subscribers, rules); err != nil {
		return err
	}
	return r.fanOut(ctx, p, crowd, rules)
}

// fanOut measures changes of a rule, and writes the figures.
func (r *run) fanOut(ctx context.Context, p *Plane, crowd *Remote, rules int) error {
	s, err := r.spread(ctx, p, crowd, rules)
	if err != nil {
		return err
	}
	r.report.Row("≤ 40 ms", Milliseconds(s.P50), "one changed rule of %d reaches a subscriber: p50", rules)
	r.report.Row("≤ 80 ms", Milliseconds(s.Last), "the last of %d subscribers: median of %d changes", r.o.Subscribers, r.o.Changes)
	r.report.Row("", Milliseconds(s.Max), "the last of %d subscribers: worst of %d changes", r.o.Subscribers, r.o.Changes)
	return nil
}

func (r *run) spread(ctx context.Context, p *Plane, crowd *Remote, rules int) (Spread, error) {
	rule := rules / 2
	revision, err := p.Try(ctx, rule)
	if err != nil {
		return Spread{}, err
	}
	if _, err := crowd.Await(revision); err != nil {
		return Spread{}, err
	}
	return FanOut(ctx, p, crowd, rule, r.o.Changes)
}

// compare lets LinearCache do the same with the same resources, subscribers and changes.
func (r *run) compare(ctx context.Context, p *Plane, crowd *Remote, rules int) error {
	n, before := r.o.Subscribers, MemoryNow()
	if _, _, err := FromNothing(ctx, p, crowd, n, rules); err != nil {
		return err
	}
	ours, err := r.spread(ctx, p, crowd, rules)
	if err != nil {
		return err
	}
	oursEach := MemoryNow().Each(before, n)
	if err := crowd.Close(); err != nil {
		return err
	}
	l, err := NewLinear(ctx, p)
	if err != nil {
		return err
	}
	defer l.Stop()
	before = MemoryNow()
	if _, err := crowd.Connect(Connect{Addr: l.Addr, Subscribers: n}); err != nil {
		return err
	}
	if _, err := crowd.Await(l.revision); err != nil {
		return err
	}
	theirs, err := FanOut(ctx, l, crowd, rules/2, r.o.Changes)
	if err != nil {
		return err
	}
	theirsEach := MemoryNow().Each(before, n)
	ratio := func(theirs, ours float64) string { return fmt.Sprintf("%.1f ×", theirs/ours) }
	r.report.Row("", Milliseconds(ours.P50)+", "+Milliseconds(ours.Last), "one changed rule of %d: p50 and last", rules)
	r.report.Row("", Milliseconds(theirs.P50)+", "+Milliseconds(theirs.Last), "the same with LinearCache")
	r.report.Row("", ratio(float64(theirs.P50), float64(ours.P50))+", "+ratio(float64(theirs.Last), float64(ours.Last)), "LinearCache takes longer by")
	r.report.Row("", Kilobytes(oursEach.Heap)+", "+Kilobytes(theirsEach.Heap), "heap for each subscriber, with %d rules: ours, LinearCache", rules)
	return nil
}
