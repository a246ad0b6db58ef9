package rollout_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
)

// Whatever is done to the rules of two domains, in whatever order, what becomes of them is what the model says, and the
// history, the numbers and the audit trail keep their laws.
func TestRulesLiveByTheLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"":                w.lawful,
			"apply":           w.apply,
			"apply again":     w.apply, // what makes versions comes more often
			"promote":         w.promote,
			"promote fully":   func(t *rapid.T) { w.promoteTo(t, w.anyRule(t), rules.AllKeys) },
			"pause":           w.pause,
			"delete":          w.delete,
			"rollback":        w.rollback,
			"rollback to":     w.rollbackTo,
			"rollback domain": w.rollbackDomain,
			"freeze":          w.freeze,
			"unfreeze":        w.unfreeze,
			"override":        w.override,
			"delete override": w.deleteOverride,
			"wait":            w.wait,
		})
	})
}

type ruleID struct{ domain, name string }

func (id ruleID) String() string { return id.domain + "/" + id.name }

var (
	domains = []string{"api", "web"}
	names   = []string{"a", "b"}
	tenants = []string{"acme", "bell"}
	// amounts are what the verdicts of specs allow in a minute. The last one is more than ten times any other, and the one
	// before it fails closed.
	amounts = []int64{60, 61, 62, 63, 6_000}
)

const closed = 3

func specOf(id ruleID, s saying) rules.Spec {
	key, err := rules.ParseKeySource("attr:tenant")
	if err != nil {
		panic(err)
	}
	spec := rules.Spec{
		Match: rules.Match{Path: []string{"/" + id.String()}}, Key: []rules.KeySource{key},
		Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: perMinute(amounts[s.verdicts])}},
	}
	if s.text > 0 {
		spec.Description = fmt.Sprint("text ", s.text)
	}
	if s.verdicts == closed {
		spec.Failure.Mode = rules.FailClosed
	}
	return spec
}

func perMinute(amount int64) rules.Rate {
	return rules.Rate{Amount: amount, Window: time.Minute, Burst: amount}
}

type modelDomain struct {
	born, settled int64
	exempt        map[int64][]string // by the revision that said so
	freezes       map[string]time.Time
}

type world struct {
	ledger  *rollouttest.Memory
	service *rollout.Service
	now     time.Time
	head    int64
	records int64
	rules   map[ruleID]*modelRule
	domains map[string]*modelDomain
	lives   map[ruleID][]string // the histories, as last read
	actual  map[ruleID]rules.Rule
}

func newWorld(t *rapid.T) *world {
	w := &world{
		ledger: rollouttest.New(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), rules: map[ruleID]*modelRule{},
		domains: map[string]*modelDomain{}, lives: map[ruleID][]string{}, actual: map[ruleID]rules.Rule{},
	}
	w.service = rollout.NewService(w.ledger, func() time.Time { return w.now })
	for _, d := range domains {
		w.domains[d] = &modelDomain{exempt: map[int64][]string{}, freezes: map[string]time.Time{}}
		for _, n := range names {
			w.rules[ruleID{d, n}] = &modelRule{}
		}
	}
	return w
}

// expected is what the model says of an operation.
type expected struct {
	what    string
	action  rollout.Action
	domain  string
	refused []error
	moves   map[ruleID]move
	exempt  []string             // nil: they stay
	freezes map[string]time.Time // nil: they stay
	dry     bool
}

func (x *expected) move(id ruleID, m move) {
	x.refused = append(x.refused, m.refused...)
	x.moves[id] = m
}

func onRule(what string, action rollout.Action, id ruleID, m move) *expected {
	x := &expected{what: what, action: action, domain: id.domain, moves: map[ruleID]move{}}
	x.move(id, m)
	return x
}

