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

// held is a committed set of one domain. It is immutable: a step makes another one, which shares what did not change.
type held struct {
	name     string
	lineage  string
	info     rules.Domain     // revision 0: there is no such domain, and the set is empty
	resource *xdspb.Resource  // the domain's own; nil with revision 0
	rules    sorted[heldRule] // by resource name, as what follows
	// rejected are the rules whose newest version is not the one in rules, or that have none there. The domain's shard and
	// exemptions are among them under the name of [xds.Settings].
	rejected sorted[xdspb.Rejection]
}

type heldRule struct {
	version  string
	resource *xdspb.Resource
	rule     *rules.Rule
}

// errOlder refuses to go back in a history.
var errOlder = errors.New("older than the revision in force")

// after returns the set that the step and the domain's resource at its end lead to, and what in it could not be taken.
// An error means that nothing of it can be.
//
// A step of the same lineage is added to the set, unless it is whole. A step of another one is always whole, and takes the
// place of this set; only what cannot be taken keeps the version held, as it does in any step.
//
// Of a step of a few rules, the cost is theirs and a copy of the lists: 0.2 ms with 10,000 rules.
func (h *held) after(s *step, own *discovery.Resource, check func(*rules.Rule) error) (*held, []*xdspb.Rejection, error) {
	body, err := xds.Unwrap(own)
	if err != nil {
		return nil, nil, err
	}
	domain, err := xds.DecodeDomain(own.GetName(), body)
	if err != nil {
		return nil, nil, err
	}
	if s.lineage != "" && s.lineage != domain.Lineage {
		return nil, nil, fmt.Errorf("%w: a revision of the history %s in a response of the history %s", rules.ErrInvalid, domain.Lineage, s.lineage)
	}
	if h == nil {
		h = &held{}
	}
	next := &held{name: own.GetName(), lineage: domain.Lineage, info: domain.Domain, resource: body}
	if h.lineage == next.lineage {
		if next.info.Revision < h.info.Revision {
			return nil, nil, fmt.Errorf("%w: %d, in force is %d", errOlder, next.info.Revision, h.info.Revision)
		}
		if !s.whole {
			next.rules, next.rejected = h.rules, h.rejected
		}
	}
	c := newChange()
	for name := range s.removed {
		c.rules[name], c.rejected[name] = nil, nil
	}
	var rejections []*xdspb.Rejection
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		if rejection := next.take(c, s.rules[name], h, check); rejection != nil {
			rejections = append(rejections, rejection)
		}
	}
	if rejection := next.settle(c, h, domain.Refused); rejection != nil {
		rejections = append(rejections, rejection)
	}
	next.apply(c)
	return next, rejections, nil
}

// change is what a step does to the lists of a set.
type change struct {
	rules    edits[heldRule]
	rejected edits[xdspb.Rejection]
}

func newChange() *change { return &change{edits[heldRule]{}, edits[xdspb.Rejection]{}} }

// apply ends the making of a set.
func (h *held) apply(c *change) {
	h.rules, h.rejected = h.rules.with(c.rules), h.rejected.with(c.rejected)
}

// take puts one resource of a step into the change of the set, or says why it cannot be. Was is the set before.
func (h *held) take(c *change, r *discovery.Resource, was *held, check func(*rules.Rule) error) *xdspb.Rejection {
	name := r.GetName()
	good := was.rules.find(name)
	rule, err := decodeRule(r, check)
	if err == nil {
		err = h.sound(rule, good, was)
	}
	if rule.resource.GetLastGood() {
		// It stands in for a version that was refused, where there is nothing else. The refusal of the newest stands.
		if h.rejected.find(name) == nil || good != nil {
			return nil
		}
		if err == nil {
			c.rules[name] = rule
			return nil
		}
		return reject(name, r.GetVersion(), err, false)
	}
	if err == nil {
		c.rules[name], c.rejected[name] = rule, nil
		return nil
	}
	if good != nil {
		c.rules[name] = good
	}
	c.rejected[name] = reject(name, r.GetVersion(), err, good != nil)
	return c.rejected[name]
}

// sound refuses what no revision holds: a rule that is newer than its revision, or older than what is in force. What is in
// force in place of a refused version can be of another history, whose numbers say nothing here.
func (h *held) sound(r, good *heldRule, was *held) error {
	switch {
	case r.rule.Revision > h.info.Revision:
		return fmt.Errorf("%w: it is of revision %d, in a step to revision %d", rules.ErrInvalid, r.rule.Revision, h.info.Revision)
	case good != nil && was.lineage == h.lineage && was.rejected.find(xds.RuleName(h.name, r.rule.Name)) == nil && r.rule.Revision < good.rule.Revision:
		return fmt.Errorf("%w: %d, in force is %d", errOlder, r.rule.Revision, good.rule.Revision)
	}
	return nil
}

