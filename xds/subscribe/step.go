package subscribe

import (
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/xds"
)

// maxCollected bounds what a stream may bring before it commits, in bytes: far more than any set of rules, and far less
// than would end the process.
const maxCollected = 256 << 20

// step is what arrived for a domain since its last commit.
type step struct {
	lineage string
	// whole: what is held and is not in the step is no longer there.
	whole   bool
	rules   map[string]*discovery.Resource // by name
	removed map[string]struct{}
	size    int // bytes of all that came, also of what was replaced since
}

func newStep(lineage string) *step {
	return &step{lineage: lineage, rules: map[string]*discovery.Resource{}, removed: map[string]struct{}{}}
}

func (s *step) add(r *discovery.Resource) {
	s.rules[r.GetName()] = r
	delete(s.removed, r.GetName())
	s.size += len(r.GetName()) + len(r.GetResource().GetValue())
}

func (s *step) remove(name string) {
	s.size += len(name)
	if _, rule := xds.SplitName(name); rule == xds.Everything {
		s.whole = true
		clear(s.rules)
		clear(s.removed)
		return
	}
	s.removed[name] = struct{}{}
	delete(s.rules, name)
}

// errTooMuch ends a stream that never commits.
func errTooMuch(domain string) error {
	return fmt.Errorf("more than %d MiB for domain %s and no revision to commit", maxCollected>>20, domain)
}
