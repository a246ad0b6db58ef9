package enforce_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// leaving is a store that can go away, and tells of it.
type leaving struct {
	store   *memlimit.Limiter
	away    bool
	changed func(up bool, cause error)
}

var errAway = errors.New("away")

func (l *leaving) Watch(changed func(bool, error)) { l.changed = changed }

func (l *leaving) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	if l.away {
		return nil, errAway
	}
	return l.store.Decide(ctx, charges)
}

func (l *leaving) leave() { l.away = true; l.changed(false, errAway) }

func (l *leaving) comeBack() { l.away = false; l.changed(true, nil) }

// Kuadrant/limitador#288: what was counted during a partition was added to the window in which it ended.
func TestC22PartitionLongerThanTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := version(t, 1, "10/10s")
		v.Spec.Limits[0].Algorithm = rules.SlidingWindow
		v.Spec.Failure = rules.Failure{Mode: rules.FailLocal, Local: rate(t, "10/10s")}
		store := &leaving{store: memlimit.New()}
		counted := counts{}
		e := enforce.NewEngine(store, counted, slog.New(slog.DiscardHandler), enforce.WithLocal(memlimit.New()))
		e.Swap(rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{rule("r", v, nil)}))
		begun := time.Now() // midnight: windows begin with it
		at := func(second int) { time.Sleep(time.Until(begun.Add(time.Duration(second) * time.Second))) }
		calls := func(n int, want bool) {
			t.Helper()
			for i := range n {
				if d := e.Decide(t.Context(), request("k")); d.Allowed != want {
					t.Errorf("after %v, call %d of %d: allowed %v, want %v", time.Since(begun), i+1, n, d.Allowed, want)
				}
			}
		}
		at(1)
		store.leave()
		at(2)
		calls(8, true)
		at(21)
		calls(3, true)
		at(25)
		store.comeBack()
		calls(10, true) // nothing was spent
		calls(1, false)
		store.leave() // another outage: the 3 local calls ended with the one before
		calls(10, true)
		calls(1, false)
		want := counts{"r v1 local_allowed": 21, "r v1 local_refused": 1, "r v1 allowed": 10, "r v1 refused": 1}
		if diff := cmp.Diff(want, counted); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
}

func TestOutageIsLoggedOnceForEachChange(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	store := &leaving{store: memlimit.New()}
	e := enforce.NewEngine(store, counts{}, slog.New(slog.NewTextHandler(&log, nil)))
	e.Swap(rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{rule("r", version(t, 1, "10/min"), nil)}))
	up := []bool{e.StoreUp()}
	store.leave()
	for range 100 {
		e.Decide(t.Context(), request("k"))
	}
	up = append(up, e.StoreUp())
	store.comeBack()
	up = append(up, e.StoreUp())
	if diff := cmp.Diff([]bool{true, false, true}, up); diff != "" {
		t.Errorf("store up before, during and after (-want +got):\n%s", diff)
	}
	for text, want := range map[string]int{"the store does not answer": 1, "err=away": 1, "the store answers again": 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}
