package rollouttest

import (
	"context"
	"slices"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Births returns what a tally.Store on the same database says of rules.
func (m *Memory) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	return call(ctx, m, func() (map[string]tally.Birth, error) {
		known := map[string]tally.Birth{}
		for key, history := range m.rules {
			uid := history[0].Rule.UID
			if !slices.Contains(uids, uid) {
				continue
			}
			birth := tally.Birth{Domain: key.domain, Rule: key.name}
			for i := range history {
				r := &history[i].Rule
				for _, v := range []*rules.Version{r.Stable, r.Candidate} {
					for v != nil && int64(len(birth.Revisions)) < v.Number {
						birth.Revisions = append(birth.Revisions, 0)
					}
					if v != nil && birth.Revisions[v.Number-1] == 0 {
						birth.Revisions[v.Number-1] = r.Revision
					}
				}
			}
			known[uid] = birth
		}
		return known, nil
	})
}
