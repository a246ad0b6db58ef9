package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// Tallies is what the sidecars counted, as far as it is looked at.
type Tallies interface {
	Births(ctx context.Context, uids []string) (map[string]tally.Birth, error)
	Series(ctx context.Context, q tally.Query) ([]tally.Point, error)
	DomainSeries(ctx context.Context, q tally.Query) ([]tally.DomainPoint, error)
	Keys(ctx context.Context, q tally.Query) ([]tally.VersionKeys, error)
	Rates(ctx context.Context, q tally.Query) ([]tally.VersionRates, error)
	Refusals(ctx context.Context, q tally.RefusalQuery) ([]tally.Refusal, error)
	Missing(ctx context.Context, from, to time.Time) ([]tally.Missing, error)
}

// mayLook checks who looks at the counts of a domain, and that there are any.
func (s *Server) mayLook(ctx context.Context, domain, rule string) error {
	check := checkDomain(domain)
	if rule != "" {
		check = checkRule(domain, rule)
	}
	if check != nil {
		return check
	}
	if err := identity(ctx).May(access.Viewer, domain); err != nil {
		return err
	}
	return s.counting()
}

func (s *Server) counting() error {
	if s.options.Tallies == nil {
		return fmt.Errorf("%w: this control plane keeps no counts", rules.ErrUnavailable)
	}
	return nil
}

// subject is a rule that is looked at, with the versions that are known of it by their numbers.
type subject struct {
	rule     rules.Rule // as it stands, also deleted
	versions map[int64]*rules.Version
}

func newSubject(r *rules.Rule) subject {
	sub := subject{rule: *r, versions: map[int64]*rules.Version{}}
	sub.know(r)
	return sub
}

func (sub *subject) know(r *rules.Rule) {
	for _, v := range []*rules.Version{r.Stable, r.Candidate} {
		if v != nil {
			sub.versions[v.Number] = v
		}
	}
}

// subject is the named rule with every version it has had.
func (s *Server) subject(ctx context.Context, domain, name string) (subject, error) {
	history, err := s.service.History(ctx, domain, name)
	if err != nil {
		return subject{}, fmt.Errorf("rule %s/%s: %w", domain, name, err)
	}
	sub := newSubject(&history[len(history)-1].Rule)
	for i := range history {
		sub.know(&history[i].Rule)
	}
	return sub, nil
}

// subjects are the rules of a domain as they stand, or the named one, with every version it has had.
func (s *Server) subjects(ctx context.Context, domain, name string) ([]subject, error) {
	if name != "" {
		sub, err := s.subject(ctx, domain, name)
		return []subject{sub}, err
	}
	list, err := s.service.Rules(ctx, domain)
	if err != nil {
		return nil, err
	}
	subs := make([]subject, len(list))
	for i := range list {
		subs[i] = newSubject(&list[i])
	}
	return subs, nil
}

// domain returns a domain as it stands.
func (s *Server) domain(ctx context.Context, name string) (*rules.Domain, error) {
	list, err := s.service.Domains(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("domain %s: %w", name, rules.ErrNotFound)
	}
	return &list[0], nil
}

// maxMissing is how many spans without counts a reply names.
const maxMissing = 100

// missing names the spans of which counts of the domain ("": any that the caller may see) will never come. What a sidecar
// that is known serves tells whether it counted for the domain.
func (s *Server) missing(ctx context.Context, domain string, from, to time.Time) ([]*adminpb.MissingCounts, error) {
	gaps, err := s.options.Tallies.Missing(ctx, from, to)
	if err != nil || len(gaps) == 0 {
		return nil, err
	}
	nodes, err := s.service.Fleet(ctx, "")
	if err != nil {
		return nil, err
	}
	who := identity(ctx)
	var list []*adminpb.MissingCounts
	for _, g := range gaps {
		m := &adminpb.MissingCounts{Node: g.Node, From: timestamp(g.From), To: timestamp(g.To)}
		is := func(n rollout.NodeStatus) bool { return n.ID == g.Node }
		counted := func(n rollout.NodeStatus) bool {
			return is(n) && (n.Domain == domain || domain == "" && who.May(access.Viewer, n.Domain) == nil)
		}
		switch {
		case slices.ContainsFunc(nodes, counted):
		case slices.ContainsFunc(nodes, is):
			continue // it serves other domains
		case who.Domains != nil:
			m.Node = "" // it is forgotten, and nobody knows whether its name is the caller's business
		}
		if list = append(list, m); len(list) == maxMissing {
			break
		}
	}
	return list, nil
}
