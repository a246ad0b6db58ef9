package storage

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/rollout"
)

// Silence is after how long without a sign of a node any state of it is taken for the newer one, whatever the number of
// its stream.
const Silence = time.Minute

// LatestNodes returns the nodes by domain and ID, only the newest of those given twice (the later in the list when both
// are as new), with texts as both databases can hold them. A fixed order means that replicas that save the same nodes
// wait for each other's row locks instead of deadlocking.
func LatestNodes(nodes []rollout.Node) []rollout.Node {
	list := slices.Clone(nodes)
	for i := range list {
		n := &list[i]
		for _, s := range []*string{&n.ID, &n.Domain, &n.Program, &n.Identity, &n.Lineage, &n.NackReason} {
			*s = Text(*s)
		}
	}
	slices.SortStableFunc(list, func(a, b rollout.Node) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), strings.Compare(a.ID, b.ID))
	})
	latest := list[:0]
	for _, n := range list {
		last := len(latest) - 1
		switch {
		case last < 0 || latest[last].ID != n.ID || latest[last].Domain != n.Domain:
			latest = append(latest, n)
		case replaces(&n, &latest[last]):
			latest[last] = n
		}
	}
	return latest
}

// replaces is the rule that both databases have in their statement as well.
func replaces(n, old *rollout.Node) bool {
	return cmp.Or(cmp.Compare(n.Stream, old.Stream), n.Seen.Compare(old.Seen)) >= 0 || n.Seen.Sub(old.Seen) > Silence
}

// LatestTaken returns what was taken by domain, rule and level, only the newest of what is given twice; in a fixed order
// and with such texts for the same reasons.
func LatestTaken(taken []rollout.Taken) []rollout.Taken {
	list := slices.Clone(taken)
	for i := range list {
		list[i].Domain, list[i].Rule = Text(list[i].Domain), Text(list[i].Rule)
	}
	slices.SortFunc(list, func(a, b rollout.Taken) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Level, b.Level),
			cmp.Compare(b.Revision, a.Revision))
	})
	return slices.CompactFunc(list, func(a, b rollout.Taken) bool {
		return a.Domain == b.Domain && a.Rule == b.Rule && a.Level == b.Level
	})
}

// EncodeList returns a list as the JSON that a column holds. No list is null, and an empty one is not.
func EncodeList[T any](list []T) string {
	b, err := json.Marshal(list)
	if err != nil {
		return "null" // texts and times of our era always encode
	}
	return string(b)
}

// DecodeList reads what EncodeList wrote. Fields that this program does not know are passed over.
func DecodeList[T any](stored string) (list []T, err error) {
	if err := json.Unmarshal([]byte(stored), &list); err != nil {
		return nil, unreadable("a list", err)
	}
	return list, nil
}
