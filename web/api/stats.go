package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// Bounds of a reply: a rule is for a chart, a domain for a line beside each of its versions.
const (
	maxSteps       = 400
	maxStepsOfAll  = 30
	maxVersions    = 1000
	maxRules       = 200    // that are named
	pointsAtOnce   = 50_000 // that are read in one go
	defaultStats   = time.Hour
	mostVersionsOf = 2 // that a rule has at a time, mostly
)

// Stats returns what was counted of a rule, or of the rules of a domain.
func (s *Server) Stats(ctx context.Context, req *adminpb.StatsRequest) (*adminpb.StatsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := s.stats(ctx, req, time.Now())
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return resp, nil
}

func (s *Server) stats(ctx context.Context, req *adminpb.StatsRequest, now time.Time) (*adminpb.StatsResponse, error) {
	domain := req.GetDomain()
	if err := s.mayLook(ctx, domain, req.GetRule()); err != nil {
		return nil, err
	}
	if err := checkRules(req); err != nil {
		return nil, err
	}
	sp, err := statsSpan(req, now)
	if err != nil {
		return nil, err
	}
	resp := &adminpb.StatsResponse{From: timestamp(sp.from), To: timestamp(sp.to), Step: durationpb.New(sp.step)}
	if req.GetRule() == "" {
		if resp.Requests, err = s.requests(ctx, domain, &sp); err != nil {
			return nil, err
		}
	}
	subs, err := s.subjects(ctx, domain, req.GetRule())
	if err != nil {
		return nil, err
	}
	if names := req.GetRules(); len(names) > 0 {
		subs = slices.DeleteFunc(subs, func(sub subject) bool { return !slices.Contains(names, sub.rule.Name) })
	}
	counted, left, err := s.counted(ctx, domain, subs, &sp)
	if err != nil {
		return nil, err
	}
	resp.LeftOut = int32(left) //nolint:gosec // versions of rules
	for i := range counted {
		resp.Versions = append(resp.Versions, counted[i].message())
	}
	resp.Missing, err = s.missing(ctx, domain, sp.from, sp.to)
	return resp, err
}

func checkRules(req *adminpb.StatsRequest) error {
	switch names := req.GetRules(); {
	case len(names) > 0 && req.GetRule() != "":
		return fmt.Errorf("%w: rule and rules exclude each other", rules.ErrInvalid)
	case len(names) > maxRules:
		return fmt.Errorf("%w: rules names %d rules: at most %d, ask for the others in another call", rules.ErrInvalid, len(names), maxRules)
	}
	return nil
}

func statsSpan(req *adminpb.StatsRequest, now time.Time) (span, error) {
	for name, t := range map[string]*timestamppb.Timestamp{"from": req.GetFrom(), "to": req.GetTo()} {
		if t != nil && !t.IsValid() {
			return span{}, fmt.Errorf("%w: %s is no time", rules.ErrInvalid, name)
		}
	}
	from, to, most := orZero(req.GetFrom()), orZero(req.GetTo()), maxSteps
	if to.IsZero() {
		to = now
	}
	if from.IsZero() {
		from = to.Add(-defaultStats)
	}
	if req.GetRule() == "" {
		most = maxStepsOfAll
	}
	return newSpan(from, to, now, req.GetStep().AsDuration(), most)
}

// versionCounts are what was counted of one version.
type versionCounts struct {
	of      *subject
	version int64
	total   tally.Counts
	points  []tally.Point // by step
}

// affected is how often the version went against a request.
func (v *versionCounts) affected() int64 { return v.total.Refusals() + v.total.Of(tally.WouldRefuse) }

// counted reads the counts of the rules, some at a time. Of too many versions those that went against the fewest requests
// are left out.
func (s *Server) counted(ctx context.Context, domain string, subs []subject, sp *span) (list []versionCounts, left int, err error) {
	byUID := make(map[string]*subject, len(subs))
	for i := range subs {
		byUID[subs[i].rule.UID] = &subs[i]
	}
	for some := range slices.Chunk(subs, max(1, pointsAtOnce/(mostVersionsOf*sp.lengths()))) {
		uids := make([]string, len(some))
		for i := range some {
			uids[i] = some[i].rule.UID
		}
		points, err := s.options.Tallies.Series(ctx, sp.query(domain, uids))
		if err != nil {
			return nil, 0, err
		}
		list = append(list, byVersion(points, byUID, sp.step)...)
		if len(list) > maxVersions {
			slices.SortStableFunc(list, func(a, b versionCounts) int { return cmp.Compare(b.affected(), a.affected()) })
			left += len(list) - maxVersions
			list = list[:maxVersions]
		}
	}
	slices.SortFunc(list, func(a, b versionCounts) int {
		return cmp.Or(cmp.Compare(a.of.rule.Name, b.of.rule.Name), cmp.Compare(a.version, b.version))
	})
	return list, left, nil
}

