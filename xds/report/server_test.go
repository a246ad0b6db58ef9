package report

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/rpcstatus"
	"github.com/headgate/headgate/xds/xdspb"
)

func TestWhatANodeCannotHaveCountedIsLeftOut(t *testing.T) {
	t.Parallel()
	keys := func(n int, k *xdspb.KeyCount) (list []*xdspb.KeyCount) {
		for i := range n {
			list = append(list, &xdspb.KeyCount{Key: append([]byte{byte(i)}, make([]byte, 15)...), Label: k.GetLabel(), Refused: k.GetRefused(), Over: k.GetOver()})
		}
		return list
	}
	refusal := func(change func(*xdspb.Refusal)) func(*xdspb.Window) {
		return func(w *xdspb.Window) {
			r := &xdspb.Refusal{Time: w.GetEnd(), Domain: "api", Uid: "uid-a", Version: 1, Outcome: uint32(tally.Refused), Key: make([]byte, 16)}
			change(r)
			w.Refusals = append(w.Refusals, r)
		}
	}
	version := func(v *xdspb.VersionTally) func(*xdspb.Window) {
		return func(w *xdspb.Window) { w.Versions = append(w.Versions, v) }
	}
	domain := func(d *xdspb.DomainTally) func(*xdspb.Window) {
		return func(w *xdspb.Window) { w.Domains = append(w.Domains, d) }
	}
	rates := func(r *xdspb.KeyRates) func(*xdspb.Window) {
		return version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Rates: r})
	}
	many := &xdspb.KeyRates{Keys: make([]uint64, tally.MaxRateKeys+1), Calls: make([]int64, tally.MaxRateKeys+1)}
	for i := range many.GetKeys() {
		many.Keys[i], many.Calls[i] = uint64(i), 1
	}
	for name, test := range map[string]struct {
		forge  func(*xdspb.Window)
		reason string
	}{
		"a rule that never was":        {version(versionTally("uid-x", 1, 1)), refusedUnknown},
		"a version that never was":     {version(versionTally("uid-a", 4, 1)), refusedUnknown},
		"a number that was left out":   {version(versionTally("uid-c", 1, 1)), refusedUnknown},
		"version zero":                 {version(versionTally("uid-a", 0, 1)), refusedMalformed},
		"a version that was not sent":  {version(versionTally("uid-a", 3, 1)), refusedUnsent},
		"a version that it refused":    {version(versionTally("uid-a", 2, 1)), refusedRejected},
		"a rule of another domain":     {version(versionTally("uid-b", 1, 1)), refusedDomain},
		"a domain that is not its own": {version(&xdspb.VersionTally{Domain: "web", Uid: "uid-b", Version: 1, Counts: []int64{1}}), refusedDomain},
		"the same again":               {version(versionTally("uid-a", 1, 1)), refusedMalformed},
		"less than nothing":            {version(versionTally("uid-b", 1, -1)), refusedMalformed},
		"cells that are not there":     {version(versionTally("uid-b", 1, make([]int64, tally.Cells+1)...)), refusedMalformed},
		"more than can be":             {version(versionTally("uid-b", 1, 1<<40)), refusedRate},
		"an overflow":                  {version(versionTally("uid-b", 1, 1<<62, 1<<62, 1<<62)), refusedRate},
		"no uid":                       {version(versionTally("", 1, 1)), refusedMalformed},
		"a uid with a NUL":             {version(versionTally("a\x00", 1, 1)), refusedMalformed},
		"too many keys": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Keys: keys(tally.MaxTopKeys+1, &xdspb.KeyCount{Refused: 1})}), refusedMalformed,
		},
		"a short key": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Keys: []*xdspb.KeyCount{{Key: []byte{1}}}}), refusedMalformed,
		},
		"a key twice": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Keys: append(keys(1, nil), keys(1, nil)...)}), refusedMalformed,
		},
		"a label of controls": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Keys: keys(1, &xdspb.KeyCount{Label: "\x1b[31m"})}), refusedMalformed,
		},
		"a key of more than can be": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Keys: keys(1, &xdspb.KeyCount{Over: 1 << 50})}), refusedRate,
		},
		"a sketch of nothing": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Distinct: []byte("nonsense")}), refusedMalformed,
		},
		"a sketch of more keys than can be": {
			version(&xdspb.VersionTally{Domain: "api", Uid: "uid-b", Version: 1, Distinct: fullSketch}), refusedRate,
		},
		"too many rates":                     {rates(many), refusedMalformed},
		"a rate of no key":                   {rates(&xdspb.KeyRates{Calls: []int64{1}}), refusedMalformed},
		"a rate of a key twice":              {rates(&xdspb.KeyRates{Keys: []uint64{1, 1}, Calls: []int64{1, 1}}), refusedMalformed},
		"a rate of a key not of its level":   {rates(&xdspb.KeyRates{Level: 1, Keys: []uint64{1 << 63}, Calls: []int64{1}}), refusedMalformed},
		"a rate of no level":                 {rates(&xdspb.KeyRates{Level: 64}), refusedMalformed},
		"a rate of no call":                  {rates(&xdspb.KeyRates{Keys: []uint64{1}, Calls: []int64{0}}), refusedMalformed},
		"rates of more calls than can be":    {rates(&xdspb.KeyRates{Keys: []uint64{1, 2}, Calls: []int64{1 << 25, 1 << 25}}), refusedRate},
		"another's domain's counts":          {domain(&xdspb.DomainTally{Domain: "web", Counts: []int64{1}}), refusedDomain},
		"a domain's counts below nothing":    {domain(&xdspb.DomainTally{Domain: "api", Counts: []int64{-1}}), refusedMalformed},
		"a domain's cells":                   {domain(&xdspb.DomainTally{Domain: "api", Counts: make([]int64, tally.DomainCells+1)}), refusedMalformed},
		"a refusal of no outcome":            {refusal(func(r *xdspb.Refusal) { r.Outcome = 1000 }), refusedMalformed},
		"a refusal that allowed":             {refusal(func(r *xdspb.Refusal) { r.Outcome = uint32(tally.Allowed) }), refusedMalformed},
		"a refusal with a path of a mile":    {refusal(func(r *xdspb.Refusal) { r.Path = strings.Repeat("/", tally.MaxPath+1) }), refusedMalformed},
		"a refusal with a line break":        {refusal(func(r *xdspb.Refusal) { r.Label = "a\nb" }), refusedMalformed},
		"a refusal by an unsent version":     {refusal(func(r *xdspb.Refusal) { r.Version = 3 }), refusedUnsent},
		"a window of the future":             {func(w *xdspb.Window) { w.End += time.Hour.Microseconds() }, refusedTime},
		"a window of last year":              {func(w *xdspb.Window) { w.Start -= (365 * 24 * time.Hour).Microseconds() }, refusedTime},
		"a window that ends before it began": {func(w *xdspb.Window) { w.Start = w.GetEnd() + 1 }, refusedTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				// It refused what revision 3 made of rule a, and holds what was before.
				p.nodes.set(rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Lineage: "one", Sent: 5, Acked: 2, Nacked: 3, Refused: []string{"a"}})
				p.start()
				defer p.down()
				r := p.named("api")
				defer r.close()
				w := closed(1, versionTally("uid-a", 1, 10))
				test.forge(w)
				r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{w}})
				if n := r.stored(); n != 1 {
					t.Errorf("stored up to %d, want 1", n)
				}
				if n := p.refused(test.reason); n != 1 {
					t.Errorf("counted %v of %s, want 1", n, test.reason)
				}
				want := int64(10)
				if test.reason == refusedTime {
					want = 0
				}
				if n := p.store.count("uid-a", 1, allowed); n != want {
					t.Errorf("of the rest, %d were stored, want %d", n, want)
				}
				list := p.store.stored()
				if len(list) != 1 || len(list[0].Versions) != int(min(want, 1)) || len(list[0].Domains)+len(list[0].Refusals) > 0 {
					t.Errorf("stored %+v", list)
				}
				if at := list[0].End; at.After(time.Now()) || at.Before(time.Now().Add(-time.Minute)) {
					t.Errorf("stored as of %v", at)
				}
			})
		})
	}
}