// run does what x expects, and compares.
func (w *world) run(t *rapid.T, x *expected, do func() (rollout.Outcome, error)) {
	out, err := do()
	t.Logf("revision %d: %s: %+v, %v", w.head+1, x.what, out, err)
	head, headErr := w.ledger.Head(t.Context())
	if headErr != nil {
		t.Fatal(headErr)
	}
	for id, m := range x.moves {
		if !m.to.differs(&w.rules[id].modelState, w.now) {
			delete(x.moves, id)
		}
	}
	changes := !x.dry && (len(x.moves) > 0 || x.exempt != nil || x.freezes != nil)
	switch {
	case len(x.refused) > 0:
		w.wantRefusal(t, x, err)
		w.wantMoved(t, head, 0, 1)
	case err != nil:
		t.Fatalf("%s: refused with: %v; want that it is done", x.what, err)
	case !changes:
		if out.Revision != 0 || out.Note == "" {
			t.Fatalf("%s: %+v; want that nothing changes, and that it says so", x.what, out)
		}
		w.wantMoved(t, head, 0, 0)
	default:
		if out.Revision != w.head+1 || len(out.Steps) == 0 || out.Note != "" {
			t.Fatalf("%s: %+v; want that it makes revision %d, and says what that does", x.what, out, w.head+1)
		}
		w.wantMoved(t, head, 1, 1)
		w.make(t, x)
	}
}

func (w *world) wantMoved(t *rapid.T, head rollout.Head, revisions, records int64) {
	if head.Revision != w.head+revisions || head.Records != w.records+records {
		t.Fatalf("the head went from revision %d and record %d to %d and %d; want %d and %d more",
			w.head, w.records, head.Revision, head.Records, revisions, records)
	}
	w.head, w.records = head.Revision, head.Records
}

// wantRefusal: every refusal is of a kind, says where the rule stands, and what can be done.
func (w *world) wantRefusal(t *rapid.T, x *expected, err error) {
	if !slices.ContainsFunc(x.refused, func(kind error) bool { return errors.Is(err, kind) }) {
		t.Fatalf("%s: %v; want one of %v", x.what, err, x.refused)
	}
	var conflict *rules.ConflictError
	var guard *rules.GuardError
	switch {
	case errors.As(err, &conflict):
		domain, name, _ := strings.Cut(conflict.Rule, "/")
		r := w.actual[ruleID{domain, name}]
		if name != "" && !strings.HasPrefix(conflict.State, r.State()) || conflict.Hint == "" || !strings.Contains(err.Error(), conflict.Error()) {
			t.Fatalf("%s: %v; want that it says %q, and a way out", x.what, err, r.State())
		}
	case errors.As(err, &guard):
		if guard.Rule == "" || guard.Danger == "" || guard.Way == "" || !strings.Contains(err.Error(), guard.Error()) {
			t.Fatalf("%s: %#v; want rule, danger and way", x.what, guard)
		}
	case errors.Is(err, rules.ErrConflict), errors.Is(err, rules.ErrGuarded):
		t.Fatalf("%s: %v; want a ConflictError or a GuardError", x.what, err)
	case !strings.Contains(err.Error(), x.domain):
		t.Fatalf("%s: %v; want that it says what it is about", x.what, err)
	}
	last, auditErr := w.ledger.Audit(t.Context(), rollout.AuditQuery{Limit: 1})
	if auditErr != nil || len(last) != 1 || last[0].Refused != err.Error() || last[0].Revision != 0 || last[0].Domain != x.domain {
		t.Fatalf("%s: the last record is %+v, %v; want this refusal", x.what, last, auditErr)
	}
}

// make moves the model, and compares it with the rules.
func (w *world) make(t *rapid.T, x *expected) {
	d := w.domains[x.domain]
	if d.born == 0 {
		d.born = w.head
	}
	if x.exempt != nil {
		d.exempt[w.head], d.settled = x.exempt, w.head
	}
	if x.freezes != nil {
		d.freezes, d.settled = x.freezes, w.head
	}
	for _, id := range slices.SortedFunc(maps.Keys(x.moves), func(a, b ruleID) int { return strings.Compare(a.String(), b.String()) }) {
		history, err := w.ledger.History(t.Context(), id.domain, id.name)
		if err != nil {
			t.Fatal(err)
		}
		m, last := x.moves[id], history[len(history)-1]
		if last.Rule.Revision != w.head || last.Action != x.action {
			t.Fatalf("%s: %s was last touched by %s at revision %d; want %s at %d", x.what, id, last.Action, last.Rule.Revision, x.action, w.head)
		}
		w.compare(t, x, id, &m, &last.Rule)
		w.actual[id] = last.Rule
		w.rules[id].make(&m, x.action, w.head)
	}
}

