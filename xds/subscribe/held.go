package subscribe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

// held is a committed set of one domain. It is immutable: a step makes another one.
type held struct {
	name     string
	lineage  string
	info     rules.Domain    // revision 0: there is no such domain, and the set is empty
	resource *xdspb.Resource // the domain's own; nil with revision 0
	rules    map[string]heldRule
	// rejected are the rules whose newest version is not the one in rules, or that have none there. By resource name.
	rejected map[string]*xdspb.Rejection
}

type heldRule struct {
	version  string
	resource *xdspb.Resource
	rule     *rules.Rule
}

// step is what arrived for a domain since its last commit.
type step struct {
	lineage string
	rules   map[string]*discovery.Resource // by name
	removed map[string]struct{}
}

func newStep(lineage string) *step {
	return &step{lineage: lineage, rules: map[string]*discovery.Resource{}, removed: map[string]struct{}{}}
}

func (s *step) add(r *discovery.Resource) {
	s.rules[r.GetName()] = r
	delete(s.removed, r.GetName())
}

func (s *step) remove(name string) {
	s.removed[name] = struct{}{}
	delete(s.rules, name)
}

// errOlder refuses to go back in a history.
var errOlder = errors.New("older than the revision in force")

// after returns the set that the step and the domain's resource at its end lead to, and the rules in it that could not
// be taken. An error means that nothing of it can be.
//
// A step of the same lineage is added to the set. A step of another one is a whole set, and takes the place of this one;
// only a rule in it that cannot be taken keeps the version held, as it does in any step.
func (h *held) after(s *step, own *discovery.Resource, check func(*rules.Rule) error) (*held, []*xdspb.Rejection, error) {
	body, err := xds.Unwrap(own)
	if err != nil {
		return nil, nil, err
	}
	info, lineage, err := xds.DecodeDomain(own.GetName(), body)
	if err != nil {
		return nil, nil, err
	}
	next := &held{
		name: own.GetName(), lineage: lineage, info: info, resource: body,
		rules: map[string]heldRule{}, rejected: map[string]*xdspb.Rejection{},
	}
	var was map[string]heldRule
	if h != nil {
		was = h.rules
		if h.lineage == lineage {
			if info.Revision < h.info.Revision {
				return nil, nil, fmt.Errorf("%w: %d, in force is %d", errOlder, info.Revision, h.info.Revision)
			}
			maps.Copy(next.rules, h.rules)
			maps.Copy(next.rejected, h.rejected)
		}
	}
	for name := range s.removed {
		delete(next.rules, name)
		delete(next.rejected, name)
	}
	var rejections []*xdspb.Rejection
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		r := s.rules[name]
		rule, err := decodeRule(r, check)
		if err == nil {
			next.rules[name] = rule
			delete(next.rejected, name)
			continue
		}
		if good, ok := was[name]; ok {
			next.rules[name] = good
		}
		rejection := reject(name, r.GetVersion(), err)
		next.rejected[name] = rejection
		rejections = append(rejections, rejection)
	}
	return next, rejections, nil
}

// maxReason bounds the text of a rejection, in bytes.
const maxReason = 512

// reject says why a resource cannot be taken, in a text that fits everywhere it goes: message, disk, log.
func reject(name, version string, why error) *xdspb.Rejection {
	text := why.Error()
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	return &xdspb.Rejection{Rule: name, Version: version, Reason: strings.ToValidUTF8(text, "?")}
}

func decodeRule(r *discovery.Resource, check func(*rules.Rule) error) (heldRule, error) {
	body, err := xds.Unwrap(r)
	if err != nil {
		return heldRule{}, err
	}
	rule, err := xds.DecodeRule(r.GetName(), body)
	if err != nil {
		return heldRule{}, err
	}
	if err := check(rule); err != nil {
		return heldRule{}, err
	}
	return heldRule{version: r.GetVersion(), resource: body, rule: rule}, nil
}

// update is the set as the sink wants it.
func (h *held) update() Update {
	u := Update{Domain: h.info, Rules: make([]*rules.Rule, 0, len(h.rules))}
	u.Domain.Name = h.name
	for _, r := range h.rules {
		u.Rules = append(u.Rules, r.rule)
	}
	slices.SortFunc(u.Rules, func(a, b *rules.Rule) int { return strings.Compare(a.Name, b.Name) })
	return u
}

// offer adds what the client says it holds when it connects: the revision, and for each rejected rule the version it has
// instead ("" for none).
func (h *held) offer(versions map[string]string) {
	if h.info.Revision == 0 {
		return
	}
	versions[h.name] = xds.DomainVersion(h.lineage, h.info.Revision)
	for name := range h.rejected {
		versions[name] = h.rules[name].version
	}
}

// save is the set as it stands on disk.
func (h *held) save() *xdspb.HeldDomain {
	m := &xdspb.HeldDomain{Name: h.name}
	if h.info.Revision == 0 {
		return m
	}
	m.Version = xds.DomainVersion(h.lineage, h.info.Revision)
	m.Resources = append(m.Resources, &xdspb.HeldResource{Name: h.name, Version: m.GetVersion(), Resource: h.resource})
	for _, name := range slices.Sorted(maps.Keys(h.rules)) {
		r := h.rules[name]
		m.Resources = append(m.Resources, &xdspb.HeldResource{Name: name, Version: r.version, Resource: r.resource})
	}
	for _, name := range slices.Sorted(maps.Keys(h.rejected)) {
		m.Rejections = append(m.Rejections, h.rejected[name])
	}
	return m
}

// restore reads what save wrote. A rule that this program cannot take, since another one wrote the file, is rejected and
// stays out; without the domain's own resource there is no set.
func restore(m *xdspb.HeldDomain, check func(*rules.Rule) error) (*held, error) {
	h := &held{name: m.GetName(), rules: map[string]heldRule{}, rejected: map[string]*xdspb.Rejection{}}
	if m.GetVersion() == "" && len(m.GetResources()) == 0 {
		return h, nil
	}
	for _, r := range m.GetRejections() {
		h.rejected[r.GetRule()] = r
	}
	for _, r := range m.GetResources() {
		if r.GetName() == m.GetName() {
			var err error
			if h.info, h.lineage, err = xds.DecodeDomain(m.GetName(), r.GetResource()); err != nil {
				return nil, fmt.Errorf("domain %s: %w", m.GetName(), err)
			}
			h.resource = r.GetResource()
			continue
		}
		if domain, _ := xds.SplitName(r.GetName()); domain != m.GetName() {
			continue // not a rule of this domain
		}
		rule, err := xds.DecodeRule(r.GetName(), r.GetResource())
		if err == nil {
			err = check(rule)
		}
		if err != nil {
			h.rejected[r.GetName()] = reject(r.GetName(), r.GetVersion(), err)
			continue
		}
		h.rules[r.GetName()] = heldRule{version: r.GetVersion(), resource: r.GetResource(), rule: rule}
	}
	if h.resource == nil {
		return nil, fmt.Errorf("domain %s: its own resource is missing", m.GetName())
	}
	return h, nil
}