// Each of them can be, and all of them cannot.
func TestLongWindowsAreBelievedAsFarAsAnOutageMayHaveMadeThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		r := p.named("api")
		defer r.close()
		const month = 34 * 24 * time.Hour
		for number := range int64(12) {
			w := closed(number+1, versionTally("uid-a", 1, 1<<41))
			w.Start = w.GetEnd() - month.Microseconds()
			r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{w}})
			r.stored()
		}
		if n := p.store.count("uid-a", 1, allowed); n != 10<<41 {
			t.Errorf("stored %d, want those of ten windows", n)
		}
		if n := p.refused(refusedRate); n != 2 {
			t.Errorf("refused %v, want 2", n)
		}
		r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{closed(13, versionTally("uid-a", 1, 10_000_000))}})
		r.stored()
		if n := p.store.count("uid-a", 1, allowed); n != 10<<41+10_000_000 {
			t.Errorf("stored %d: a window of ten seconds is believed still", n)
		}
	})
}

// fullSketch has the highest value in each of its 4096 registers.
var fullSketch = append([]byte{2, 12, 0, 0, 0, 0, 16, 0}, bytes.Repeat([]byte{53}, 4096)...)

// An acknowledgement may be written down after the first counts came.
func TestCountsOfAVersionThatIsJustBeingSentWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		r := p.named("api")
		defer r.close()
		send := func(number, version int64) time.Duration {
			began := time.Now()
			r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{closed(number, versionTally("uid-a", version, 4))}})
			if n := r.stored(); n != number {
				t.Errorf("stored up to %d, want %d", n, number)
			}
			return time.Since(began)
		}
		time.AfterFunc(3*time.Second, func() {
			p.nodes.set(rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Sent: 7})
		})
		if took := send(1, 3); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("stored after %v, want soon after it was sent", took)
		}
		p.store.mu.Lock()
		b := p.store.births["uid-a"]
		p.store.mu.Unlock()
		time.AfterFunc(3*time.Second, func() {
			p.store.mu.Lock()
			defer p.store.mu.Unlock()
			b.Revisions = append(b.Revisions, 7)
			p.store.births["uid-a"] = b
		})
		if took := send(2, 4); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("stored after %v, want soon after it was born", took)
		}
		for _, version := range []int64{3, 4} {
			if n := p.store.count("uid-a", version, allowed); n != 4 {
				t.Errorf("version %d: %d stored, want 4", version, n)
			}
		}
		// What never becomes true holds up one window, not each.
		if first, then := send(3, 9), send(4, 9); first < believeWithin || then > time.Second {
			t.Errorf("waited %v and %v for what never was", first, then)
		}
		if n := p.refused(refusedUnknown); n != 2 {
			t.Errorf("counted %v, want 2", n)
		}
	})
}

