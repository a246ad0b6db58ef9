package push

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// maxTombstones is how many deleted rules a domain remembers, the last ones: at most 650 kB of names. A client from
// before those that are forgotten is sent the whole set.
const maxTombstones = 5_000

// state is everything that is served, at one head. It is immutable: a new head is a new state, which shares the domains
// that did not change.
type state struct {
	lineage  string
	replaces []string // the histories whose clients may be served
	head     int64
	domains  map[string]*domain
}

// foreign reports that a client at p holds something that nobody allowed this history to take the place of.
func (s *state) foreign(p position) bool {
	has := p.has()
	return has != "" && has != s.lineage && !slices.Contains(s.replaces, has)
}

// domain is one domain at the head, immutable.
type domain struct {
	lineage  string
	revision int64
	// entries are the rules in the order of (revision, name): those that a client at any position lacks are the end of
	// the list.
	entries []entry
	// resources are those of the entries, in the same order, and the domain's own behind them; wire is the same marshalled.
	resources []*discovery.Resource
	wire      mem.BufferSlice
	// tombs are the deleted rules, in the same order, at most maxTombstones; removed are the names of their resources.
	tombs   []entry
	removed []string
	// forgotten is the newest revision whose tombstones are no longer all there.
	forgotten int64
}

type entry struct {
	name     string
	revision int64
	resource *discovery.Resource // nil for a tombstone
	wire     mem.Buffer
}

// changed returns the domain as it is after a step of the feed. Marshalling happens here, once per changed rule.
func (d *domain) changed(info rules.Domain, lineage string, touched []*rules.Rule) (*domain, error) {
	fresh := make(map[string]entry, len(touched))
	for _, r := range touched {
		e := entry{name: r.Name, revision: r.Revision}
		if r.Revision > info.Revision {
			return nil, fmt.Errorf("domain %s is at revision %d, its rule %s at %d", info.Name, info.Revision, r.Name, r.Revision)
		}
		if !r.Deleted() {
			var err error
			if e.resource, err = xds.EncodeRule(r); err != nil {
				return nil, err
			}
			if e.wire, err = marshalled(e.resource); err != nil {
				return nil, err
			}
		}
		fresh[r.Name] = e
	}
	own, err := xds.EncodeDomain(info, lineage)
	if err != nil {
		return nil, err
	}
	next := &domain{lineage: lineage, revision: info.Revision}
	if d != nil {
		next.forgotten = d.forgotten
		next.entries, next.tombs = except(d.entries, fresh), except(d.tombs, fresh)
	}
	for _, e := range fresh {
		if e.resource == nil {
			next.tombs = append(next.tombs, e)
		} else {
			next.entries = append(next.entries, e)
		}
	}
	sortEntries(next.entries)
	sortEntries(next.tombs)
	if n := len(next.tombs) - maxTombstones; n > 0 {
		next.forgotten, next.tombs = next.tombs[n-1].revision, next.tombs[n:]
	}
	return next, next.index(info.Name, own)
}

func except(list []entry, without map[string]entry) []entry {
	kept := make([]entry, 0, len(list)+len(without))
	for _, e := range list {
		if _, ok := without[e.name]; !ok {
			kept = append(kept, e)
		}
	}
	return kept
}

func sortEntries(list []entry) {
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), strings.Compare(a.name, b.name))
	})
}

// index fills the lists that are shared by the steps.
func (d *domain) index(name string, own *discovery.Resource) error {
	last, err := marshalled(own)
	if err != nil {
		return err
	}
	d.resources = make([]*discovery.Resource, 0, len(d.entries)+1)
	d.wire = make(mem.BufferSlice, 0, len(d.entries)+1)
	for _, e := range d.entries {
		d.resources, d.wire = append(d.resources, e.resource), append(d.wire, e.wire)
	}
	d.resources, d.wire = append(d.resources, own), append(d.wire, last)
	for _, e := range d.tombs {
		d.removed = append(d.removed, xds.RuleName(name, e.name))
	}
	return nil
}

// own is the domain's resource, the commit marker.
func (d *domain) own() *discovery.Resource { return d.resources[len(d.resources)-1] }

// lags reports whether a client at p lacks something. One of another lineage lacks everything; one ahead of the head
// lacks nothing here.
func (d *domain) lags(p position) bool {
	return p.lineage != d.lineage || p.rule != "" || p.revision < d.revision
}

// ahead reports that the client has a newer revision than this replica.
func (d *domain) ahead(p position) bool { return p.lineage == d.lineage && p.revision > d.revision }

// step fills the message with what a client at p is sent next, at least one resource and at most about limit bytes, and
// returns where the client stands with it. The slices are shared: nobody may change them.
func (d *domain) step(p position, limit int, m *message) position {
	began, from := p.revision, p.has()
	if p.rule != "" {
		began = p.began
	}
	if p.lineage != d.lineage || began < d.forgotten {
		if p.lineage == d.lineage {
			m.RemovedResources = []string{xds.RuleName(d.own().GetName(), xds.Everything)}
		}
		p, began = position{}, d.revision
	}
	first := after(d.entries, p)
	end, size := first+1, d.wire[first].Len()
	for end < len(d.wire) && size+d.wire[end].Len() <= limit {
		size += d.wire[end].Len()
		end++
	}
	m.Resources, m.resources = d.resources[first:end:end], d.wire[first:end:end]
	next := position{lineage: d.lineage, revision: d.revision}
	if end < len(d.resources) {
		last := d.entries[end-1]
		next = position{lineage: d.lineage, revision: last.revision, rule: last.name, began: began, from: from}
	}
	known, gone := max(after(d.tombs, p), after(d.tombs, position{revision: began})), after(d.tombs, next)
	if known < gone {
		m.RemovedResources = d.removed[known:gone:gone]
	}
	return next
}

// after is the index of the first entry that a client at p does not have.
func after(list []entry, p position) int {
	i, _ := slices.BinarySearchFunc(list, p, func(e entry, p position) int {
		if p.compare(e.revision, e.name) < 0 {
			return 1
		}
		return -1 // equal was sent
	})
	return i
}

// find returns the resource of a rule, or nil.
func (d *domain) find(rule string) *discovery.Resource {
	for _, e := range d.entries {
		if e.name == rule {
			return e.resource
		}
	}
	return nil
}
