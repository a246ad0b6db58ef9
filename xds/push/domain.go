package push

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// state is everything that is served, at one head. It is immutable: a new head is a new state, which shares the domains
// that did not change.
type state struct {
	lineage string
	head    int64
	domains map[string]*domain
}

// domain is one domain at the head, immutable.
type domain struct {
	lineage  string
	revision int64
	// entries are the rules in the order of (revision, name): those that a client at any position lacks are the end of
	// the list.
	entries []entry
	// resources are those of the entries, in the same order, and the domain's own behind them.
	resources []*discovery.Resource
	// sizes are those of the resources on the wire, in bytes.
	sizes []int
}

type entry struct {
	name     string
	revision int64
	resource *discovery.Resource
	size     int
}

// changed returns the domain as it is after a step of the feed. Marshalling happens here, once per changed rule.
func (d *domain) changed(info rules.Domain, lineage string, touched []*rules.Rule) (*domain, error) {
	fresh := make(map[string]entry, len(touched))
	for _, r := range touched {
		resource, err := xds.EncodeRule(r)
		if err != nil {
			return nil, err
		}
		fresh[r.Name] = entry{name: r.Name, revision: r.Revision, resource: resource, size: proto.Size(resource)}
	}
	own, err := xds.EncodeDomain(info, lineage)
	if err != nil {
		return nil, err
	}
	next := &domain{lineage: lineage, revision: info.Revision}
	if d != nil {
		next.entries = make([]entry, 0, len(d.entries)+len(fresh))
		for _, e := range d.entries {
			if _, ok := fresh[e.name]; !ok {
				next.entries = append(next.entries, e)
			}
		}
	}
	for _, e := range fresh {
		next.entries = append(next.entries, e)
	}
	slices.SortFunc(next.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), strings.Compare(a.name, b.name))
	})
	if n := len(next.entries); n > 0 && next.entries[n-1].revision > info.Revision {
		return nil, fmt.Errorf("domain %s is at revision %d, its rule %s at %d", info.Name, info.Revision, next.entries[n-1].name, next.entries[n-1].revision)
	}
	next.resources = make([]*discovery.Resource, 0, len(next.entries)+1)
	next.sizes = make([]int, 0, len(next.entries)+1)
	for _, e := range next.entries {
		next.resources = append(next.resources, e.resource)
		next.sizes = append(next.sizes, e.size)
	}
	next.resources = append(next.resources, own)
	next.sizes = append(next.sizes, proto.Size(own))
	return next, nil
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

// step returns what a client at p is sent next, at least one resource and at most about limit bytes, and where the client
// stands with it. The slice is shared: nobody may change it.
func (d *domain) step(p position, limit int) ([]*discovery.Resource, position) {
	first := 0
	if p.lineage == d.lineage {
		first, _ = slices.BinarySearchFunc(d.entries, p, func(e entry, p position) int {
			if p.compare(e.revision, e.name) < 0 {
				return 1
			}
			return -1 // equal was sent
		})
	}
	end, size := first+1, d.sizes[first]
	for end < len(d.resources) && size+d.sizes[end] <= limit {
		size += d.sizes[end]
		end++
	}
	part := d.resources[first:end:end]
	if end == len(d.resources) {
		return part, position{lineage: d.lineage, revision: d.revision}
	}
	last := d.entries[end-1]
	return part, position{lineage: d.lineage, revision: last.revision, rule: last.name}
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