// byVersion adds points up, which come by version and time.
func byVersion(points []tally.Point, of map[string]*subject, step time.Duration) (list []versionCounts) {
	for i := range points {
		p := &points[i]
		if n := len(list); n == 0 || list[n-1].of.rule.UID != p.UID || list[n-1].version != p.Version {
			list = append(list, versionCounts{of: of[p.UID], version: p.Version})
		}
		v := &list[len(list)-1]
		v.total.Add(&p.Counts)
		start := p.Start.Truncate(step)
		if n := len(v.points); n == 0 || !v.points[n-1].Start.Equal(start) {
			v.points = append(v.points, tally.Point{Start: start})
		}
		v.points[len(v.points)-1].Counts.Add(&p.Counts)
	}
	return list
}

func (v *versionCounts) message() *adminpb.VersionStats {
	t := &v.total
	m := &adminpb.VersionStats{Rule: v.of.rule.Name, Version: v.version, Role: roleOf(&v.of.rule, v.version), Total: figures(t)}
	if spec := v.of.versions[v.version]; spec != nil {
		m.Limits = limitRefusals(t, &spec.Spec)
	}
	f := m.Total
	if f.Decided > 0 {
		m.Refused = intervalMessage(tally.Ratio(t.Refusals(), f.Decided, tally.Z95))
	}
	if f.Judged > 0 {
		m.WouldRefuse = intervalMessage(tally.Ratio(f.WouldRefuse, f.Judged, tally.Z95))
		m.WouldRefuseAlone = intervalMessage(tally.Ratio(f.WouldRefuse-f.WouldRefuseShared, f.Judged, tally.Z95))
	}
	if f.Compared > 0 {
		m.Difference = intervalMessage(tally.Difference(f.NewlyRefused, f.NoLongerRefused, f.Compared, tally.Z95))
	}
	for i := range v.points {
		m.Points = append(m.Points, &adminpb.VersionPoint{Start: timestamp(v.points[i].Start), Figures: figures(&v.points[i].Counts)})
	}
	return m
}

func figures(c *tally.Counts) *adminpb.VersionFigures {
	would, alone := c.WouldRefuse()
	newly, noLonger := c.Turned()
	shared, _ := c.Shared()
	return &adminpb.VersionFigures{
		Matched: c.Matched(), Decided: c.Bound(), Allowed: c.Of(tally.Allowed), Refused: c.Of(tally.Refused), RefusedByOther: c.Of(tally.RefusedByOther),
		FailedOpen: c.Of(tally.FailedOpen), FailedClosed: c.Of(tally.FailedClosed), LocalAllowed: c.Of(tally.LocalAllowed), LocalRefused: c.Of(tally.LocalRefused),
		Judged: c.Judged(), WouldAllow: c.Of(tally.WouldAllow), WouldRefuse: would, WouldRefuseShared: would - alone,
		Compared: c.Judged(), NewlyRefused: newly, NoLongerRefused: noLonger,
		Unknown: c.Of(tally.Unknown), JudgedShared: shared,
	}
}

// limitRefusals tells the refusals of a version apart by its limits.
func limitRefusals(c *tally.Counts, s *rules.Spec) (list []*adminpb.LimitRefusals) {
	for i := tally.NoLimit; i < len(s.Limits); i++ {
		n := c[tally.BindingCell(tally.Refused, i)]
		if n == 0 {
			continue
		}
		m := &adminpb.LimitRefusals{Number: int32(i) + 1, Refused: n}
		if i != tally.NoLimit {
			m.Name = s.Limits[i].Name
		}
		list = append(list, m)
	}
	return list
}

// requests are those of a domain.
func (s *Server) requests(ctx context.Context, domain string, sp *span) (*adminpb.DomainStats, error) {
	if _, err := s.domain(ctx, domain); err != nil {
		return nil, err
	}
	points, err := s.options.Tallies.DomainSeries(ctx, sp.query(domain, nil))
	if err != nil {
		return nil, err
	}
	return domainStats(points, sp.step), nil
}

// domainStats adds up the points of one domain, which come by time.
func domainStats(points []tally.DomainPoint, step time.Duration) *adminpb.DomainStats {
	var total tally.DomainCounts
	var steps []tally.DomainPoint
	for i := range points {
		total.Add(&points[i].Counts)
		start := points[i].Start.Truncate(step)
		if n := len(steps); n == 0 || !steps[n-1].Start.Equal(start) {
			steps = append(steps, tally.DomainPoint{Start: start})
		}
		steps[len(steps)-1].Counts.Add(&points[i].Counts)
	}
	m := &adminpb.DomainStats{Total: domainFigures(&total)}
	for i := range steps {
		m.Points = append(m.Points, &adminpb.DomainPoint{Start: timestamp(steps[i].Start), Figures: domainFigures(&steps[i].Counts)})
	}
	return m
}

func domainFigures(c *tally.DomainCounts) *adminpb.DomainFigures {
	return &adminpb.DomainFigures{
		Allowed: c[tally.RequestsAllowed], Refused: c[tally.RequestsRefused], Exempt: c[tally.RequestsExempt],
		Unmatched: c[tally.RequestsUnmatched], Malformed: c[tally.RequestsMalformed],
		WouldRefuse: c[tally.RequestsWouldRefuse],
	}
}
