package push

import (
	"cmp"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/xds"
)

// stream is one open stream and the responses on it that have no answer yet.
type stream struct {
	nodeInfo
	identity string // the name of who opened it
	// parts has, for each domain the stream holds (Fleet.current), what was sent since its last commit.
	parts map[string][]*discovery.DeltaDiscoveryResponse
	sent  map[string]*sent // by nonce
}

// sent is a response on its way, or a part of one.
type sent struct {
	domain   string
	lineage  string
	revision int64
	// commit: the domain's resource is in it, so the answer speaks of the revision. The answer to any other part says
	// only that it arrived.
	commit bool
	parts  []*discovery.DeltaDiscoveryResponse // a commit's parts: all that its answer speaks of
}

// holds reports that the stream is the node's newest that subscribes to the domain.
func (s *stream) holds(domain string) bool {
	_, ok := s.parts[domain]
	return ok
}

// sending notes the response under its nonce. Only the response is looked at, so that what is recorded is what was sent.
func (s *stream) sending(response *discovery.DeltaDiscoveryResponse) *sent {
	out := &sent{}
	s.sent[response.GetNonce()] = out
	if n := len(response.GetResources()); n > 0 {
		last := response.GetResources()[n-1]
		domain, rule := xds.SplitName(last.GetName())
		out.domain = domain
		if rule == "" {
			out.lineage, out.revision, out.commit = xds.ParseDomainVersion(last.GetVersion())
		}
	}
	if !s.holds(out.domain) {
		return out // "no such domain", or one that a newer stream has
	}
	s.parts[out.domain] = append(s.parts[out.domain], response)
	if out.commit {
		out.parts = s.parts[out.domain]
		s.parts[out.domain] = nil
	}
	return out
}

// contents are the resources of the parts by name, in their newest state; nil for one that was taken away. They are
// collected only when a refusal has to be compared with them.
func (s *sent) contents() map[string]*discovery.Resource {
	all := map[string]*discovery.Resource{}
	for _, part := range s.parts {
		for _, name := range part.GetRemovedResources() {
			all[name] = nil
		}
		for _, r := range part.GetResources() {
			all[r.GetName()] = r
		}
	}
	return all
}

// refused describes the refusal of a resource in the response: which content it speaks of, and the revision that made it
// what it is, since a step may join several.
func (s *sent) refused(name string, r *discovery.Resource, reason string) refusal {
	why := refusal{revision: s.revision, what: r.GetVersion(), reason: printable(reason)}
	body, err := xds.Unwrap(r)
	if err != nil {
		return why
	}
	if _, rule := xds.SplitName(name); rule == xds.Settings {
		why.what = string(body.GetDomain().GetSettings()) // the domain's own version is another one with each revision
		why.revision = cmp.Or(body.GetDomain().GetSettingsRevision(), s.revision)
	} else if body.GetRule() != nil {
		why.revision = body.GetRule().GetRevision()
	}
	return why
}
