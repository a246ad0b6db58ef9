package report

import (
	"slices"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

const (
	// maxAge is how old a window may be: a client merges what is older than a month, and sends it in the end.
	maxAge = 35 * 24 * time.Hour
	// maxAhead is how far from the future it may be: clocks agree to half a window, see introduce.
	maxAhead = tally.Span
	// maxRate is how many requests a second a node can count for one version.
	maxRate = 1_000_000
	// maxBacklog is how much longer than others the windows of one stream may be, taken together: of all that a client
	// merges, in ten parts. Without a bound they would add up to more than a row of the database can hold, and that row
	// would take no node's counts any more.
	maxBacklog = 10 * maxAge

	maxUID       = 64
	maxLimitName = 63
	maxReference = 64
)

// read returns the window without what cannot be, with its times moved. Of one whose times cannot be, only the number is
// left: the next one follows it.
func (r *reporter) read(m *xdspb.Window) tally.Window {
	now := micros(time.Now())
	w := tally.Window{Number: m.GetNumber(), Last: m.GetLast(), Start: r.moved(m.GetStart()), End: r.moved(m.GetEnd())}
	if w.End.Before(w.Start) || w.End.After(now.Add(maxAhead)) || w.Start.Before(now.Add(-maxAge)) {
		if m.GetVersions() != nil || m.GetDomains() != nil || m.GetRefusals() != nil {
			r.server.leftOut(refusedTime, r.source, "a window from "+w.Start.Format(time.DateTime)+" to "+w.End.Format(time.DateTime))
		}
		w.Start, w.End = now, now
		return w
	}
	longer := min(max(0, w.End.Sub(w.Start)-tally.Span), maxBacklog-r.backlog)
	r.backlog += longer
	most := maxRate * int64((tally.Span+longer).Seconds()+1)
	seen := map[versionID]bool{}
	for _, v := range m.GetVersions() {
		out, problem := readVersion(v, most)
		id := versionID{out.Domain, out.UID, out.Version}
		if problem == "" && seen[id] {
			problem = refusedMalformed
		}
		if problem != "" {
			r.server.leftOut(problem, r.source, "a version's counts")
			continue
		}
		seen[id] = true
		if w.Start.Before(now.Add(-tally.KeepRates)) {
			out.Rates = tally.Rates{} // nobody would ask for them any more, and each minute would be a row until it is removed
		}
		w.Versions = append(w.Versions, out)
	}
	w.Domains = r.readDomains(m.GetDomains(), most)
	w.Refusals = r.readRefusals(m.GetRefusals(), w.Start, w.End)
	return w
}

func (r *reporter) moved(at int64) time.Time { return time.UnixMicro(at).UTC().Add(r.shift) }

func readVersion(m *xdspb.VersionTally, most int64) (v tally.VersionTally, problem string) {
	v = tally.VersionTally{Domain: m.GetDomain(), UID: m.GetUid(), Version: m.GetVersion()}
	if len(m.GetCounts()) > len(v.Counts) || v.UID == "" || !isText(v.UID, maxUID) || v.Version < 1 || len(m.GetKeys()) > tally.MaxTopKeys {
		return v, refusedMalformed
	}
	if problem = readCounts(v.Counts[:], m.GetCounts(), most); problem != "" {
		return v, problem
	}
	seen := make(map[tally.KeyID]bool, len(m.GetKeys()))
	for _, k := range m.GetKeys() {
		key, ok := readKey(k.GetKey())
		if !ok || seen[key] || !isText(k.GetLabel(), tally.MaxLabel) {
			return v, refusedMalformed
		}
		// What may belong to other keys comes on top of what a key can have.
		numbers := [...]int64{k.GetRefused(), k.GetWould(), k.GetOver()}
		var sums [len(numbers)]int64
		if problem = readCounts(sums[:], numbers[:], 2*most); problem != "" {
			return v, problem
		}
		seen[key] = true
		v.Keys = append(v.Keys, tally.KeyCount{Key: key, Label: k.GetLabel(), Refused: sums[0], Would: sums[1], Over: sums[2]})
	}
	var err error
	if v.Distinct, err = tally.ParseDistinct(m.GetDistinct()); err != nil {
		return v, refusedMalformed
	}
	if v.Distinct.Estimate() > most { // which would be in all sums from then on
		return v, refusedRate
	}
	v.Rates, problem = readRates(m.GetRates())
	return v, problem
}

// readRates takes no more calls than a node can count in a minute.
func readRates(m *xdspb.KeyRates) (rates tally.Rates, problem string) {
	n, level := len(m.GetKeys()), m.GetLevel()
	if n > tally.MaxRateKeys || n != len(m.GetCalls()) || level > tally.MaxRateLevel {
		return rates, refusedMalformed
	}
	calls, keys := make([]int64, n), make([]tally.KeyRate, n)
	if problem = readCounts(calls, m.GetCalls(), maxRate*60); problem != "" {
		return rates, problem
	}
	seen := make(map[tally.RateKey]bool, n)
	for i, k := range m.GetKeys() {
		keys[i] = tally.KeyRate{Key: tally.RateKey(k), Calls: calls[i]}
		if calls[i] == 0 || seen[keys[i].Key] || !keys[i].Key.In(int(level)) {
			return rates, refusedMalformed
		}
		seen[keys[i].Key] = true
	}
	return tally.NewRates(int(level), keys), ""
}

// readCounts copies numbers whose sum is at most most, and which no sum can overflow.
func readCounts(to, from []int64, most int64) (problem string) {
	sum := int64(0)
	for i, n := range from {
		if n < 0 {
			return refusedMalformed
		}
		if n > most-sum {
			return refusedRate
		}
		sum += n
		to[i] = n
	}
	return ""
}

func (r *reporter) readDomains(list []*xdspb.DomainTally, most int64) (domains []tally.DomainTally) {
	seen := map[string]bool{}
	for _, m := range list {
		d := tally.DomainTally{Domain: m.GetDomain()}
		problem := refusedMalformed
		if len(m.GetCounts()) <= len(d.Counts) && !seen[d.Domain] {
			problem = readCounts(d.Counts[:], m.GetCounts(), most)
		}
		if !r.countsFor(d.Domain) {
			problem = refusedDomain
		}
		if problem != "" {
			r.server.leftOut(problem, r.source, "a domain's counts")
			continue
		}
		seen[d.Domain] = true
		domains = append(domains, d)
	}
	return domains
}

// readRefusals takes the newest, which are last. A refusal happened in its window.
func (r *reporter) readRefusals(list []*xdspb.Refusal, start, end time.Time) (refusals []tally.Refusal) {
	if more := len(list) - maxRefusals; more > 0 {
		r.server.leftOut(refusedMalformed, r.source, "refusals beyond what a window has")
		list = list[more:]
	}
	for _, m := range list {
		key, ok := readKey(m.GetKey())
		outcome := tally.Outcome(min(m.GetOutcome(), uint32(tally.Unknown)))
		if !ok || !outcome.Affects() || m.GetUid() == "" || !isText(m.GetUid(), maxUID) || !isText(m.GetLimit(), maxLimitName) || !isText(m.GetLabel(), tally.MaxLabel) ||
			!isText(m.GetPath(), tally.MaxPath) || !isText(m.GetReference(), maxReference) {
			r.server.leftOut(refusedMalformed, r.source, "a refusal")
			continue
		}
		at := r.moved(m.GetTime())
		switch {
		case at.Before(start):
			at = start
		case at.After(end):
			at = end
		}
		refusals = append(refusals, tally.Refusal{
			Time: at, Node: r.source.Node, Domain: m.GetDomain(), UID: m.GetUid(), Version: m.GetVersion(), Limit: m.GetLimit(),
			Outcome: outcome, Key: key, Label: m.GetLabel(), Path: m.GetPath(), Reference: m.GetReference(),
		})
	}
	return refusals
}

func (r *reporter) countsFor(domain string) bool {
	_, ok := slices.BinarySearch(r.domains, domain)
	return ok
}

func readKey(b []byte) (key tally.KeyID, ok bool) {
	return key, copy(key[:], b) == len(b) && len(b) == len(key)
}

// isText reports whether text can be stored and shown: bounded, and printable.
func isText(text string, most int) bool { return tally.Printable(text, most) == text }
