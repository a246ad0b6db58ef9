package ruletest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/rules/tally"
)

// A Difference is a field of a decision that is not as expected.
type Difference struct {
	Field, Got, Want string
}

// A Failure is one request, or one step, that did not go as expected.
type Failure struct {
	Place       rulefile.Place // of the step
	Step        int            // from 1
	Request     int            // from 1; 0 where the failure is one of the whole step
	Of          int            // requests of the step
	At          time.Duration  // since the start
	Call        string         // POST /v1/login
	Differences []Difference
}

// A Result is what became of a test.
type Result struct {
	Test     *Test
	Steps    int
	Requests int
	Failures []Failure
	More     int // failures that are left out
	Took     time.Duration
}

// Passed reports that all was as expected.
func (r *Result) Passed() bool { return len(r.Failures) == 0 }

// maxFailures bounds what is told of one test: after the first failures the others mostly follow from them.
const maxFailures = 20

// Run runs a test on a store: memory, or redis://HOST:PORT. An error means that it could not be run, or that its counters
// could not be deleted.
func Run(ctx context.Context, t *Test, store string) (result Result, err error) {
	began := time.Now()
	p, err := replay.New(store) //nolint:contextcheck // its store is open until Close
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if closeErr := p.Close(ctx); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	r := &running{test: t, replay: p, result: Result{Test: t, Steps: len(t.steps)}}
	r.putRules()
	for i := range t.steps {
		if err := r.step(ctx, i); err != nil {
			return Result{}, err
		}
	}
	r.result.Took = time.Since(began)
	return r.result, nil
}

type running struct {
	test   *Test
	replay *replay.Replay
	start  int64 // microseconds since 1970
	at     time.Duration
	result Result
}

// putRules puts the rules in force and finds the start.
func (r *running) putRules() {
	var all []*rules.Rule
	for i := range r.test.sets {
		set := &r.test.sets[i]
		list := replay.NewRules(set, func(name string) bool { return r.test.shadow[set.Domain+"/"+name] })
		r.replay.Put(rules.NewIndex(replay.NewDomain(set), list))
		all = append(all, list...)
	}
	r.start = replay.Start(all)
}

func (r *running) step(ctx context.Context, i int) error {
	s := &r.test.steps[i]
	begin := s.at
	if begin < 0 {
		begin = r.at
	}
	count := map[string]int{}
	var last enforce.Decision
	for n := range s.repeat {
		r.at = begin + time.Duration(n)*s.every
		d, err := r.decide(ctx, &s.request)
		if err != nil {
			return err
		}
		r.result.Requests++
		got := fieldsOf(&d)
		count[got[fieldDecision]]++
		r.compare(i, n+1, s.expect.of(n), got, s.request.domain())
		last = d
	}
	if len(s.expect.count) > 0 {
		got := map[string]string{allowed: strconv.Itoa(count[allowed]), refused: strconv.Itoa(count[refused])}
		r.compare(i, 0, s.expect.count, got, "")
	}
	if s.wouldRefuse != nil {
		want := check{"wouldRefuse", listText(s.wouldRefuse)}
		r.compare(i, s.repeat, []check{want}, map[string]string{want.field: listText(wouldRefuse(&last))}, "")
	}
	return nil
}

func (r *running) decide(ctx context.Context, q *request) (enforce.Decision, error) {
	if q.invalid {
		return enforce.Decision{Status: http.StatusBadRequest, Reason: enforce.ReasonMalformed, Wait: enforce.Never}, ctx.Err()
	}
	return r.replay.Decide(ctx, r.start+r.at.Microseconds(), q.calls...)
}

func (q *request) domain() string { return q.calls[0].Domain }

// of returns the checks of the request with this number, from 0.
func (e *expectation) of(n int) []check {
	switch len(e.each) {
	case 0:
		return nil
	case 1:
		return e.each[0]
	}
	return e.each[n]
}

// compare notes a failure where a field is not as wanted. Rules may be named with their domain.
func (r *running) compare(step, number int, checks []check, got map[string]string, domain string) {
	var differences []Difference
	for _, c := range checks {
		g := got[c.field]
		if g != c.want && (c.field != fieldRule || domain+"/"+g != c.want) {
			differences = append(differences, Difference{Field: c.field, Got: g, Want: c.want})
		}
	}
	if len(differences) == 0 {
		return
	}
	if len(r.result.Failures) == maxFailures {
		r.result.More++
		return
	}
	s := &r.test.steps[step]
	r.result.Failures = append(r.result.Failures, Failure{
		Place: s.place, Step: step + 1, Request: number, Of: s.repeat, At: r.at, Call: s.request.summary, Differences: differences,
	})
}

// fieldsOf returns the fields of a decision as the texts they are compared by. They are the decision's, also where the
// rule hides its headers. An allowed request has the status 200, as from a sidecar's check.
func fieldsOf(d *enforce.Decision) map[string]string {
	f := map[string]string{
		fieldDecision: allowed, fieldRule: orNone(d.Rule), fieldLimit: orNone(d.Limit), fieldRetryAfter: none,
		fieldRemaining: none, fieldStatus: strconv.Itoa(http.StatusOK), fieldReason: orNone(string(d.Reason)),
	}
	if d.Rule != "" {
		f[fieldRemaining] = strconv.FormatInt(d.Left, 10)
	}
	if seconds, ok := replay.RetryAfter(d); ok {
		f[fieldRetryAfter] = strconv.FormatInt(seconds, 10)
	}
	if !d.Allowed {
		f[fieldDecision], f[fieldStatus] = refused, strconv.Itoa(d.Status)
	}
	return f
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

// wouldRefuse returns the what-if rules that would have refused, as "domain/name" in order.
func wouldRefuse(d *enforce.Decision) (ids []string) {
	for i := range d.Outcomes {
		if o := &d.Outcomes[i]; o.Outcome == tally.WouldRefuse {
			ids = append(ids, o.Rule.ID())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func listText(ids []string) string { return "[" + strings.Join(ids, ", ") + "]" }