// A control plane that is killed may not have written down what it had sent, and the node's next stream of rules may open
// long after that of its counts.
func TestCountsOfANodeWhoseStreamOfRulesIsNotOpenWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		clear(p.nodes.here)
		old := rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Lineage: "one", Sent: 5, Connected: true, Seen: time.Now()}
		p.nodes.saved["n1 api"] = old
		p.start()
		defer p.down()
		time.Sleep(time.Second)
		r := p.named("api")
		defer r.close()
		time.AfterFunc(time.Minute, func() {
			p.nodes.set(rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Lineage: "one", Sent: 7})
		})
		began := time.Now()
		r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{closed(1, versionTally("uid-a", 3, 4))}})
		if n := r.stored(); n != 1 || time.Since(began) < time.Minute {
			t.Errorf("stored up to %d after %v, want 1 after a minute", n, time.Since(began))
		}
		if n := p.store.count("uid-a", 3, allowed); n != 4 {
			t.Errorf("%d stored, want 4", n)
		}
	})
}

// A node that falls behind another history keeps what it counted.
func TestStreamOfANodeWhoseHistoryWasReplacedEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		s := p.sidecar(nil)
		defer s.stop()
		foreign := rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Lineage: "one"}
		time.Sleep(time.Minute)
		p.nodes.set(foreign)
		for range 300 {
			s.counts.add("api", "uid-a", 1, allowed, 1)
			time.Sleep(time.Second)
		}
		if p.store.count("uid-a", 1, allowed) != 0 {
			t.Error("counts of another history are stored")
		}
		foreign.Sent = 5
		p.nodes.set(foreign)
		time.Sleep(time.Minute)
		s.stop()
		wantExact(t, p.store, s.counts)
	})
}

