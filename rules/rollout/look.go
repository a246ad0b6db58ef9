package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/rules"
)

// Rules returns the rules of a domain by name, or of all domains when domain is "".
func (s *Service) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	return s.store.Rules(ctx, domain)
}

// Domains returns the domains as they stand, by name; all when domain is "". What has ended of them is left out.
func (s *Service) Domains(ctx context.Context, domain string) ([]rules.Domain, error) {
	list, err := s.store.Domains(ctx, domain)
	for i := range list {
		list[i].Freezes = slices.DeleteFunc(list[i].Freezes, func(f rules.Freeze) bool { return !s.now().Before(f.Until) })
	}
	return list, err
}

// Head returns where the history and the audit trail end.
func (s *Service) Head(ctx context.Context) (Head, error) { return s.store.Head(ctx) }

// Audit returns the newest records first.
func (s *Service) Audit(ctx context.Context, query AuditQuery) ([]Record, error) {
	return s.store.Audit(ctx, query)
}

// History returns what each revision made of a rule, oldest first, also when it is deleted.
func (s *Service) History(ctx context.Context, domain, name string) ([]Entry, error) {
	return s.store.History(ctx, domain, name)
}

// Lack is a rule that a node does not have as the control plane has it.
type Lack struct {
	Rule     string // "domain/name"
	Has      string // in words; "" for nothing
	Wanted   string
	Revision int64 // that made the wanted state
	Refused  bool  // the node has it, and refused it
}

// Lacks returns the rules that a node does not have in their newest state, by name. What it has is what stood at the
// revision it acknowledged.
func (s *Service) Lacks(ctx context.Context, n *Node) ([]Lack, error) {
	changes, err := s.store.Changes(ctx, min(n.Acked, oldest(n)))
	if err != nil {
		return nil, fmt.Errorf("compare node %s: %w", n.ID, err)
	}
	var list []Lack
	for i := range changes.Rules {
		r := &changes.Rules[i]
		refused := slices.Contains(n.Refused, r.Name)
		if r.Domain != n.Domain || r.Revision <= n.Acked && !refused {
			continue
		}
		l := Lack{Rule: r.ID(), Wanted: r.State(), Revision: r.Revision, Refused: refused}
		history, err := s.store.History(ctx, r.Domain, r.Name)
		if err != nil {
			return nil, fmt.Errorf("compare node %s: %w", n.ID, err)
		}
		for _, e := range history {
			if e.Rule.Revision <= n.Acked && (!refused || e.Rule.Revision < r.Revision) {
				l.Has = e.Rule.State()
			}
		}
		list = append(list, l)
	}
	return list, nil
}

// oldest is from where to look for rules that a node refused: they may be older than what it acknowledged since.
func oldest(n *Node) int64 {
	if len(n.Refused) > 0 {
		return 0
	}
	return n.Acked
}
