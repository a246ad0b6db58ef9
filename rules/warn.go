package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stable codes of the warnings: what is valid, and probably not meant.
const (
	WarnClient    = "HG0201" // rests on what a client can set
	WarnBurst     = "HG0202" // the burst is smaller than the amount
	WarnSegment   = "HG0203" // only some paths name the segment
	WarnFree      = "HG0204" // nothing costs anything
	WarnBlocks    = "HG0205" // 0 refuses everything
	WarnExact     = "HG0206" // exact, and a field that descriptors do not have
	WarnUnreached = "HG0207" // never applies
	WarnRedundant = "HG0208" // never refuses: another rule is as strict
	WarnTenfold   = "HG0209" // a limit changed ten times or more
	WarnShard     = "HG0210" // no rule is keyed on the shard
	WarnMethod    = "HG0211" // a method that HTTP does not have
)

// Warn returns what is suspicious about the rules of a domain, with paths "rules[3].limits[0].rate",
// "exempt[0].match" and "shard". Only Shard and Exempt of the domain are read. It says nothing that is not certain: a
// warning that is wrong once is not read again.
func Warn(d Domain, list []NamedSpec) []Problem {
	var w warner
	for i := range d.Exempt {
		w.at = "exempt[" + strconv.Itoa(i) + "]."
		w.exemption(&d.Exempt[i])
	}
	keyed := false
	for i := range list {
		w.at = "rules[" + strconv.Itoa(i) + "]."
		s := &list[i].Spec
		w.methods(s)
		w.client(s)
		w.numbers(s)
		w.segments(s)
		w.costs(s)
		w.exact(s)
		w.reached(s, d.Exempt)
		for _, k := range s.Key {
			keyed = keyed || d.Shard != nil && k.Source == *d.Shard
		}
	}
	w.at = ""
	if d.Shard != nil && !keyed {
		w.add(WarnShard, "shard", "no rule has %s in its key, so nothing is sharded by it", *d.Shard)
	}
	w.redundant(list)
	return w.found
}

// warner collects warnings; at is the prefix of their paths.
type warner struct {
	at    string
	found []Problem
}

func (w *warner) add(code, path, format string, args ...any) {
	w.found = append(w.found, Problem{Code: code, Path: w.at + path, Message: fmt.Sprintf(format, args...), Warning: true})
}

// knownMethods are those of RFC 9110 and RFC 5789, and those of WebDAV.
var knownMethods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
	"COPY", "LOCK", "MKCALENDAR", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "UNLOCK",
}

// methods warns of those that HTTP does not have: some services have others, but most often a letter is wrong.
func (w *warner) methods(s *Spec) {
	for _, m := range s.Match.Method {
		if slices.Contains(knownMethods, m) {
			continue
		}
		meant := ""
		for _, known := range knownMethods {
			if sameLetters(m, known) {
				meant = fmt.Sprintf("; did you mean %s?", known)
			}
		}
		w.add(WarnMethod, "match.method", "%s is not among the methods of HTTP%s", m, meant)
	}
}

// sameLetters reports that a word has the letters of another, in whatever order, or one of them is missing or too much.
func sameLetters(word, other string) bool {
	rest := []byte(other)
	extra := 0
	for i := range len(word) {
		if at := slices.Index(rest, word[i]); at >= 0 {
			rest = slices.Delete(rest, at, at+1)
		} else {
			extra++
		}
	}
	return extra+len(rest) <= 1
}

// client warns of keys and plans that rest on what a client can send as it likes.
func (w *warner) client(s *Spec) {
	for i, k := range s.Key {
		if k.Client() {
			w.add(WarnClient, fmt.Sprintf("key[%d]", i), "a client can set %s itself, and a new value is a new counter: %s", k.Source, remedy(k.Source))
		}
	}
	for i := range s.Limits {
		if by := s.Limits[i].By; by != nil && by.Client() {
			w.add(WarnClient, fmt.Sprintf("limits[%d].by", i), "a client can set %s itself and choose its own limit: %s", *by, remedy(*by))
		}
	}
}

const trustGateway = "let the gateway set it, and strip what clients send"

// remedy says what makes a value trustworthy.
func remedy(s Source) string {
	if s.kind == sourceHeader {
		return trustGateway
	}
	return "use a value that the gateway sets instead, stripped from what clients send"
}

func (w *warner) exemption(e *Exemption) {
	for kind, fields := range map[string]FieldMatches{"header": e.Match.Header, "query": e.Match.Query} {
		for _, f := range fields {
			if f.Present == nil || *f.Present {
				w.add(WarnClient, "match."+kind+"."+f.Name, "whoever sends this %s meets no rule at all: %s", noun(kind), remedyFor(kind))
			}
		}
	}
}

func remedyFor(kind string) string {
	if kind == "header" {
		return trustGateway
	}
	return remedy(Source{})
}

