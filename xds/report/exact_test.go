package report

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// chance decides what goes wrong. It is asked from many goroutines.
type chance struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (c *chance) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *chance) seconds(most int) time.Duration {
	return time.Duration(c.n(most*1000)) * time.Millisecond
}

// TestWhatIsStoredIsWhatWasCounted lets everything break at random for half an hour: streams, the control plane, the
// database before, during and after its commits, the clock. In the end every number is the counter's.
func TestWhatIsStoredIsWhatWasCounted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { muddle(t, seed) })
		})
	}
}

func muddle(t *testing.T, seed uint64) {
	luck := &chance{random: rand.New(rand.NewPCG(seed, 6))}
	p := newPlane(t)
	p.start()
	var off atomic.Int64
	s := p.sidecar(func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
	p.store.setMeddle(func(ctx context.Context, committed bool) error {
		switch luck.n(12) {
		case 0, 1:
			return errAway
		case 2:
			<-ctx.Done()
			return ctx.Err()
		case 3:
			pass(luck.seconds(5))
		case 4:
			p.cut()
		case 5:
			if !committed {
				return fmt.Errorf("of no kind")
			}
		}
		return nil
	})
	var trouble sync.WaitGroup
	calm := make(chan struct{})
	trouble.Go(func() {
		for {
			select {
			case <-calm:
				return
			case <-time.After(luck.seconds(90)):
			}
			switch luck.n(6) {
			case 0, 1, 2:
				p.cut()
			case 3:
				p.down()
				pass(luck.seconds(600))
				p.start()
			case 4:
				p.down()
				p.start()
			case 5:
				off.Add(int64(luck.seconds(7200) - time.Hour))
			}
		}
	})
	for began := time.Now(); time.Since(began) < 30*time.Minute; pass(luck.seconds(4)) {
		version := int64(1 + luck.n(2))
		s.counts.add("api", "uid-a", version, tally.Cell(luck.n(int(tally.Cells))), int64(1+luck.n(9)))
		if luck.n(2) == 0 {
			s.counts.add("web", "uid-b", 1, allowed, 1)
		}
	}
	close(calm)
	trouble.Wait()
	p.store.setMeddle(nil)
	pass(5 * time.Minute)
	if n, _ := s.queue.state(); n > 1 {
		t.Errorf("%d windows wait after five quiet minutes", n)
	}
	s.counts.add("api", "uid-a", 1, allowed, 1)
	s.stop()
	p.down()
	wantExact(t, p.store, s.counts)
	if source := (tally.Source{Node: "n1", Epoch: s.epoch}); !p.store.ended[source] {
		t.Error("the last window is not stored as the last")
	}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }
