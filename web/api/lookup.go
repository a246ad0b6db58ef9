package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	defaultLookup = day
	someRefusals  = 50 // by default
	maxRefusals   = 500
	maxReference  = 64  // bytes
	maxKeyForms   = 100 // in which the rules of a domain have a key
	rulesAtOnce   = 100 // whose keys are read in one go
)

// Lookup returns what happened to one key, or what the refusal with a reference was. The values of a key get into no text.
func (s *Server) Lookup(ctx context.Context, req *adminpb.LookupRequest) (*adminpb.LookupResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := s.lookup(ctx, req, time.Now())
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	return resp, nil
}

func (s *Server) lookup(ctx context.Context, req *adminpb.LookupRequest, now time.Time) (*adminpb.LookupResponse, error) {
	switch {
	case req.GetReference() != "" && len(req.GetKey()) > 0:
		return nil, fmt.Errorf("%w: a key and a reference exclude each other", rules.ErrInvalid)
	case req.GetReference() == "" && len(req.GetKey()) == 0 && req.GetRule() == "":
		return nil, fmt.Errorf("%w: it wants the values of a key, or a reference", rules.ErrInvalid)
	}
	sp, err := keySpan(req.GetSince(), defaultLookup, now)
	if err != nil {
		return nil, err
	}
	resp := &adminpb.LookupResponse{From: timestamp(sp.from), To: timestamp(sp.to)}
	find := s.lookUpKey
	if req.GetReference() != "" {
		find = s.lookUpReference
	}
	refusals, err := find(ctx, req, &sp, resp)
	if err != nil {
		return nil, err
	}
	if resp.Refusals, err = s.refusalMessages(ctx, refusals); err != nil {
		return nil, err
	}
	resp.Missing, err = s.missing(ctx, req.GetDomain(), sp.from, sp.to)
	return resp, err
}

// lookUpReference returns the refusals that a caller was told of by the reference.
func (s *Server) lookUpReference(ctx context.Context, req *adminpb.LookupRequest, sp *span, resp *adminpb.LookupResponse) ([]tally.Refusal, error) {
	reference := strings.ToUpper(strings.TrimSpace(req.GetReference()))
	if len(reference) > maxReference || strings.ContainsFunc(reference, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, fmt.Errorf("%w: the reference is not of the form that callers are told", rules.ErrInvalid) // it may be a key, by mistake
	}
	if req.GetDomain() == "" && req.GetRule() == "" {
		if err := s.counting(); err != nil {
			return nil, err
		}
	} else if err := s.mayLook(ctx, req.GetDomain(), req.GetRule()); err != nil {
		return nil, err
	}
	q := tally.RefusalQuery{Reference: reference, From: sp.from, To: sp.to, Limit: maxRefusals}
	if req.GetRule() != "" {
		sub, err := s.subject(ctx, req.GetDomain(), req.GetRule())
		if err != nil {
			return nil, err
		}
		q.UID = sub.rule.UID
	}
	refusals, err := gather(ctx, req.GetDomain(), func(ctx context.Context, domain string) ([]tally.Refusal, error) {
		q.Domain = domain
		return s.options.Tallies.Refusals(ctx, q)
	})
	if len(refusals) == 0 {
		resp.Unknown = append(resp.Unknown, "no refusal with this reference is kept: only a sample of the last ones is")
	}
	return refusals, err
}

