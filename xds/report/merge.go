package report

import (
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// maxRefusals is how many refusals a window has; of more, the newest.
const maxRefusals = 1000

// merge adds the window other, which is the later one, to w. Counts stay exact; keys and refusals stay bounded. Rates are of
// one minute: of what spans several there are none, and nobody would ask for them either, an hour later.
func merge(w, other *tally.Window) {
	if !w.Start.Truncate(time.Minute).Equal(other.Start.Truncate(time.Minute)) {
		dropRates(w)
		dropRates(other)
	}
	type versionID struct {
		uid     string
		version int64
	}
	versions := make(map[versionID]int, len(w.Versions))
	for i := range w.Versions {
		versions[versionID{w.Versions[i].UID, w.Versions[i].Version}] = i
	}
	for i := range other.Versions {
		v := &other.Versions[i]
		at, ok := versions[versionID{v.UID, v.Version}]
		if !ok {
			w.Versions = append(w.Versions, *v)
			continue
		}
		mergeVersion(&w.Versions[at], v)
	}
	domains := make(map[string]int, len(w.Domains))
	for i := range w.Domains {
		domains[w.Domains[i].Domain] = i
	}
	for i := range other.Domains {
		d := &other.Domains[i]
		if at, ok := domains[d.Domain]; ok {
			w.Domains[at].Counts.Add(&d.Counts)
			continue
		}
		w.Domains = append(w.Domains, *d)
	}
	w.Refusals = append(w.Refusals, other.Refusals...)
	if more := len(w.Refusals) - maxRefusals; more > 0 {
		w.Refusals = append(w.Refusals[:0:0], w.Refusals[more:]...)
	}
	w.End, w.Last = other.End, other.Last
}

func mergeVersion(v, other *tally.VersionTally) {
	v.Counts.Add(&other.Counts)
	if len(other.Keys) > 0 {
		var top tally.TopKeys
		top.Merge(v.Keys)
		top.Merge(other.Keys)
		v.Keys = top.Keys()
	}
	_ = v.Distinct.Merge(&other.Distinct) // fails only for another precision, and there is one
	v.Rates.Add(&other.Rates)
}

// keysSize is about how much memory the keys of the window take.
func keysSize(w *tally.Window) int {
	const key, sketch, rate = 160, 4 << 10, 16
	n := 0
	for i := range w.Versions {
		keys := len(w.Versions[i].Keys)
		n += keys * key
		if keys > 0 {
			n += min(sketch, keys*key)
		}
		n += len(w.Versions[i].Rates.Keys) * rate
	}
	return n
}

// dropKeys leaves only the counts and the refusals.
func dropKeys(w *tally.Window) {
	for i := range w.Versions {
		w.Versions[i].Keys, w.Versions[i].Distinct = nil, tally.Distinct{}
	}
	dropRates(w)
}

func dropRates(w *tally.Window) {
	for i := range w.Versions {
		w.Versions[i].Rates = tally.Rates{}
	}
}
