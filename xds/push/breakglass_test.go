package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

// register keeps the reports that were handed on. While err is set it refuses them.
type register struct {
	mu   sync.Mutex
	err  error
	list []string
}

func (r *register) take(_ context.Context, node string, b rollout.BreakGlass) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.list = append(r.list, node+" "+b.ID)
	return nil
}

func (r *register) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *register) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, r.list); diff != "" {
		t.Fatalf("handed on (-want +got):\n%s", diff)
	}
}

func brokenGlass(id, domain string) rollout.BreakGlass {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	return rollout.BreakGlass{ID: id, At: at, Actor: "root", Domain: domain, Freeze: rules.Freeze{Until: at.Add(time.Minute)}}
}

// reporting is a request that says nothing but the reports.
func reporting(t *testing.T, list ...rollout.BreakGlass) *discovery.DeltaDiscoveryRequest {
	t.Helper()
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return reportingText(string(b))
}

func reportingText(text string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: &core.Node{Id: "n1", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{xds.BreakGlassField: structpb.NewStringValue(text)},
	}}}
}

func TestBreakGlassIsHandedOnOnceAndRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStore(), &register{}
		f := newTestFleet(t, s, FleetOptions{BreakGlass: seen.take})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()

		first := reporting(t, brokenGlass("b1", "api"), brokenGlass("b0", "other"))
		first.ResourceNamesSubscribe = []string{"api"}
		p := newTestPeer(f)
		request := func(r *discovery.DeltaDiscoveryRequest) {
			t.Helper()
			if err := f.onRequest(p, r); err != nil {
				t.Fatal(err)
			}
		}
		request(first)
		seen.want(t, "n1 b1") // of another domain than it subscribes to, it has nothing to say
		if diff := cmp.Diff([]rollout.BreakGlass{brokenGlass("b1", "api")}, s.node("n1").BreakGlass); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}

		seen.fail(errors.New("database is away"))
		request(reporting(t, brokenGlass("b2", "api"), brokenGlass("b1", "api")))
		seen.want(t, "n1 b1")
		seen.fail(nil)
		time.Sleep(time.Second) // less than what has every node saved again
		seen.want(t, "n1 b1", "n1 b2")

		// One that is refused for good holds nothing up.
		seen.fail(rules.ErrInvalid)
		request(reporting(t, brokenGlass("b3", "api")))
		synctest.Wait()
		seen.fail(nil)
		request(reporting(t, brokenGlass("b4", "api"), brokenGlass("b3", "api")))
		seen.want(t, "n1 b1", "n1 b2", "n1 b4")
	})
}

func TestBreakGlassThatCannotBeIsLeftOut(t *testing.T) {
	t.Parallel()
	bad := func(change func(*rollout.BreakGlass)) string {
		b := brokenGlass("bad", "api")
		change(&b)
		text, err := json.Marshal([]rollout.BreakGlass{brokenGlass("good", "api"), b})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	many := make([]string, 101)
	for i := range many {
		one, err := json.Marshal(brokenGlass(fmt.Sprint(i), "api"))
		if err != nil {
			t.Fatal(err)
		}
		many[i] = string(one)
	}
	for name, test := range map[string]struct {
		text string
		want int // reports that are taken
	}{
		"no JSON":    {"{", 0},
		"no list":    {"{}", 0},
		"huge":       {"[" + strings.Repeat(" ", 161<<10) + "]", 0},
		"many":       {"[" + strings.Join(many, ",") + "]", 100},
		"no id":      {bad(func(b *rollout.BreakGlass) { b.ID = "" }), 1},
		"odd id":     {bad(func(b *rollout.BreakGlass) { b.ID = "\x00" }), 1},
		"long id":    {bad(func(b *rollout.BreakGlass) { b.ID = strings.Repeat("x", 65) }), 1},
		"odd actor":  {bad(func(b *rollout.BreakGlass) { b.Actor = "\n" }), 1},
		"no time":    {bad(func(b *rollout.BreakGlass) { b.At = time.Time{} }), 1},
		"for ever":   {bad(func(b *rollout.BreakGlass) { b.Freeze.Until = b.At.Add(25 * time.Hour) }), 1},
		"odd rule":   {bad(func(b *rollout.BreakGlass) { b.Freeze.Rule = "A B" }), 1},
		"of another": {bad(func(b *rollout.BreakGlass) { b.Domain = "other"; b.ID = "" }), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTestFleet(t, newStore(), FleetOptions{})
			p := open(t, f, "n1")
			if err := f.onRequest(p, reportingText(test.text)); err != nil {
				t.Fatalf("the stream ends: %v", err)
			}
			got := f.records[recordKey{"n1", "api"}].BreakGlass
			if len(got) != test.want || slices.ContainsFunc(got, func(b rollout.BreakGlass) bool { return b.ID == "bad" }) {
				t.Errorf("took %+v, want %d", got, test.want)
			}
			if n := testutil.ToFloat64(f.refused.WithLabelValues(refusedBreakGlass)); n != 1 {
				t.Errorf("counted %v", n)
			}
		})
	}
}

func TestSilentNodesAreForgottenEveryHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		f := newTestFleet(t, s, FleetOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()
		time.Sleep(150 * time.Minute)
		cancel()
		<-done
		if len(s.forgot) != 2 || s.forgot[1].Sub(s.forgot[0]) != time.Hour || time.Since(s.forgot[1]) != 30*24*time.Hour+30*time.Minute {
			t.Errorf("nodes silent since %v were forgotten", s.forgot)
		}
	})
}

func TestTakenIsSavedAgainAfterAnError(t *testing.T) {
	t.Parallel()
	s := newStore()
	f := newTestFleet(t, s, FleetOptions{})
	f.cache.publish(&state{lineage: "one", head: 5})
	p := open(t, f, "n1")
	p.ack(t, p.push(5))
	s.fail(errors.New("database is away"))
	if err := f.save(t.Context(), time.Second); err == nil {
		t.Fatal("saved")
	}
	s.fail(nil)
	if err := f.save(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	want := rollout.Taken{Domain: "api", Level: 1, Revision: 5}
	if len(s.taken) == 0 || s.taken[len(s.taken)-1] != want {
		t.Errorf("got %+v, want %+v", s.taken, want)
	}
	if err := f.save(t.Context(), time.Second); err != nil || len(f.dirtyTaken) > 0 {
		t.Errorf("%d are left, %v", len(f.dirtyTaken), err)
	}
}
