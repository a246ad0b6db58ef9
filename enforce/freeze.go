package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
)

// A FreezeInForce is a freeze that has not ended.
type FreezeInForce struct {
	Domain string
	Freeze rules.Freeze
	Here   bool // it was made by [Engine.Freeze]; else it came with the domain
}

// Freeze freezes a domain, or one rule of it, on this engine alone and at once, whatever index is in force or will be.
// It takes the place of the one made here before for the same. The error is an [rules.ErrInvalid]: the freeze has ended
// already, or lasts longer than [rules.MaxFreeze].
func (e *Engine) Freeze(domain string, f rules.Freeze) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch left := f.Until.Sub(e.clock()); {
	case left <= 0:
		return fmt.Errorf("%w: a freeze until %s has ended already", rules.ErrInvalid, f.Until.UTC().Format(time.RFC3339))
	case left > rules.MaxFreeze:
		return fmt.Errorf("%w: a freeze lasts at most %v, not %v", rules.ErrInvalid, rules.MaxFreeze, left.Round(time.Second))
	}
	e.setFreezes(domain, append(e.without(domain, f.Rule), f))
	return nil
}

// Unfreeze ends the freeze that was made here for the same, and reports whether one was in force. Those that came with
// the domain stay.
func (e *Engine) Unfreeze(domain, rule string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock()
	was := slices.ContainsFunc(e.freezes[domain], func(f rules.Freeze) bool { return f.Rule == rule && now.Before(f.Until) })
	e.setFreezes(domain, e.without(domain, rule))
	return was
}

// Freezes returns the freezes in force, by domain and rule, those that came with the domain first.
func (e *Engine) Freezes() []FreezeInForce {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock()
	var list []FreezeInForce
	add := func(domain string, freezes []rules.Freeze, here bool) {
		for _, f := range freezes {
			if now.Before(f.Until) {
				list = append(list, FreezeInForce{Domain: domain, Freeze: f, Here: here})
			}
		}
	}
	for domain, p := range *e.programs.Load() {
		add(domain, p.index.Domain.Freezes, false)
	}
	for domain, freezes := range e.freezes {
		add(domain, freezes, true)
	}
	slices.SortStableFunc(list, func(a, b FreezeInForce) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Freeze.Rule, b.Freeze.Rule))
	})
	return list
}

// without returns the freezes made here that have not ended, but for the rule's. The caller holds mu.
func (e *Engine) without(domain, rule string) []rules.Freeze {
	now := e.clock()
	return slices.DeleteFunc(slices.Clone(e.freezes[domain]), func(f rules.Freeze) bool { return f.Rule == rule || !now.Before(f.Until) })
}

// setFreezes replaces the freezes made here, and puts them in force. The caller holds mu.
func (e *Engine) setFreezes(domain string, freezes []rules.Freeze) {
	e.freezes[domain] = freezes
	if p := (*e.programs.Load())[domain]; p != nil {
		frozen := *p
		e.store(&frozen)
	}
}
