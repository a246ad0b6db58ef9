package faults_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// Limits of the rules that the load meets. They do not refill while a test runs: 200 in a year is one in two days.
const (
	quietLimit  = 200 // of all calls together, in shadow
	halfLimit   = 5   // of each key, partial
	firmLimit   = 100 // of all calls together, in force
	firmTry     = 50  // of its candidate in shadow
	besideLimit = 10_000_000
)

// tallyRules are the rules, beside an exempt path; note is text of the rule in shadow, which makes a version and starts no
// counter anew.
func tallyRules(firm int, more bool, note int) string {
	text := fmt.Sprintf(`apiVersion: headgate/v1
kind: RuleSet
domain: %s
exempt: [{name: health, match: {path: /exempt}}]
rules:
  - {name: firm, match: {path: /firm}, key: [], limit: %d/366d}
  - {name: beside, match: {path: /firm}, key: [], limit: %d/366d}
`, domain, firm, besideLimit)
	if more {
		text += fmt.Sprintf(`  - {name: half, match: {path: /half}, key: [header:x-client], limit: %d/366d}
  - {name: quiet, description: "Text %d", match: {path: /quiet}, key: [], limit: %d/366d}
`, halfLimit, note, quietLimit)
	}
	return text
}

// load calls doors, and keeps its own count of what became of the calls.
type load struct {
	t       *testing.T
	stop    func() // waits
	running sync.WaitGroup

	mu         sync.Mutex
	calls      map[string]map[int]int64 // that were answered, by path and status
	half       map[string]*[2]int64     // those of /half, by key: all, and refused
	unanswered int
}

// newLoad calls the doors from a number of connections each.
func newLoad(t *testing.T, conns int, doors ...*door) *load {
	t.Helper()
	l := &load{t: t, calls: map[string]map[int]int64{}, half: map[string]*[2]int64{}}
	end := make(chan struct{})
	l.stop = sync.OnceFunc(func() { close(end); l.running.Wait() })
	t.Cleanup(l.stop)
	for i, d := range doors {
		for j := range conns {
			random := rand.New(rand.NewPCG(*seed, uint64(i*conns+j)))
			l.running.Go(func() { l.run(d, random, end) })
		}
	}
	return l
}

// callEvery keeps a test from taking the whole machine.
const callEvery = 4 * time.Millisecond

func (l *load) run(d *door, random *rand.Rand, end <-chan struct{}) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(callEvery)
	defer tick.Stop()
	paths := []string{"/quiet", "/quiet", "/half", "/half", "/firm", "/firm", "/exempt", "/unmatched", "/bad%2Fpath"}
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		path, key := paths[random.IntN(len(paths))], fmt.Sprint(random.IntN(200))
		status, err := d.call(client, path, key)
		l.count(path, key, status, err)
	}
}

// count takes a call that is not answered, by a door that is being restarted, for one that nobody took.
func (l *load) count(path, key string, status int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unanswered++
		return
	}
	if l.calls[path] == nil {
		l.calls[path] = map[int]int64{}
	}
	l.calls[path][status]++
	if path == "/half" {
		if l.half[key] == nil {
			l.half[key] = &[2]int64{}
		}
		l.half[key][0]++
		if status == http.StatusTooManyRequests {
			l.half[key][1]++
		}
	}
}

// counts are what is counted of rules (by rule and version) and of domains, by cell, without those that are 0.
type counts map[string]map[string]int64

func (c counts) add(of string, cell fmt.Stringer, n int64) {
	if c[of] == nil {
		c[of] = map[string]int64{}
	}
	if n > 0 {
		c[of][cell.String()] += n
	}
}

// want is what the tallies must say. The versions of the rule in shadow, which differ in their text, are taken together.
func (l *load) want() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := counts{}
	of := func(path string) (n int64) {
		for status, calls := range l.calls[path] {
			n += calls
			switch {
			case path == "/bad%2Fpath" && status == http.StatusBadRequest:
				c.add(domain, tally.RequestsMalformed, calls)
			case path == "/exempt" && status == http.StatusOK:
				c.add(domain, tally.RequestsExempt, calls)
			case path == "/unmatched" && status == http.StatusOK:
				c.add(domain, tally.RequestsUnmatched, calls)
			case status == http.StatusOK:
				c.add(domain, tally.RequestsAllowed, calls)
			case status == http.StatusTooManyRequests && (path == "/firm" || path == "/half"):
				c.add(domain, tally.RequestsRefused, calls)
			default:
				l.t.Errorf("%d calls of %s were answered with %d", calls, path, status)
			}
		}
		return n
	}
	for _, path := range []string{"/exempt", "/unmatched", "/bad%2Fpath", "/half"} {
		of(path)
	}
	quiet, firm := of("/quiet"), of("/firm")
	passed := min(firm, firmLimit)
	c.add(domain, tally.RequestsWouldRefuse, quiet-min(quiet, quietLimit)+passed-min(firm, firmTry))
	c.add("quiet", tally.WhatIfCell(tally.WouldAllow, tally.BesideNone, false), min(quiet, quietLimit))
	c.add("quiet", tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false), quiet-min(quiet, quietLimit))
	c.add("firm/1", tally.BindingCell(tally.Allowed, tally.NoLimit), passed)
	c.add("firm/1", tally.BindingCell(tally.Refused, 0), firm-passed)
	c.add("firm/2", tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false), min(firm, firmTry))
	c.add("firm/2", tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false), passed-min(firm, firmTry))
	c.add("firm/2", tally.WhatIfCell(tally.WouldRefuse, tally.BesideRefused, false), firm-passed)
	c.add("beside/1", tally.BindingCell(tally.Allowed, tally.NoLimit), passed)
	c.add("beside/1", tally.BindingCell(tally.RefusedByOther, tally.NoLimit), firm-passed)
	l.wantHalf(c)
	return c
}

// wantHalf tells by its answers whether a key is in the cohort: each is called more often than the limit allows.
func (l *load) wantHalf(c counts) {
	for key, n := range l.half {
		all, refused := n[0], n[1]
		switch {
		case all <= halfLimit:
			l.t.Errorf("key %s was only used %d times: nothing tells whether it is in the cohort", key, all)
		case refused == 0:
			c.add("half/1", tally.WhatIfCell(tally.WouldAllow, tally.BesideNone, false), halfLimit)
			c.add("half/1", tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false), all-halfLimit)
			c.add(domain, tally.RequestsWouldRefuse, all-halfLimit)
		default:
			if all-refused != halfLimit {
				l.t.Errorf("key %s was allowed %d of %d times, want %d", key, all-refused, all, halfLimit)
			}
			c.add("half/1", tally.BindingCell(tally.Allowed, tally.NoLimit), halfLimit)
			c.add("half/1", tally.BindingCell(tally.Refused, 0), refused)
		}
	}
}
