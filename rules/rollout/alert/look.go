package alert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
)

// look is the making of one round.
type look struct {
	*Watcher
	at         time.Time
	last, next Round
	rules      map[string]*rules.Rule // in force, by uid; nil: not asked for yet
}

// verdict is what one detector said in this round.
type verdict struct {
	watch    *Watch
	kind     Kind
	change   spike.Change
	evidence spike.Evidence
	estimate bool
}

// run judges every version that had traffic, and those of which something is under way.
func (l *look) run(ctx context.Context) error {
	from := later(l.last.Settled, l.next.Settled.Add(-catchUp))
	counted, err := l.read(ctx, from, l.at)
	if err != nil {
		return err
	}
	watches, fresh := map[VersionID]*Watch{}, map[VersionID]bool{}
	for i := range l.last.Watches {
		watch := &l.last.Watches[i]
		watches[watch.VersionID] = watch
		if _, traffic := counted[watch.VersionID]; watch.active() && !traffic {
			counted[watch.VersionID] = counts{}
		}
	}
	for id := range counted {
		if watches[id] == nil {
			watches[id], fresh[id] = &Watch{VersionID: id}, true
		}
	}
	if err := l.inherit(ctx, watches, fresh); err != nil {
		return err
	}
	if err := l.acknowledge(ctx, watches); err != nil {
		return err
	}
	var verdicts []verdict
	for _, id := range slices.SortedFunc(maps.Keys(counted), compareVersions) {
		verdicts = append(verdicts, l.judge(watches[id], counted[id])...)
	}
	if err := l.alert(ctx, verdicts); err != nil {
		return err
	}
	l.keep(watches, counted)
	return nil
}

// judge asks both detectors of a version. Only what fires, or has just ceased to, is of further interest.
func (l *look) judge(watch *Watch, c counts) (verdicts []verdict) {
	for _, kind := range []Kind{Refused, WouldRefuse} {
		d, recent := watch.of(kind), c.refused
		if kind == WouldRefuse {
			recent = c.would
		}
		change, evidence := d.Evaluate(l.at, recent, c.settled)
		if change != spike.Same || !d.Since.IsZero() {
			verdicts = append(verdicts, verdict{watch, kind, change, evidence, kind == WouldRefuse && c.shared > 0})
		}
	}
	return verdicts
}

// keep says which watches are stored, and which know too little to be kept.
func (l *look) keep(watches map[VersionID]*Watch, counted map[VersionID]counts) {
	for _, id := range slices.SortedFunc(maps.Keys(watches), compareVersions) {
		watch := watches[id]
		_, judged := counted[id]
		knows := watch.Refused.Baseline // a copy: it fades as time passes
		knows.Add(l.at, spike.Count{})
		switch {
		case judged:
			l.next.Watches = append(l.next.Watches, *watch)
		case knows.Of < faded:
			l.next.Forget = append(l.next.Forget, id)
		}
	}
}

// inherit gives a version that is met for the first time, and differs from one before in text alone, what is usual of that one.
func (l *look) inherit(ctx context.Context, watches map[VersionID]*Watch, fresh map[VersionID]bool) error {
	known := map[string]bool{}
	for id := range watches {
		known[id.UID] = known[id.UID] || !fresh[id]
	}
	for id := range fresh {
		if !known[id.UID] {
			continue
		}
		if err := l.load(ctx); err != nil {
			return err
		}
		r := l.rules[id.UID]
		if r == nil {
			continue
		}
		history, err := l.Watcher.rules.History(ctx, r.Domain, r.Name)
		if err != nil && !errors.Is(err, rules.ErrNotFound) {
			return err
		}
		for _, other := range alike(history, id.Version) {
			if was := watches[VersionID{id.UID, other}]; was != nil && !fresh[was.VersionID] {
				watches[id].Refused.Baseline, watches[id].Would.Baseline = was.Refused.Baseline, was.Would.Baseline
				break
			}
		}
	}
	return nil
}