// compare holds what the model expects of a rule against the rule, and takes over what the model leaves free.
func (w *world) compare(t *rapid.T, x *expected, id ruleID, m *move, r *rules.Rule) {
	was, before := &w.rules[id].modelState, w.actual[id]
	if r.UID == "" || before.UID != "" && r.UID != before.UID {
		t.Fatalf("%s: the uid of %s went from %q to %q", x.what, id, before.UID, r.UID)
	}
	if alternative := m.to.orCandidate; alternative != nil && r.Candidate != nil && r.Candidate.Number == alternative.number {
		m.to.candidate = alternative
	}
	if m.to.freeOverrides {
		m.to.overrides = w.overrides(t, id, r)
	}
	m.to.freeOverrides, m.to.orCandidate = false, nil
	to := m.to
	want := fmt.Sprintf("stable %s, candidate %s at %s, paused %t, overrides %v",
		inWords(to.stable, id), inWords(to.candidate, id), to.percent, to.paused, unexpired(to.overrides, w.now))
	got := fmt.Sprintf("stable %s, candidate %s at %s, paused %t, overrides %v",
		words(r.Stable), words(r.Candidate), r.Percent, r.Paused, w.overrides(t, id, r))
	if got != want {
		t.Fatalf("%s: %s is\n%s; want\n%s", x.what, id, got, want)
	}
	for verdicts := range to.binds() {
		loosens := slices.Contains([]rollout.Action{rollout.ActionPromote, rollout.ActionRollbackTo, rollout.ActionRollbackDomain}, x.action)
		enforces := x.action == rollout.ActionApply && strings.Contains(x.what, "Enforce:true")
		restores := x.action == rollout.ActionRollback && !w.rules[id].withdrawn[verdicts]
		if !was.binds()[verdicts] && !loosens && !enforces && !restores {
			t.Fatalf("%s: %s binds with %d a minute, which nobody promoted", x.what, id, amounts[verdicts])
		}
	}
	// The salt is born with a candidate, and kept by text edits and abort: callers stay on their side.
	kept := was.candidate != nil && to.candidate.says(was.candidate.saying)
	if to.candidate != nil && (r.Salt == 0 || kept != (r.Salt == before.Salt)) {
		t.Fatalf("%s: the salt of %s was %d and is %d, with the same candidate: %t", x.what, id, before.Salt, r.Salt, kept)
	}
	// The what-if counters are those of the trial; going back starts them again.
	epoch := before.Epoch
	if !kept || r.Percent < before.Percent {
		epoch = w.head
	}
	if to.candidate != nil && r.Epoch != epoch {
		t.Fatalf("%s: the what-if counters of %s are those of revision %d; want %d", x.what, id, r.Epoch, epoch)
	}
}

func inWords(v *modelVersion, id ruleID) string {
	if v == nil {
		return "none"
	}
	return words(&rules.Version{Number: v.number, Spec: specOf(id, v.saying)})
}

func words(v *rules.Version) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("v%d (%s %q)", v.Number, v.Spec.Limits[0].Rate, v.Spec.Description)
}

// overrides of a rule by the value of their key.
func (w *world) overrides(t *rapid.T, id ruleID, r *rules.Rule) map[string]modelOverride {
	list, err := w.ledger.Domains(t.Context(), id.domain)
	if err != nil {
		t.Fatal(err)
	}
	spec, all := specOf(id, saying{}), map[string]modelOverride{}
	for _, tenant := range tenants {
		key, err := rules.KeyOfValues(&spec, []string{tenant})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range r.Overrides {
			if o.Key == rules.NewOverrideKey(list[0].Secret, r.UID, &spec, key) {
				all[tenant] = modelOverride{o.Rate.Amount, o.Until}
			}
		}
	}
	if len(all) != len(r.Overrides) {
		t.Fatalf("%s has overrides of keys that nobody named, or twice: %+v", id, r.Overrides)
	}
	return all
}