// Rates are looked at for an hour. Of a month, each minute could have made a row for each version.
func TestOldRatesAreNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		r := p.named("api")
		defer r.close()
		old, young := closed(1, versionTally("uid-a", 1, 1)), closed(2, versionTally("uid-a", 1, 1))
		for _, w := range []*xdspb.Window{old, young} {
			w.Versions[0].Rates = &xdspb.KeyRates{Keys: []uint64{1}, Calls: []int64{1}}
		}
		old.Start -= (2 * time.Hour).Microseconds()
		old.End -= (2 * time.Hour).Microseconds()
		r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{old, young}})
		r.stored()
		for i, want := range []int{0, 1} {
			if v := p.store.stored()[i].Versions[0]; len(v.Rates.Keys) != want || v.Counts[0] != 1 {
				t.Errorf("window %d is stored as %+v, want its counts and the rates of %d keys", i+1, v, want)
			}
		}
	})
}

func TestTimesAreMovedByWholeWindows(t *testing.T) {
	t.Parallel()
	for off, want := range map[time.Duration]time.Duration{
		0: 0, 3 * time.Second: 0, -4 * time.Second: 0, 7 * time.Second: -10 * time.Second, -time.Hour - 3*time.Second: time.Hour,
		30 * 365 * 24 * time.Hour: -30 * 365 * 24 * time.Hour,
	} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				p.start()
				defer p.down()
				r := p.raw()
				defer r.close()
				m := hello("api")
				m.Now = time.Now().Add(off).UnixMicro()
				r.send(m)
				r.stored()
				w := closed(1, versionTally("uid-a", 1, 1))
				w.Start += off.Microseconds()
				w.End += off.Microseconds()
				w.Refusals = []*xdspb.Refusal{{
					Time: w.GetStart() + 1, Domain: "api", Uid: "uid-a", Version: 1, Outcome: uint32(tally.Refused), Key: make([]byte, 16),
				}}
				r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{w}})
				r.stored()
				got := p.store.stored()[0]
				if moved := got.Start.Sub(time.UnixMicro(w.GetStart())); moved != want {
					t.Errorf("moved by %v, want %v", moved, want)
				}
				if at := got.Refusals[0].Time.Sub(got.Start); at != time.Microsecond {
					t.Errorf("a refusal %v after the window began", at)
				}
			})
		})
	}
}

func TestWhatIsNoMessageEndsTheStream(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]func() *xdspb.ReportRequest{
		"the source again": func() *xdspb.ReportRequest { return hello("api") },
		"no number":        func() *xdspb.ReportRequest { return &xdspb.ReportRequest{Closed: []*xdspb.Window{closed(0)}} },
		"numbers that go back": func() *xdspb.ReportRequest {
			return &xdspb.ReportRequest{Closed: []*xdspb.Window{closed(2), closed(1)}}
		},
		"a number twice": func() *xdspb.ReportRequest {
			return &xdspb.ReportRequest{Closed: []*xdspb.Window{closed(2), closed(2)}}
		},
		"a gap": func() *xdspb.ReportRequest {
			return &xdspb.ReportRequest{Closed: []*xdspb.Window{closed(2), closed(4)}}
		},
		"a number that nothing follows": func() *xdspb.ReportRequest {
			return &xdspb.ReportRequest{Closed: []*xdspb.Window{closed(math.MaxInt64)}}
		},
		"too many windows":       func() *xdspb.ReportRequest { return &xdspb.ReportRequest{Closed: many(maxWindows+1, 0)} },
		"too many versions":      func() *xdspb.ReportRequest { return &xdspb.ReportRequest{Closed: many(100, 251)} },
		"too many open versions": func() *xdspb.ReportRequest { return &xdspb.ReportRequest{Open: many(1, maxVersions+1)[0]} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				p.start()
				defer p.down()
				r := p.named("api")
				defer r.close()
				r.send(m())
				if err := r.fails(); !errors.Is(err, rules.ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", err)
				}
				if len(p.store.stored()) > 0 || p.refused(refusedSource) != 1 {
					t.Errorf("stored %d windows, counted %v", len(p.store.stored()), p.refused(refusedSource))
				}
			})
		})
	}
}

