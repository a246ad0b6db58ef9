package rollout

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// PlanInterval is how often plans are looked at.
const PlanInterval = 5 * time.Second

// Runner runs the plans of all rules. One of them is meant to run at a time, and more do no harm: each change is based on what
// was judged, so that of two the later one meets a conflict. It keeps nothing that must not be lost. It is not safe for
// concurrent use.
type Runner struct {
	service *Service
	log     *slog.Logger

	lineage string
	since   int64                 // up to which revision the plans are known
	plans   map[string]rules.Rule // that are under way, by uid
	seen    map[string]sight      // by uid
}

// sight is what is remembered of a plan between two looks.
type sight struct {
	revision int64 // of the step
	// elapsed had the step been running when it was first seen, at the time first. From then on the machine's own clock
	// counts, since that of the day may jump.
	elapsed time.Duration
	first   time.Time
	said    string // the last hold, in the log
}

// NewRunner returns a runner that knows of no plan yet.
func NewRunner(service *Service, log *slog.Logger) *Runner {
	return &Runner{service: service, log: log.With("component", "plans")}
}

// Run looks at all plans, again and again, until ctx ends. What fails is tried again.
func (r *Runner) Run(ctx context.Context) error {
	tick := time.NewTicker(PlanInterval)
	defer tick.Stop()
	for {
		if err := r.Look(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("plans cannot be looked at", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look takes each plan as far as it goes, at most one step. One that cannot be judged holds up no other.
func (r *Runner) Look(ctx context.Context) error {
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	var errs []error
	ids := slices.SortedFunc(maps.Keys(r.plans), func(a, b string) int {
		x, y := r.plans[a], r.plans[b]
		return cmp.Or(cmp.Compare(late(x.Course), late(y.Course)), strings.Compare(x.Domain, y.Domain), strings.Compare(x.Name, y.Name))
	})
	for _, uid := range ids {
		if err := r.step(ctx, uid); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// late puts plans that have nowhere to go behind those that have.
func late(c *rules.Course) int {
	if c.Running() {
		return 0
	}
	return 1
}

// catchUp learns which rules have a plan.
func (r *Runner) catchUp(ctx context.Context) error {
	changes, err := r.service.store.Changes(ctx, r.since)
	if err == nil && r.since > 0 && (changes.Lineage != r.lineage || changes.Head < r.since) {
		changes, err = r.service.store.Changes(ctx, 0) // another history
		r.plans = nil
	}
	if err != nil {
		return err
	}
	if r.plans == nil {
		r.plans, r.seen = map[string]rules.Rule{}, map[string]sight{}
	}
	for _, rule := range changes.Rules {
		if rule.Course == nil {
			delete(r.plans, rule.UID)
			delete(r.seen, rule.UID)
			continue
		}
		r.plans[rule.UID] = rule
	}
	r.lineage, r.since = changes.Lineage, changes.Head
	return nil
}

// step judges one plan, and does what comes next.
func (r *Runner) step(ctx context.Context, uid string) error {
	rule := r.plans[uid]
	c := rule.Course
	now := r.service.now()
	st := Status{Rule: rule, Now: now, Since: c.Since, from: c.Since, Revision: c.Revision, Elapsed: r.elapsed(uid, c, now)}
	if err := r.service.fill(ctx, &st); err != nil {
		return err
	}
	log := r.log.With("rule", rule.ID(), "step", c.String())
	switch st.Plan.Do {
	case PlanIsDone:
		if err := r.service.noteDone(ctx, &st); err != nil {
			return err
		}
		delete(r.plans, uid)
		delete(r.seen, uid)
		log.Info("plan done")
		return nil
	case PlanWaits:
		if s := r.seen[uid]; !st.Plan.Soaking && s.said != st.Plan.Words() {
			s.said = st.Plan.Words()
			r.seen[uid] = s
			log.Info("plan holds", "why", s.said)
		}
		return nil
	}
	out, err := r.service.follow(ctx, &st)
	if errors.Is(err, rules.ErrConflict) {
		log.Info("plan was changed meanwhile", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	log.Info("plan goes on", "does", st.Plan.Do, "revision", out.Revision)
	return nil
}

// elapsed is how long a plan has been in its step.
func (r *Runner) elapsed(uid string, c *rules.Course, now time.Time) time.Duration {
	s, known := r.seen[uid]
	if !known || s.revision != c.Revision {
		s = sight{revision: c.Revision, elapsed: max(now.Sub(c.Since), 0), first: time.Now()}
		r.seen[uid] = s
	}
	return s.elapsed + time.Since(s.first)
}
