package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/web/api/adminpb"
)

// Apply validates the files as they were written and makes their specs the newest of their rules. Nothing is stored
// unless every file is without a problem and no rule of any domain conflicts. Each domain then gets a revision of its
// own; should a later one be refused after all, because somebody changed it meanwhile, the error says what is stored.
func (s *Server) Apply(ctx context.Context, req *adminpb.ApplyRequest) (*adminpb.ApplyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	why, err := checkWhy(ctx, req.GetMessage())
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	sets, err := decode(req.GetFiles())
	if err == nil && len(sets) > 1 {
		err = s.rehearse(ctx, sets)
	}
	if err != nil {
		return nil, s.service.Refused(ctx, "", rollout.ActionApply, fileNames(req.GetFiles()), why, err)
	}
	var resp adminpb.ApplyResponse
	var stored []string
	for _, set := range sets {
		out, err := s.service.Apply(ctx, set.Domain, set.Named(), why)
		if err != nil && len(stored) > 0 {
			return nil, fmt.Errorf("%w; already stored is %s", err, strings.Join(stored, ", "))
		}
		if err != nil {
			return nil, err
		}
		if out.Revision != 0 {
			stored = append(stored, fmt.Sprintf("%s as revision %d", set.Domain, out.Revision))
		}
		resp.Outcomes = append(resp.Outcomes, outcomeMessage(set.Domain, out))
	}
	return &resp, nil
}

// rehearse reports the conflicts of all domains before the first is changed.
func (s *Server) rehearse(ctx context.Context, sets []rulefile.RuleSet) error {
	var conflicts []error
	for _, set := range sets {
		standing, err := s.service.Rules(ctx, set.Domain)
		if err != nil {
			return fmt.Errorf("apply %s: %w", set.Domain, err)
		}
		byName := make(map[string]rules.Rule, len(standing))
		for _, r := range standing {
			byName[r.Name] = r
		}
		for _, r := range set.Rules {
			was, exists := byName[r.Name]
			if !exists {
				continue
			}
			if _, _, err := rollout.Apply(was, r.Spec, 1, 1); err != nil {
				conflicts = append(conflicts, fmt.Errorf("apply %s: %w", set.Domain, err))
			}
		}
	}
	return errors.Join(conflicts...)
}

// fileNames is the target of an apply whose files could not be read, so that it names no domain.
func fileNames(files []*adminpb.File) string {
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, f.GetName())
	}
	text := strings.Join(names, ", ")
	return text[:min(len(text), maxTarget)]
}

func decode(files []*adminpb.File) ([]rulefile.RuleSet, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("apply: %w: the request has no file", rules.ErrInvalid)
	}
	if len(files) > maxFiles {
		return nil, fmt.Errorf("apply: %w: the request has %d files; at most %d are taken at once", rules.ErrInvalid, len(files), maxFiles)
	}
	list := make([]rulefile.File, len(files))
	for i, f := range files {
		list[i] = rulefile.File{Name: f.GetName(), Content: f.GetContent()}
	}
	sets, err := rulefile.DecodeAll(list)
	if err != nil {
		return nil, err
	}
	// What cannot be stored yet is refused: an exemption that is dropped in silence would be a limit nobody expects.
	var later []rules.Problem
	for i := range sets {
		later = append(later, sets[i].Later()...)
	}
	if len(later) > 0 {
		return nil, &rules.ValidationError{Problems: later}
	}
	return sets, nil
}
