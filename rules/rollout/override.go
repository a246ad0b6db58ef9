package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headgate/headgate/rules"
)

// SetOverride gives one key another rate until a time, in place of an override it has for that limit.
type SetOverride struct {
	Override  rules.Override
	Confirmed bool // also ten times more or less than the limit
}

func (op SetOverride) on(s *Standing) (rules.Rule, string, error) {
	if err := s.exists(); err != nil {
		return s.Rule, "", err
	}
	r, o := s.Rule, op.Override
	spec := &inForce(&r).Spec
	if err := rules.CheckOverride(spec, o); err != nil {
		return r, "", err
	}
	if !s.Now.Before(o.Until) {
		return r, "", fmt.Errorf("%w: the override would end at %s, which is past", rules.ErrInvalid, o.Until.Format(timeText))
	}
	if !op.Confirmed {
		if err := tenfold(r.ID(), spec, withRate(spec, o)); err != nil {
			return r, "", err
		}
	}
	if slices.ContainsFunc(r.Overrides, func(old rules.Override) bool { return sameOverride(old, o) }) {
		return r, "it has this override already", nil
	}
	list := slices.DeleteFunc(unexpired(r.Overrides, s.Now), func(old rules.Override) bool {
		return old.Key == o.Key && old.Limit == o.Limit
	})
	if len(list) == rules.MaxOverrides {
		return r, "", s.conflict(fmt.Sprintf("it has %d overrides, the most there can be; delete one first, or make a plan of the limit (limit.by)", len(list)))
	}
	r.Overrides = append(list, o)
	slices.SortFunc(r.Overrides, func(a, b rules.Override) int {
		return cmp.Or(slices.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Limit, b.Limit))
	})
	return r, "", nil
}

// inForce is the version that decides for most keys: the stable, or else the candidate.
func inForce(r *rules.Rule) *rules.Version { return cmp.Or(r.Stable, r.Candidate) }

func sameOverride(a, b rules.Override) bool {
	return a.Key == b.Key && a.Limit == b.Limit && a.Rate == b.Rate && a.Until.Equal(b.Until)
}

// withRate is the spec as it is for the key of the override.
func withRate(spec *rules.Spec, o rules.Override) *rules.Spec {
	s := *spec
	s.Limits = slices.Clone(s.Limits)
	for i := range s.Limits {
		if s.Limits[i].Name == o.Limit {
			s.Limits[i].Rate = o.Rate
		}
	}
	return &s
}

// DeleteOverride ends the overrides of a key.
type DeleteOverride struct {
	Key   rules.OverrideKey
	Limit string // "": of all limits
}

func (op DeleteOverride) on(s *Standing) (rules.Rule, string, error) {
	if err := s.exists(); err != nil {
		return s.Rule, "", err
	}
	r := s.Rule
	all := unexpired(r.Overrides, s.Now)
	left := slices.DeleteFunc(slices.Clone(all), func(o rules.Override) bool {
		return o.Key == op.Key && (op.Limit == "" || o.Limit == op.Limit)
	})
	if len(left) == len(all) {
		return r, "there is no such override", nil
	}
	r.Overrides = left
	return r, "", nil
}