func noun(kind string) string {
	if kind == "query" {
		return "query parameter"
	}
	return kind
}

// numbers warns of a burst below the amount, and of a limit that refuses everything.
func (w *warner) numbers(s *Spec) {
	for i := range s.Limits {
		l := &s.Limits[i]
		check := func(at string, r Rate) {
			switch {
			case r.Unlimited:
			case r.Amount == 0:
				w.add(WarnBlocks, at, "%s refuses every request it is for; write unlimited for no limit", r)
			case l.Algorithm == TokenBucket && r.Burst < r.Amount && r.Burst == 1:
				w.add(WarnBurst, at, "%s admits one call each %s and never two at once; without a burst, %s may come at once", r, interval(r), grouped(r.Amount))
			case l.Algorithm == TokenBucket && r.Burst < r.Amount:
				w.add(WarnBurst, at, "%s admits %s at once, then one each %s: the %s are reached only by calls that come evenly; "+
					"without a burst, %s may come at once", r, grouped(r.Burst), interval(r), grouped(r.Amount), grouped(r.Amount))
			}
		}
		at := fmt.Sprintf("limits[%d].", i)
		check(at+"rate", l.Rate)
		for _, value := range sortedValues(l.Values) {
			check(at+"values."+value, l.Values[value])
		}
	}
}

// interval says how long a token bucket takes to refill one token.
func interval(r Rate) string {
	each := r.Window / time.Duration(r.Amount)
	about, decimals := "", -1
	if each*time.Duration(r.Amount) != r.Window {
		about, decimals = "about ", 1
	}
	switch {
	case each < time.Millisecond:
		return "less than 1 ms"
	case each < time.Second:
		return about + strconv.FormatFloat(float64(each)/float64(time.Millisecond), 'f', decimals, 64) + " ms"
	}
	return about + strconv.FormatFloat(each.Seconds(), 'f', decimals, 64) + " s"
}

// segments warns of a "path.NAME" that only some of the rule's paths name: a request by another path lacks the value.
func (w *warner) segments(s *Spec) {
	check := func(at string, src Source) {
		name := src.PathParam()
		if name == "" {
			return
		}
		for _, p := range s.Match.Path {
			if !names(p, name) && !slices.ContainsFunc(s.Match.Path, func(q string) bool { return names(q, name) && patternCovers(q, p) }) {
				w.add(WarnSegment, at, "the path %s has no segment {%s}: requests that meet only it lack the value", p, name)
				return
			}
		}
	}
	for i, k := range s.Key {
		check(fmt.Sprintf("key[%d]", i), k.Source)
	}
	for i := range s.Limits {
		if by := s.Limits[i].By; by != nil {
			check(fmt.Sprintf("limits[%d].by", i), *by)
		}
	}
}

func names(pattern, segment string) bool { return strings.Contains(pattern, "{"+segment+"}") }

// costs warns where no request spends anything, and of costs that never apply.
func (w *warner) costs(s *Spec) {
	if len(s.Cost) > 0 && s.largestCost() == 0 {
		w.add(WarnFree, "cost", "every cost is 0, so nothing is ever spent and nothing refused")
	}
	for i := range s.Cost {
		for j := range i {
			if covers(&s.Cost[j].Match, &s.Cost[i].Match) {
				w.add(WarnUnreached, fmt.Sprintf("cost[%d]", i), "this cost never applies: an earlier one matches the same requests")
				break
			}
		}
	}
}

// exact warns of conditions that no descriptor meets. Its entries become attributes, address, path, method and host, but
// neither headers nor cookies.
func (w *warner) exact(s *Spec) {
	if !s.Exact {
		return
	}
	for _, f := range s.Match.Header {
		if f.Present == nil || *f.Present {
			w.add(WarnExact, "match.header."+f.Name, "exact is about descriptors, and they have no headers: it never matches one")
		}
	}
	if len(s.Match.GRPC) > 0 {
		w.add(WarnExact, "match.grpc", "exact is about descriptors, and none of them is a gRPC call: it never matches one")
	}
	for i, k := range s.Key {
		if k.kind == sourceHeader || k.kind == sourceCookie {
			w.add(WarnExact, fmt.Sprintf("key[%d]", i), "exact is about descriptors, and they have no %s: the value is always missing", k.Source)
		}
	}
}

// reached warns of a rule that never applies.
func (w *warner) reached(s *Spec, exempt []Exemption) {
	for i := range exempt {
		if covers(&exempt[i].Match, &s.Match) {
			w.add(WarnUnreached, "match", "the rule is never reached: the exemption %q covers all it matches", exempt[i].Name)
			return
		}
	}
	if s.Match.Not != nil {
		rest := s.Match
		rest.Not = nil
		if covers(s.Match.Not, &rest) {
			w.add(WarnUnreached, "match.not", "the rule never applies: not leaves out all that match asks for")
		}
	}
}
