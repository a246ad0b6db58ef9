package backtest

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dchest/siphash"

	"github.com/headgate/headgate/cmd/rulectl/accesslog"
	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/rules/tally"
)

// DefaultSortWindow is how late a line may be when nothing else is said.
const DefaultSortWindow = 10 * time.Minute

// Options say what is replayed, and where it is counted.
type Options struct {
	Sets  []rulefile.RuleSet
	Store string // memory (also ""), or redis://HOST:PORT
	Log   accesslog.Options
}

// Run replays a log. On an error there is no result.
func Run(ctx context.Context, log io.Reader, o Options) (result Result, err error) {
	r, err := newRun(o) //nolint:contextcheck // its store is open until Close
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if closeErr := r.replay.Close(ctx); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	counts, err := accesslog.Read(ctx, log, o.Log, func(e *accesslog.Entry) error { return r.decide(ctx, e) })
	if err != nil {
		return Result{}, err
	}
	return r.result(counts), nil
}

// run is one replay under way.
type run struct {
	replay  *replay.Replay
	domains []rules.Domain
	rules   []*rules.Rule
	put     map[string]bool // the indexes in force, by the name they have in the replay
	count   map[*rules.Rule]*ruleCount

	requests, refused int
	first, last       int64
}

func newRun(o Options) (*run, error) {
	p, err := replay.New(o.Store)
	if err != nil {
		return nil, err
	}
	r := &run{replay: p, put: map[string]bool{}, count: map[*rules.Rule]*ruleCount{}}
	for i := range o.Sets {
		r.domains = append(r.domains, replay.NewDomain(&o.Sets[i]))
		r.rules = append(r.rules, replay.NewRules(&o.Sets[i], nil)...)
	}
	for _, rule := range r.rules {
		r.count[rule] = &ruleCount{name: rule.ID(), keys: map[tally.KeyID]*Key{}}
	}
	return r, nil
}

// decide judges one entry and counts what became of it.
func (r *run) decide(ctx context.Context, e *accesslog.Entry) error {
	if e.Request == nil {
		return nil
	}
	if r.requests == 0 {
		r.first = e.At
		for _, c := range r.count {
			c.overTime = newTimeline(e.At)
		}
	}
	r.requests++
	r.last = e.At
	e.Request.Domain = r.domainFor(e.Request)
	d, err := r.replay.Decide(ctx, e.At, e.Request)
	if err != nil {
		return err
	}
	if !d.Allowed {
		r.refused++
	}
	for i := range d.Outcomes {
		r.record(e.At, &d.Outcomes[i])
	}
	return nil
}

// domainFor returns the name of the index that holds the rules of all domains whose exemptions the request does not
// meet, and puts it in force when it is first met. All indexes share their rules, so also their counters.
func (r *run) domainFor(req *rules.Request) string {
	met := make([]byte, len(r.domains))
	for i := range r.domains {
		met[i] = '0'
		if slices.ContainsFunc(r.domains[i].Exempt, func(e rules.Exemption) bool { return e.Match.Matches(req) }) {
			met[i] = '1'
		}
	}
	name := string(met)
	if r.put[name] {
		return name
	}
	r.put[name] = true
	var list []*rules.Rule
	for i := range r.domains {
		if met[i] == '1' {
			continue
		}
		for _, rule := range r.rules {
			if rule.Domain == r.domains[i].Name {
				list = append(list, rule)
			}
		}
	}
	all := rules.Domain{Name: name, Revision: 1, Secret: r.domains[0].Secret}
	if len(r.domains) == 1 {
		all.Shard = r.domains[0].Shard
	}
	r.replay.Put(rules.NewIndex(all, list))
	return name
}

func (r *run) record(at int64, o *enforce.VersionOutcome) {
	c := r.count[o.Rule]
	c.matched++
	counted, known := c.keys[o.Key]
	if !known {
		c.keys[o.Key] = nil
	}
	if o.Outcome != tally.Refused {
		c.overTime.at(at, 0)
		return
	}
	c.refused++
	c.overTime.at(at, 1)
	if counted == nil {
		counted = &Key{Key: showKey(o)}
		c.keys[o.Key] = counted
	}
	counted.Refused++
}

// showKey copies the key as it is shown: a part of the line would keep the whole line in memory.
func showKey(o *enforce.VersionOutcome) string {
	text := o.Values.Show(&o.Version.Spec, func(k rules.KeySource, value string) string {
		if k.Hashed() {
			return shortHash(o.Rule.Domain, value)
		}
		return value
	})
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	return strings.Clone(text)
}

// shortHash is the short keyed hash that stands for a secret value. There is no secret of a domain offline, so the key is
// the domain's name: the same log gives the same result, and whoever has the value can find its line.
func shortHash(domain, value string) string {
	k0, k1 := siphash.Hash128(0, 0, []byte(domain))
	var b [16]byte
	lo, hi := siphash.Hash128(k0, k1, []byte(value))
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return "#" + hex.EncodeToString(b[:5])
}

func (r *run) result(counts accesslog.Counts) Result {
	result := Result{
		Lines: counts.Lines, Malformed: counts.Malformed, OutOfOrder: counts.OutOfOrder, Unseen: counts.Unseen,
		Requests: r.requests, Refused: r.refused, First: r.first, Last: r.last, Rules: []Rule{},
	}
	for _, c := range r.count {
		if c.overTime != nil {
			c.overTime.at(r.last, 0) // so that all timelines end together
		}
		result.Rules = append(result.Rules, c.result())
	}
	slices.SortFunc(result.Rules, func(a, b Rule) int { return strings.Compare(a.Rule, b.Rule) })
	return result
}