// settle keeps the shard and the exemptions of the set before where those of this revision were refused, and says so.
func (h *held) settle(c *change, was *held, refused error) *xdspb.Rejection {
	name := xds.RuleName(h.name, xds.Settings)
	if refused == nil {
		c.rejected[name] = nil
		return nil
	}
	h.info.Shard, h.info.Exempt = was.info.Shard, was.info.Exempt
	c.rejected[name] = reject(name, "", fmt.Errorf("shard and exemptions stay as they were: %w", refused), was.resource != nil)
	return c.rejected[name]
}

// maxReason bounds the text of a rejection, in bytes.
const maxReason = 512

// reject says why a resource cannot be taken, in a text that fits everywhere it goes: message, disk, log.
func reject(name, version string, why error, holds bool) *xdspb.Rejection {
	text := why.Error()
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	return &xdspb.Rejection{Rule: name, Version: version, Reason: strings.ToValidUTF8(text, "?"), Holds: holds}
}

// decodeRule returns the rule in a resource; on an error at least the resource, where it could be unwrapped.
func decodeRule(r *discovery.Resource, check func(*rules.Rule) error) (*heldRule, error) {
	body, err := xds.Unwrap(r)
	if err != nil {
		return &heldRule{}, err
	}
	rule, err := xds.DecodeRule(r.GetName(), body)
	if err == nil {
		err = check(rule)
	}
	if err != nil {
		return &heldRule{resource: body}, err
	}
	return &heldRule{version: r.GetVersion(), resource: body, rule: rule}, nil
}

// update is the set as the sink wants it.
func (h *held) update() Update {
	u := Update{Domain: h.info, Rules: make([]*rules.Rule, len(h.rules))}
	u.Domain.Name = h.name
	for i, r := range h.rules {
		u.Rules[i] = r.value.rule
	}
	return u
}

// offer adds what the client says it holds when it connects: the revision, and for each rejected rule the version it has
// instead ("" for none).
func (h *held) offer(versions map[string]string) {
	if h.info.Revision == 0 {
		return
	}
	versions[h.name] = xds.DomainVersion(h.lineage, h.info.Revision)
	for _, r := range h.rejected {
		versions[r.name] = ""
		if good := h.rules.find(r.name); good != nil {
			versions[r.name] = good.version
		}
	}
}

// save is the set as it stands on disk.
func (h *held) save() *xdspb.HeldDomain {
	m := &xdspb.HeldDomain{Name: h.name}
	if h.info.Revision == 0 {
		return m
	}
	m.Version = xds.DomainVersion(h.lineage, h.info.Revision)
	if h.rejected.find(xds.RuleName(h.name, xds.Settings)) != nil {
		m.Settings, _ = xds.EncodeSettings(h.info) // it was decoded, so it encodes
	}
	m.Resources = append(m.Resources, &xdspb.HeldResource{Name: h.name, Version: m.GetVersion(), Resource: h.resource})
	for _, r := range h.rules {
		m.Resources = append(m.Resources, &xdspb.HeldResource{Name: r.name, Version: r.value.version, Resource: r.value.resource})
	}
	for _, r := range h.rejected {
		m.Rejections = append(m.Rejections, r.value)
	}
	return m
}

// restore reads what save wrote. A rule that this program cannot take, since another one wrote the file, is rejected and
// stays out; without the domain's own resource there is no set.
func restore(m *xdspb.HeldDomain, check func(*rules.Rule) error) (*held, error) {
	h := &held{name: m.GetName()}
	if m.GetVersion() == "" && len(m.GetResources()) == 0 {
		return h, nil
	}
	c := newChange()
	for _, r := range m.GetRejections() {
		c.rejected[r.GetRule()] = r
	}
	for _, r := range m.GetResources() {
		if r.GetName() == m.GetName() {
			if err := h.restoreDomain(c, r.GetResource(), m.GetSettings()); err != nil {
				return nil, fmt.Errorf("domain %s: %w", m.GetName(), err)
			}
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
			c.rejected[r.GetName()] = reject(r.GetName(), r.GetVersion(), err, false)
			continue
		}
		c.rules[r.GetName()] = &heldRule{version: r.GetVersion(), resource: r.GetResource(), rule: rule}
	}
	if h.resource == nil {
		return nil, fmt.Errorf("domain %s: its own resource is missing", m.GetName())
	}
	h.apply(c)
	return h, nil
}

// restoreDomain reads the domain's own resource, and the settings that were in force where those in it were refused.
func (h *held) restoreDomain(c *change, body *xdspb.Resource, settings []byte) error {
	domain, err := xds.DecodeDomain(h.name, body)
	if err != nil {
		return err
	}
	h.info, h.lineage, h.resource = domain.Domain, domain.Lineage, body
	was := &held{resource: body}
	if domain.Refused != nil && xds.DecodeSettings(settings, &was.info) != nil {
		was.info = rules.Domain{} // neither can be taken: rules without exemptions are better than none
	}
	saved := c.rejected[xds.RuleName(h.name, xds.Settings)]
	if rejection := h.settle(c, was, domain.Refused); rejection != nil && saved != nil {
		rejection.Holds = saved.GetHolds() // whether there were any before the refused ones, only the file knows
	}
	return nil
}