// alike are the versions that say the same as the one with the number, but for text; the newest first.
func alike(history []rollout.Entry, number int64) (list []int64) {
	specs := map[int64]*rules.Spec{}
	for i := range history {
		for _, v := range []*rules.Version{history[i].Rule.Stable, history[i].Rule.Candidate} {
			if v != nil {
				specs[v.Number] = &v.Spec
			}
		}
	}
	for other, spec := range specs {
		if is := specs[number]; is != nil && other != number && spec.SameVerdicts(*is) {
			list = append(list, other)
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}

// acknowledge takes what fires for usual where its rule was silenced since.
func (l *look) acknowledge(ctx context.Context, watches map[VersionID]*Watch) error {
	if len(l.last.Alerts) == 0 {
		return nil
	}
	silences, err := l.Watcher.rules.Silences(ctx, "")
	if err != nil {
		return err
	}
	for i := range l.last.Alerts {
		a := &l.last.Alerts[i]
		watch := watches[VersionID{a.UID, a.Version}]
		if watch != nil && slices.ContainsFunc(silences, func(s rollout.Silence) bool {
			return s.Domain == a.Domain && s.Rule == a.Rule && !s.At.Before(a.Since)
		}) {
			watch.of(a.Kind).Acknowledge()
		}
	}
	return nil
}

// load reads the rules, once in a round and only where something fires.
func (l *look) load(ctx context.Context) error {
	if l.rules != nil {
		return nil
	}
	list, err := l.Watcher.rules.Rules(ctx, "")
	if err != nil {
		return err
	}
	l.rules = make(map[string]*rules.Rule, len(list))
	for i := range list {
		l.rules[list[i].UID] = &list[i]
	}
	return nil
}

// alert makes alerts of what fired, and resolves those that are over.
func (l *look) alert(ctx context.Context, verdicts []verdict) error {
	if len(verdicts) == 0 && len(l.last.Alerts) == 0 {
		return nil
	}
	if err := l.load(ctx); err != nil {
		return err
	}
	open := map[VersionID]map[Kind]*Alert{}
	for i := range l.last.Alerts {
		a := &l.last.Alerts[i]
		id := VersionID{a.UID, a.Version}
		if open[id] == nil {
			open[id] = map[Kind]*Alert{}
		}
		open[id][a.Kind] = a
	}
	keys, err := l.keys(ctx, verdicts)
	if err != nil {
		return err
	}
	for _, v := range verdicts {
		id := v.watch.VersionID
		l.follow(&v, open[id][v.kind], keys[id])
		delete(open[id], v.kind)
	}
	for _, left := range open { // their detectors are gone
		for _, a := range left {
			l.resolve(a, "nothing watches it any more")
		}
	}
	return nil
}

// follow turns the verdict of one detector into an alert. Was is the one that it has already, or nil.
func (l *look) follow(v *verdict, was *Alert, keys *tally.VersionKeys) {
	r := l.rules[v.watch.UID]
	gone := ""
	switch {
	case r == nil:
		gone = "the rule is deleted"
	case version(r, v.watch.Version) == nil:
		gone = fmt.Sprintf("v%d is not in force any more: the rule is %s", v.watch.Version, r.State())
	}
	switch {
	case gone != "":
		v.watch.of(v.kind).Reset()
		if was != nil {
			l.resolve(was, gone)
		}
	case v.change == spike.Resolved:
		if was != nil {
			l.resolve(was, "it refuses about as much as usual again")
		}
	case was == nil:
		l.next.Alerts = append(l.next.Alerts, l.newAlert(v, r, keys))
	case was.Kind == Refused && was.Severity == Info:
		// One client was stopped. Where others are hit by now it is another matter, for somebody else to hear of.
		if now := l.newAlert(v, r, keys); now.Severity != Info && now.Hits != Unknown {
			l.resolve(was, "more than one client is hit by now")
			l.next.Alerts = append(l.next.Alerts, now)
		}
	}
}

func (l *look) resolve(a *Alert, why string) {
	over := *a
	over.Resolved, over.Ending = l.at, why
	l.next.Alerts = append(l.next.Alerts, over)
}

func (l *look) newAlert(v *verdict, r *rules.Rule, keys *tally.VersionKeys) Alert {
	a := Alert{
		ID:     fmt.Sprintf("%s.%d.%s.%d", v.watch.UID, v.watch.Version, v.kind, l.at.Unix()),
		Domain: r.Domain, Rule: r.Name, UID: r.UID, Version: v.watch.Version, Kind: v.kind, Severity: Page, State: r.State(),
		Evidence: v.evidence, Estimate: v.estimate, Offers: offers(r), Since: l.at,
	}
	a.hit(&version(r, a.Version).Spec, keys)
	if v.kind == WouldRefuse || a.Hits == OneClient {
		a.Severity = Info
	}
	return a
}

// hit says who is hit.
func (a *Alert) hit(spec *rules.Spec, keys *tally.VersionKeys) {
	a.Hits = Unknown
	if !slices.ContainsFunc(spec.Key, func(k rules.KeySource) bool { return k.Caller() }) {
		a.Hits = Everybody
	}
	if keys == nil {
		return
	}
	var all, most int64
	for _, k := range keys.Keys.Keys() {
		n := k.Refused
		if a.Kind == WouldRefuse {
			n = max(0, k.Would-k.Over)
		}
		if n == 0 {
			continue
		}
		all, most = all+n, max(most, n)
		a.Keys = append(a.Keys, Key{k.Label, n})
	}
	slices.SortStableFunc(a.Keys, func(x, y Key) int { return int(y.Count - x.Count) })
	a.Keys = a.Keys[:min(len(a.Keys), maxKeys)]
	a.Distinct = keys.Distinct.Estimate()
	switch {
	case a.Hits == Everybody || all == 0:
	case float64(most) > oneClient*float64(all):
		a.Hits = OneClient
	default:
		a.Hits = Many
	}
}

// keys are those that the versions went against in the last minutes.
func (l *look) keys(ctx context.Context, verdicts []verdict) (map[VersionID]*tally.VersionKeys, error) {
	var uids []string
	for _, v := range verdicts {
		if v.change != spike.Resolved {
			uids = append(uids, v.watch.UID)
		}
	}
	if len(uids) == 0 {
		return nil, nil
	}
	slices.Sort(uids)
	list, err := l.tallies.Keys(ctx, tally.Query{UIDs: slices.Compact(uids), From: l.at.Add(-spike.Window).Truncate(time.Minute), To: l.at})
	if err != nil {
		return nil, err
	}
	all := make(map[VersionID]*tally.VersionKeys, len(list))
	for i := range list {
		all[VersionID{list[i].UID, list[i].Version}] = &list[i]
	}
	return all, nil
}

// firing are the alerts that fire after the round.
func (l *look) firing() (list []Alert) {
	over := map[string]bool{}
	for i := range l.next.Alerts {
		over[l.next.Alerts[i].ID] = true
		if l.next.Alerts[i].Resolved.IsZero() {
			list = append(list, l.next.Alerts[i])
		}
	}
	for i := range l.last.Alerts {
		if !over[l.last.Alerts[i].ID] {
			list = append(list, l.last.Alerts[i])
		}
	}
	return list
}

// version returns the one with the number, where it is in force.
func version(r *rules.Rule, number int64) *rules.Version {
	for _, v := range []*rules.Version{r.Stable, r.Candidate} {
		if v != nil && v.Number == number {
			return v
		}
	}
	return nil
}
