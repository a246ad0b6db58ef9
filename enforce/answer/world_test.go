package answer_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// world is an engine with counters in memory, on a virtual clock.
type world struct {
	engine  *enforce.Engine
	limiter limittest.Limiter
	now     int64
	down    bool // the store does not answer
}

func (w *world) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	if w.down {
		return nil, context.DeadlineExceeded
	}
	return w.limiter.DecideAt(ctx, w.now, charges)
}

type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}

func newWorld(list ...*rules.Rule) *world {
	w := &world{limiter: memlimit.New(), now: limittest.Start}
	w.engine = enforce.NewEngine(w, nobody{}, slog.New(slog.DiscardHandler))
	w.engine.Swap(rules.NewIndex(rules.Domain{Name: "d"}, list))
	return w
}

// rule returns one whose limits are given as NAME=RATE, or as one RATE; "~" before it makes a sliding window.
func rule(t testing.TB, name string, limits ...string) *rules.Rule {
	t.Helper()
	spec := rules.Spec{}
	for _, text := range limits {
		limit, rate, found := strings.Cut(text, "=")
		if !found {
			limit, rate = "", text
		}
		l := rules.Limit{Name: limit, Algorithm: rules.TokenBucket}
		if bare, is := strings.CutPrefix(rate, "~"); is {
			l.Algorithm, rate = rules.SlidingWindow, bare
		}
		r, err := rules.ParseRate(rate)
		if err != nil {
			t.Fatal(err)
		}
		l.Rate = r
		spec.Limits = append(spec.Limits, l)
	}
	return &rules.Rule{Domain: "d", Name: name, UID: "uid-" + name, Stable: &rules.Version{Number: 1, Spec: spec}}
}

func (w *world) pass(d time.Duration) { w.now += d.Microseconds() }

// call makes a request that costs so many hits.
func (w *world) call(hits int64) enforce.Decision {
	return w.engine.Decide(context.Background(), &rules.Request{Domain: "d", Method: "GET", Path: "/", Hits: hits})
}

// told is what the headers of an answer say, as a client reads them.
type told struct {
	Policy     string // the name of the item
	Q, W       int64
	Burst      int64 // 0 where it is not said
	R, T       int64 // T is -1 where it is not said
	RetryAfter int64 // -1 where it is not said
}

// read parses the headers of a decision strictly: where there is anything about limits, all that must be there is.
func read(t testing.TB, d *enforce.Decision) (is told, any bool) {
	t.Helper()
	h := http.Header{}
	for _, f := range answer.Fields(nil, d) {
		h.Add(f.Name, f.Value)
	}
	is.T, is.RetryAfter = -1, -1
	if text := h.Get("Retry-After"); text != "" {
		is.RetryAfter = number(t, text)
	}
	if h.Get("RateLimit") == "" && h.Get("RateLimit-Policy") == "" {
		return is, false
	}
	policy, limit := item(t, h["Ratelimit-Policy"]), item(t, h["Ratelimit"])
	if policy.Value != limit.Value {
		t.Errorf("policy %q and limit %q are not the same", policy.Value, limit.Value)
	}
	is.Policy = policy.Value.(string) //nolint:errcheck // a panic fails the test
	is.Q, is.W, is.R = parameter(t, policy, "q", nil), parameter(t, policy, "w", nil), parameter(t, limit, "r", nil)
	is.Burst, is.T = parameter(t, policy, "headgate-burst", new(int64)), parameter(t, limit, "t", &is.T)
	return is, true
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// item parses a structured field that is a list of one string with parameters.
func item(t testing.TB, lines []string) httpsfv.Item {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) != 1 {
		t.Fatalf("%q is not a list of one: %v", lines, err)
	}
	one := list[0].(httpsfv.Item) //nolint:errcheck // a panic fails the test
	if again, err := httpsfv.Marshal(list); err != nil || again != lines[0] {
		t.Errorf("%q is not in canonical form, which is %q, %v", lines[0], again, err)
	}
	return one
}

// parameter returns a parameter of an item; otherwise, where that is nil it must be there.
func parameter(t testing.TB, i httpsfv.Item, name string, otherwise *int64) int64 {
	t.Helper()
	value, ok := i.Params.Get(name)
	if !ok && otherwise != nil {
		return *otherwise
	}
	n, is := value.(int64)
	if !is {
		t.Fatalf("parameter %s of %v is %v", name, i.Value, value)
	}
	return n
}

// refusal is the answer over HTTP.
func refusal(d *enforce.Decision) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	answer.Refuse(w, d)
	return w
}