func many(windows, versions int) (list []*xdspb.Window) {
	for i := range windows {
		w := closed(int64(i + 1))
		for range versions {
			w.Versions = append(w.Versions, &xdspb.VersionTally{})
		}
		list = append(list, w)
	}
	return list
}

func TestStreamsEndWithTheirCredentialAndAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.identity.Expires = time.Now().Add(time.Minute)
		p.start()
		defer p.down()
		began := time.Now()
		r := p.named("api")
		defer r.close()
		if err := r.fails(); !errors.Is(err, rules.ErrUnauthenticated) || time.Since(began) != time.Minute {
			t.Errorf("ended after %v with %v, want after a minute", time.Since(began), err)
		}
		p.identity.Expires = time.Time{}
		r = p.named("api")
		defer r.close()
		p.down() // a graceful stop: it would wait for ever
	})
}

// Only streams with a source are bounded in number.
func TestStreamThatSaysNothingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		began := time.Now()
		r := p.raw()
		defer r.close()
		named := p.named("api")
		defer named.close()
		if err := r.fails(); !errors.Is(err, rules.ErrInvalid) || time.Since(began) != helloWithin {
			t.Errorf("ended after %v with %v, want after %v", time.Since(began), err, helloWithin)
		}
		if n := p.refused(refusedSource); n != 1 {
			t.Errorf("counted %v, want 1", n)
		}
		named.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{closed(1, versionTally("uid-a", 1, 1))}})
		if n := named.stored(); n != 1 {
			t.Errorf("stored up to %d on the stream that has a source", n)
		}
	})
}

func TestFloodOfStreamsIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		// A later stream of the same source takes the place of the one before.
		old, newer := p.named("api"), p.named("api")
		if err := old.fails(); !errors.Is(err, rules.ErrConflict) {
			t.Errorf("the old stream ended with %v", err)
		}
		old.close()
		newer.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{closed(1, versionTally("uid-a", 1, 1))}})
		newer.stored()
		if n := value(t, p.registry, "headgate_tally_streams"); n != 1 {
			t.Errorf("%v streams, want 1", n)
		}
		newer.close()
		synctest.Wait()
		if n := value(t, p.registry, "headgate_tally_streams"); n != 0 {
			t.Errorf("%v streams, want 0", n)
		}
		for range 20 {
			r := p.raw()
			r.send(hello("api"))
			_, err := r.stream.Recv()
			r.close()
			if err != nil && !errors.Is(rpcstatus.FromError(err), rules.ErrConflict) {
				t.Errorf("got %v", err)
			}
		}
		if n := p.refused(refusedFlood); n < 10 || n > 12 {
			t.Errorf("%v of 20 streams at once were refused", n)
		}
		time.Sleep(10 * time.Second)
		p.named("api").close()
	})
}

func TestFloodOfMessagesIsSlowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		r := p.named("api")
		defer r.close()
		began := time.Now()
		for range 150 {
			r.send(&xdspb.ReportRequest{Open: closed(1)})
		}
		r.send(&xdspb.ReportRequest{Closed: []*xdspb.Window{closed(1)}})
		r.stored()
		if took := time.Since(began); took < 9*time.Second {
			t.Errorf("150 messages were read in %v", took)
		}
	})
}

func TestOpenTotalsAreStoredOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		r := p.named("api")
		defer r.close()
		for i := range 10 {
			r.send(&xdspb.ReportRequest{Open: closed(1, versionTally("uid-a", 1, int64(i)), versionTally("uid-a", 3, 9))})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		open := p.store.opened()
		if n := len(open); n < 1 || n > 2 {
			t.Fatalf("stored %d times in two seconds", n)
		}
		last := open[len(open)-1]
		if v := last.Windows[0].Versions; last.Node != "n1" || len(v) != 1 || v[0].Counts[allowed] != 9 {
			t.Errorf("stored %+v, want the newest, without what was not sent", last)
		}
	})
}