// lookUpKey returns the refusals of a key, and puts what is counted of it into the answer.
func (s *Server) lookUpKey(ctx context.Context, req *adminpb.LookupRequest, sp *span, resp *adminpb.LookupResponse) ([]tally.Refusal, error) {
	if err := s.mayLook(ctx, req.GetDomain(), req.GetRule()); err != nil {
		return nil, err
	}
	domain, err := s.domain(ctx, req.GetDomain())
	if err != nil {
		return nil, err
	}
	subs, err := s.subjects(ctx, domain.Name, req.GetRule())
	if err != nil {
		return nil, err
	}
	found, err := findKey(domain, subs, req)
	if err != nil {
		return nil, err
	}
	for uids := range slices.Chunk(slices.Sorted(maps.Keys(found.rules)), rulesAtOnce) {
		keys, err := s.options.Tallies.Keys(ctx, sp.query(domain.Name, uids))
		if err != nil {
			return nil, err
		}
		resp.Standings = append(resp.Standings, found.standings(uids, keys, req.GetRule() != "")...)
	}
	slices.SortFunc(resp.Standings, func(a, b *adminpb.KeyStanding) int {
		return cmp.Or(cmp.Compare(a.GetRule(), b.GetRule()), cmp.Compare(a.GetVersion(), b.GetVersion()))
	})
	resp.Unknown = found.unknown(resp.Standings)
	q := tally.RefusalQuery{Domain: domain.Name, From: sp.from, To: sp.to, Limit: someRefusals}
	if limit := int(req.GetLimit()); limit > 0 {
		q.Limit = min(limit, maxRefusals)
	}
	if req.GetRule() != "" {
		q.UID = subs[0].rule.UID
	}
	return s.refusalsOf(ctx, found, q)
}

// refusalsOf returns the newest refusals of a key, in whichever form.
func (s *Server) refusalsOf(ctx context.Context, found *foundKey, q tally.RefusalQuery) ([]tally.Refusal, error) {
	var refusals []tally.Refusal
	for _, q.Key = range found.ids() {
		some, err := s.options.Tallies.Refusals(ctx, q)
		if err != nil {
			return nil, err
		}
		refusals = append(refusals, some...)
	}
	slices.SortStableFunc(refusals, func(a, b tally.Refusal) int { return b.Time.Compare(a.Time) })
	return refusals[:min(len(refusals), q.Limit)], nil
}

// foundKey is a key as the rules of a domain know it.
type foundKey struct {
	labels map[tally.KeyID]string
	rules  map[string]*subject              // that have such a key, by uid
	of     map[string]map[int64]tally.KeyID // by uid and version
	others []string                         // of a named rule: the keys of versions that have another, in words
}

// findKey hashes the values for each version that has a key of which they can be.
func findKey(domain *rules.Domain, subs []subject, req *adminpb.LookupRequest) (*foundKey, error) {
	f := &foundKey{labels: map[tally.KeyID]string{}, rules: map[string]*subject{}, of: map[string]map[int64]tally.KeyID{}}
	var problem error
	for i := range subs {
		sub := &subs[i]
		for _, number := range slices.Sorted(maps.Keys(sub.versions)) {
			spec := &sub.versions[number].Spec
			key, err := rules.KeyOfValues(spec, req.GetKey())
			if err != nil {
				problem = err // the newest version's is told
				if words := keyWords(spec); req.GetRule() != "" && !slices.Contains(f.others, words) {
					f.others = append(f.others, words)
				}
				continue
			}
			id := tally.KeyOf(domain.Secret, spec, key)
			if f.of[sub.rule.UID] == nil {
				f.of[sub.rule.UID] = map[int64]tally.KeyID{}
			}
			f.labels[id], f.rules[sub.rule.UID], f.of[sub.rule.UID][number] = tally.Label(domain.Secret, spec, key), sub, id
		}
	}
	switch {
	case len(f.rules) == 0 && req.GetRule() != "":
		return nil, problem // which names the parts of the key, and no value
	case len(f.rules) == 0:
		return nil, fmt.Errorf("%w: no rule of %s has a key of %d such values: name the rule", rules.ErrInvalid, domain.Name, len(req.GetKey()))
	case len(f.labels) > maxKeyForms:
		return nil, fmt.Errorf("%w: the rules of %s have keys of too many forms: name the rule", rules.ErrInvalid, domain.Name)
	}
	return f, nil
}

func keyWords(s *rules.Spec) string {
	if len(s.Key) == 0 {
		return "one counter for all"
	}
	parts := make([]string, len(s.Key))
	for i := range s.Key {
		parts[i] = s.Key[i].String()
	}
	return strings.Join(parts, ", ")
}

