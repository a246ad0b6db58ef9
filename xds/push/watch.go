package push

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// watch is one open question of a stream: tell me when a domain of mine moves.
type watch struct {
	peer *peer
	req  *cache.DeltaRequest
	out  chan cache.DeltaResponse
	held []held // by domain
}

// held is what the stream's client has of one domain it subscribes to.
type held struct {
	domain string
	at     position
	// standing are the rules of which the client says that it refused their newest version, and the versions it has
	// instead. It says so when it connects, and is sent them once more on that stream: its program may know better now,
	// and this control plane may not know of the refusal. With their answer the entry ends.
	standing map[string]string
}

// newWatch copies what it needs from the subscription, whose maps belong to the server and change after cancel.
func newWatch(p *peer, req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (*watch, error) {
	w := &watch{peer: p, req: req, out: out}
	for _, name := range slices.Sorted(maps.Keys(sub.SubscribedResources())) {
		if problem := rules.CheckName(name); problem != "" {
			return nil, fmt.Errorf("%w: subscribe to domains: %s", rules.ErrInvalid, problem)
		}
		w.held = append(w.held, held{domain: name})
	}
	for name, version := range sub.ReturnedResources() {
		domain, rule := xds.SplitName(name)
		i, ok := slices.BinarySearchFunc(w.held, domain, func(h held, domain string) int {
			return strings.Compare(h.domain, domain)
		})
		switch {
		case !ok: // no longer subscribed
		case rule == "":
			w.held[i].at = parsePosition(version)
		case w.held[i].standing == nil:
			w.held[i].standing = map[string]string{rule: version}
		default:
			w.held[i].standing[rule] = version
		}
	}
	return w, nil
}

// next returns the response that brings the client forward in one domain, or nil when it lags nowhere. Of several it
// takes the one the client is furthest behind in, so that a domain that changes all the time cannot starve the others.
func (w *watch) next(s *state, limit int) cache.DeltaResponse {
	var pick *held
	for i := range w.held {
		if h := &w.held[i]; h.lags(s) && (pick == nil || h.at.revision < pick.at.revision) {
			pick = h
		}
	}
	m := &message{DeltaDiscoveryResponse: &discovery.DeltaDiscoveryResponse{
		TypeUrl:           xds.TypeURL,
		SystemVersionInfo: xds.DomainVersion(s.lineage, s.head),
	}}
	if pick != nil {
		return w.answer(m, pick, pick.step(s, limit, m))
	}
	for i := range w.held {
		h := &w.held[i]
		if m.Resources = w.peer.lastGood(s, h, limit); len(m.GetResources()) > 0 {
			return w.answer(m, h, h.at)
		}
	}
	return nil
}

// answer takes a message that is the client's own, since the server writes the nonce into it, around resources that are
// shared.
func (w *watch) answer(m *message, served *held, at position) cache.DeltaResponse {
	return &answer{
		DeltaPassthroughResponse: cache.DeltaPassthroughResponse{
			DeltaRequest:           w.req,
			DeltaDiscoveryResponse: m.DeltaDiscoveryResponse,
			NextVersionMap:         w.versions(served, at),
		},
		peer:    w.peer,
		message: m,
	}
}

func (h *held) lags(s *state) bool {
	if s.foreign(h.at) {
		return false // its rules stay in force until an admin says that they are replaced
	}
	d := s.domains[h.domain]
	if d == nil {
		// A client that is ahead of this replica knows the domain from a revision that has not arrived here.
		ahead := h.at.lineage == s.lineage && h.at.revision > s.head
		return !h.at.absent && !ahead
	}
	return d.lags(h.at) || len(h.standing) > 0 && !d.ahead(h.at)
}

// step fills the message and returns where the client stands with it.
func (h *held) step(s *state, limit int, m *message) position {
	d := s.domains[h.domain]
	if d == nil {
		m.RemovedResources = []string{h.domain}
		return position{absent: true}
	}
	at := h.at
	if d.lags(h.at) {
		at = d.step(h.at, limit, m)
	} else {
		m.Resources = []*discovery.Resource{d.own()}
	}
	if h.at.lineage == d.lineage {
		h.again(d, m)
	}
	return at
}

// again puts the refused rules in front of a step that does not have them anyway. The domain's settings come with the
// domain.
func (h *held) again(d *domain, m *message) {
	var front []*discovery.Resource
	var gone []string
	for _, rule := range slices.Sorted(maps.Keys(h.standing)) {
		r := d.find(rule)
		switch {
		case rule == xds.Settings:
		case r == nil:
			gone = append(gone, xds.RuleName(h.domain, rule))
		case !slices.Contains(m.GetResources(), r):
			front = append(front, r)
		}
	}
	if len(front) > 0 {
		m.Resources, m.resources = slices.Concat(front, m.GetResources()), nil
	}
	if len(gone) > 0 {
		m.RemovedResources = slices.Compact(slices.Sorted(slices.Values(slices.Concat(gone, m.GetRemovedResources()))))
	}
}

// versions is the stream's next map: small, and its own. The served domain's standing refusals end with the response.
func (w *watch) versions(served *held, at position) map[string]string {
	next := make(map[string]string, len(w.held))
	for i := range w.held {
		h := &w.held[i]
		if h == served {
			next[h.domain] = at.String()
			continue
		}
		if text := h.at.String(); text != "" {
			next[h.domain] = text
		}
		for rule, version := range h.standing {
			next[xds.RuleName(h.domain, rule)] = version
		}
	}
	return next
}
