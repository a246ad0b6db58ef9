package backtest

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/rules/tally"
)

// Result is what a log made of the rules. Its JSON is a contract: fields are added, never renamed or removed.
type Result struct {
	Lines      int    `json:"lines"` // that are not empty
	Malformed  int    `json:"malformed"`
	OutOfOrder int    `json:"out_of_order"`
	Rules      []Rule `json:"rules"` // by name

	// Unseen lines are well-formed, but a sidecar answers them with 400 before any rule is asked.
	Unseen int `json:"-"`
	// Requests were decided, from First to Last (microseconds since 1970); 0 of them leave these 0.
	Requests    int   `json:"-"`
	Refused     int   `json:"-"` // of the requests, by any rule
	First, Last int64 `json:"-"`
}

// Rule is what one rule did.
type Rule struct {
	Rule        string `json:"rule"`    // "domain/name"
	Matched     int    `json:"matched"` // requests, without those whose key the rule skips
	Refused     int    `json:"refused"` // by this rule itself
	Keys        int    `json:"keys"`    // different ones among the matched
	RefusedKeys int    `json:"refused_keys"`
	Top         []Key  `json:"top"` // most refused first, then by key

	// OverTime is how many requests the rule refused in equal parts of the log's time.
	OverTime []int `json:"-"`
}

// Key is how often one key was refused.
type Key struct {
	Key     string `json:"key"`
	Refused int    `json:"refused"`
}

// topKeys is how many keys a result names.
const topKeys = 10

// maxShown bounds a key that is kept to be shown. Longer ones are cut; they are counted apart all the same.
const maxShown = 1024

// ruleCount counts for one rule.
type ruleCount struct {
	name             string
	matched, refused int
	keys             map[tally.KeyID]*Key // nil for a key without refusals
	overTime         *timeline
}

func (c *ruleCount) result() Rule {
	r := Rule{Rule: c.name, Matched: c.matched, Refused: c.refused, Keys: len(c.keys), Top: []Key{}, OverTime: c.overTime.counts()}
	for _, k := range c.keys {
		if k != nil {
			r.Top = append(r.Top, *k)
		}
	}
	r.RefusedKeys = len(r.Top)
	slices.SortFunc(r.Top, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Key, b.Key))
	})
	r.Top = slices.Clip(r.Top[:min(topKeys, len(r.Top))])
	return r
}