func (f *foundKey) ids() []tally.KeyID {
	return slices.SortedFunc(maps.Keys(f.labels), func(a, b tally.KeyID) int { return slices.Compare(a[:], b[:]) })
}

// standings are what each version of some rules did to the key: those that have it on their lists; and those in force that
// may have gone against it, or, of a named rule, have not.
func (f *foundKey) standings(uids []string, keys []tally.VersionKeys, named bool) (list []*adminpb.KeyStanding) {
	for _, uid := range uids {
		sub, listed, least := f.rules[uid], map[int64]bool{}, map[int64]int64{}
		for i := range keys {
			if keys[i].UID != uid {
				continue
			}
			k, rank, most := f.rank(&keys[i])
			least[keys[i].Version], listed[keys[i].Version] = most, rank > 0
			if rank > 0 {
				list = append(list, &adminpb.KeyStanding{
					Rule: sub.rule.Name, Version: keys[i].Version, Role: roleOf(&sub.rule, keys[i].Version), Rank: int32(rank), //nolint:gosec // at most 128
					Refused: k.Refused, WouldRefuse: k.Would, Over: k.Over, Label: f.labels[k.Key],
				})
			}
		}
		for version, id := range f.of[uid] {
			role := roleOf(&sub.rule, version)
			if !listed[version] && role != roleEarlier && (named || least[version] > 0) {
				list = append(list, &adminpb.KeyStanding{Rule: sub.rule.Name, Version: version, Role: role, Over: least[version], Label: f.labels[id]})
			}
		}
	}
	return list
}

// rank finds the key on a list, from 1; where it is not there, rank is 0, and most is how often it may have been.
func (f *foundKey) rank(of *tally.VersionKeys) (k tally.KeyCount, rank int, most int64) {
	list := of.Keys.Keys()
	at := slices.IndexFunc(list, func(k tally.KeyCount) bool {
		_, is := f.labels[k.Key]
		return is
	})
	switch {
	case at >= 0:
		return list[at], at + 1, 0
	case len(list) == tally.MaxTopKeys:
		most = list[len(list)-1].Count()
	}
	return k, 0, most
}

// unknown says what standings do not tell.
func (f *foundKey) unknown(list []*adminpb.KeyStanding) []string {
	words := []string{"calls that passed are not counted by key, and only a sample of the last refusals is kept"}
	if len(f.others) > 0 {
		words = append(words, "versions of the rule with another key are not in this: "+strings.Join(f.others, "; "))
	}
	if slices.ContainsFunc(list, func(k *adminpb.KeyStanding) bool { return k.GetWouldRefuse() > 0 }) {
		words = append(words, "what would be refused is an estimate where another rule refused it too")
	}
	for _, k := range list {
		if k.GetRank() == 0 && k.GetOver() > 0 {
			words = append(words, fmt.Sprintf("%s v%d: not among the %d keys that were hit most; a key that was refused a few times, %d at most, may be missing",
				k.GetRule(), k.GetVersion(), tally.MaxTopKeys, k.GetOver()))
		}
	}
	return words
}

// refusalMessages names the rules of refusals, also of those that are deleted.
func (s *Server) refusalMessages(ctx context.Context, refusals []tally.Refusal) ([]*adminpb.Refusal, error) {
	uids := map[string]bool{}
	for i := range refusals {
		uids[refusals[i].UID] = true
	}
	births, err := s.options.Tallies.Births(ctx, slices.Sorted(maps.Keys(uids)))
	if err != nil {
		return nil, err
	}
	list := make([]*adminpb.Refusal, len(refusals))
	for i := range refusals {
		r := &refusals[i]
		list[i] = &adminpb.Refusal{
			Time: timestamp(r.Time), Domain: r.Domain, Rule: births[r.UID].Rule, Version: r.Version, Limit: r.Limit, Outcome: r.Outcome.String(),
			Label: r.Label, KeyId: r.Key.String(), Path: r.Path, Reference: r.Reference, Node: r.Node,
		}
	}
	return list, nil
}
