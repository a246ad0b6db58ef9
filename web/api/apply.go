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
// unless every file is without a problem and nothing stands in the way in any domain. Each domain then gets a revision of
// its own; should a later one be refused after all, because somebody changed it meanwhile, the error says what is stored.
func (s *Server) Apply(ctx context.Context, req *adminpb.ApplyRequest) (*adminpb.ApplyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := why(ctx, req.GetWhy())
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	reason.Dry = reason.Dry || req.GetDryRun()
	sets, err := decode(req.GetFiles())
	if err != nil {
		return nil, s.service.Refused(ctx, "", rollout.ActionApply, fileNames(req.GetFiles()), reason, err)
	}
	if len(sets) > 1 && !reason.Dry {
		if _, err := s.applyAll(ctx, sets, req, reason, true); err != nil {
			return nil, err
		}
	}
	return s.applyAll(ctx, sets, req, reason, reason.Dry)
}

func (s *Server) applyAll(ctx context.Context, sets []rulefile.RuleSet, req *adminpb.ApplyRequest, why rollout.Why, dry bool) (*adminpb.ApplyResponse, error) {
	var resp adminpb.ApplyResponse
	var stored []string
	var refusals []error
	for i := range sets {
		set := &sets[i]
		out, err := s.service.Apply(ctx, set.Domain, rollout.Proposal{
			Rules: set.Named(), Shard: set.Shard, Exempt: set.Exempt,
			Replace: req.GetReplace(), Again: req.GetAgain(), Prune: req.GetPrune(), Enforce: req.GetEnforce(),
			Confirmed: req.GetConfirmed() || why.Dry, // who asks what would be done is warned, not stopped
			Dry:       dry,
		}, why)
		switch {
		case err != nil && dry:
			refusals = append(refusals, err) // of all domains
			continue
		case err != nil && len(stored) > 0:
			return nil, fmt.Errorf("%w; already stored is %s", err, strings.Join(stored, ", "))
		case err != nil:
			return nil, err
		case out.Revision != 0:
			stored = append(stored, fmt.Sprintf("%s as revision %d", set.Domain, out.Revision))
		}
		resp.Outcomes = append(resp.Outcomes, outcomeMessage(set.Domain, out))
	}
	return &resp, errors.Join(refusals...)
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
	return sets, nil
}