// lawful holds at any time.
func (w *world) lawful(t *rapid.T) {
	records, err := w.ledger.Audit(t.Context(), rollout.AuditQuery{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(records)
	var chain rollout.Chain
	revision := int64(0)
	for i := range records {
		if err := chain.Add(&records[i]); err != nil {
			t.Fatal(err)
		}
		if r := records[i]; (r.Refused == "") != (r.Revision == revision+1) {
			t.Fatalf("record %d is of revision %d, refused %q; the one before it was %d", r.Number, r.Revision, r.Refused, revision)
		} else if r.Refused == "" {
			revision++
		}
	}
	if revision != w.head || chain.Records != w.records {
		t.Fatalf("the trail ends with revision %d and record %d; want %d and %d", revision, chain.Records, w.head, w.records)
	}
	for id := range w.rules {
		w.lawfulHistory(t, id)
	}
	w.lawfulSettings(t)
}

// A history only grows, versions are numbered one by one and keep their specs, and what is in shadow refuses nobody.
func (w *world) lawfulHistory(t *rapid.T, id ruleID) {
	history, err := w.ledger.History(t.Context(), id.domain, id.name)
	if err != nil && !errors.Is(err, rules.ErrNotFound) {
		t.Fatal(err)
	}
	var life []string
	specs := map[int64]string{}
	for _, e := range history {
		r := &e.Rule
		life = append(life, fmt.Sprint(r.Revision, e.Action, r.UID, r.State(), r.Salt, r.Overrides))
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v == nil {
				continue
			}
			spec := v.Spec.Verdicts() + v.Spec.Description
			if specs[v.Number] == "" && v.Number != int64(len(specs))+1 || specs[v.Number] != "" && specs[v.Number] != spec {
				t.Fatalf("v%d of %s comes after v%d, or has two specs", v.Number, id, len(specs))
			}
			specs[v.Number] = spec
		}
		for i := range 20 {
			request := rules.Request{Method: "GET", Path: "/" + id.String(), Attr: map[string]string{"tenant": fmt.Sprint(i)}}
			if r.Stage() != rules.StagePartial && r.InCohort(&request) {
				t.Fatalf("%s is %s, and binds for tenant %d", id, r.State(), i)
			}
		}
	}
	if was := w.lives[id]; len(life) < len(was) || !slices.Equal(was, life[:len(was)]) {
		t.Fatalf("the history of %s was\n%s\nand is\n%s", id, strings.Join(was, "\n"), strings.Join(life, "\n"))
	}
	w.lives[id] = life
}

func (w *world) lawfulSettings(t *rapid.T) {
	list, err := w.ledger.Domains(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		var exempt []string
		for _, e := range d.Exempt {
			exempt = append(exempt, e.Name)
		}
		freezes := map[string]time.Time{}
		for _, f := range d.Freezes {
			if w.now.Before(f.Until) {
				freezes[f.Rule] = f.Until
			}
		}
		is := w.domains[d.Name]
		if diff := cmp.Diff(is.exemptAt(w.head), exempt); diff != "" || !maps.Equal(freezes, running(is.freezes, w.now)) {
			t.Fatalf("%s exempts %v and freezes %v; want %v and %v", d.Name, exempt, freezes, is.exemptAt(w.head), running(is.freezes, w.now))
		}
	}
}

func (d *modelDomain) exemptAt(revision int64) []string {
	for at := revision; at > 0; at-- {
		if names, ok := d.exempt[at]; ok && len(names) > 0 {
			return names
		} else if ok {
			return nil
		}
	}
	return nil
}

func running(freezes map[string]time.Time, now time.Time) map[string]time.Time {
	left := maps.Clone(freezes)
	maps.DeleteFunc(left, func(_ string, until time.Time) bool { return !now.Before(until) })
	return left
}
