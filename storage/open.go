package storage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// Open is the open window of a node as a row holds it.
type Open struct {
	tally.Source
	Number     int64
	Start, End time.Time
	Totals     []byte
}

// LatestOpen returns the newest open window of each node, in the order of the nodes, with texts as both databases can hold
// them.
func LatestOpen(batch []tally.SourceWindows) []Open {
	latest := map[string]Open{}
	for _, s := range batch {
		for i := range s.Windows {
			w := &s.Windows[i]
			o := Open{Source: tally.Source{Node: Text(s.Node), Epoch: Text(s.Epoch)}, Number: w.Number, Start: w.Start, End: w.End}
			if was, there := latest[o.Node]; !there || o.replaces(&was) {
				o.Totals = tally.EncodeTotals(w)
				latest[o.Node] = o
			}
		}
	}
	list := make([]Open, 0, len(latest))
	for _, o := range latest {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Open) int { return strings.Compare(a.Node, b.Node) })
	return list
}

// replaces is the rule that both databases have in their statement as well.
func (o *Open) replaces(old *Open) bool {
	if o.Epoch != old.Epoch {
		return !o.End.Before(old.End)
	}
	return cmp.Or(cmp.Compare(o.Number, old.Number), o.End.Compare(old.End)) >= 0
}

// Births are the births of rules as rows tell of them.
type Births map[string]tally.Birth

// Add adds a version.
func (b Births) Add(uid, domain, rule string, number, revision int64) {
	birth := b[uid]
	birth.Domain, birth.Rule = domain, rule
	for int64(len(birth.Revisions)) < number {
		birth.Revisions = append(birth.Revisions, 0)
	}
	birth.Revisions[number-1] = revision
	b[uid] = birth
}

// Texts returns a list with [Text] done to each.
func Texts(list []string) []string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = Text(s)
	}
	return texts
}
