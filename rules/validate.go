package rules

import (
	"fmt"
	"regexp"
	"strings"
)

// Stable codes of the problems found here. HG00xx is the form of a file, HG01xx a spec.
const (
	CodeName     = "HG0101" // a name
	CodeMatch    = "HG0102" // a condition of match
	CodeLimit    = "HG0103" // a limit: its numbers, window, burst or plan
	CodeKey      = "HG0104" // a part of the key, or the shard
	CodeMode     = "HG0105" // missingKey, failure or the end of a freeze
	CodeCost     = "HG0106" // a cost
	CodeResponse = "HG0107" // the response
	CodeWhen     = "HG0108" // the expression of when
	CodeSame     = "HG0109" // the same as another rule
	CodeText     = "HG0110" // description, owner or labels
)

// The bounds of a spec.
const (
	MaxLimits   = 4
	maxKeyParts = 8
	maxValues   = 1000 // of a list or a plan
	maxCosts    = 100
	maxFields   = 64 // of headers, of query parameters, of attributes in one match
	maxTextSize = 1024
)

var (
	namePattern  = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$`)
	grpcPattern  = regexp.MustCompile(`^[A-Za-z0-9_.]+/([A-Za-z0-9_]+|\*)$`)
)

// CheckName says what is wrong with the name of a rule, domain or limit; "" when nothing is. The alphabet keeps names
// safe in headers, metrics and paths.
func CheckName(name string) string {
	if namePattern.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("%q is not a name: use 1 to 63 of a-z, 0-9 and -", name)
}

// report takes one problem, with a path relative to what is validated.
type report func(code, path, format string, args ...any)

func (add report) under(prefix string) report {
	return func(code, path, format string, args ...any) { add(code, prefix+path, format, args...) }
}

// Validate returns every problem of the spec, with paths relative to it ("limits[1].rate").
func (s *Spec) Validate() []Problem {
	var problems []Problem
	add := report(func(code, path, format string, args ...any) {
		problems = append(problems, Problem{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
	})
	s.validateText(add)
	s.Match.Validate(add.under("match"))
	s.validateKey(add)
	s.validateLimits(add)
	s.validateCost(add)
	if s.Failure.Mode == FailLocal {
		if s.Failure.Local.Unlimited {
			add(CodeMode, "failure", "a local limit has a number; write open for no limit")
		} else if err := s.Failure.Local.check(TokenBucket); err != nil {
			add(CodeMode, "failure", "%s", err)
		}
	}
	s.Response.validate(add)
	return problems
}

func (s *Spec) validateText(add report) {
	for path, text := range map[string]string{"description": s.Description, "owner": s.Owner} {
		if len(text) > maxTextSize {
			add(CodeText, path, "the text is longer than %d bytes", maxTextSize)
		}
	}
	if len(s.Labels) > 64 {
		add(CodeText, "labels", "a rule has at most 64 labels, here are %d", len(s.Labels))
	}
	for name, value := range s.Labels {
		if !labelPattern.MatchString(name) || len(value) > 256 {
			add(CodeText, "labels", "%q: a label has a name of 1 to 63 letters, digits and _ . / -, and a value of at most 256 bytes", name)
		}
	}
}

func (s *Spec) validateKey(add report) {
	if len(s.Key) > maxKeyParts {
		add(CodeKey, "key", "a key has at most %d parts, here are %d", maxKeyParts, len(s.Key))
	}
	for i, k := range s.Key {
		at := fmt.Sprintf("key[%d]", i)
		if k.kind == 0 {
			add(CodeKey, at, "a key part is missing: use %s", sourceForms)
		}
		if k.As != "" && CheckName(k.As) != "" {
			add(CodeKey, at, "as: %s", CheckName(k.As))
		}
		s.checkParam(add, at, k.Source)
		for j := range i {
			if s.Key[j].Source == k.Source {
				add(CodeKey, at, "%s is named twice", k.Source)
			}
		}
	}
	switch s.MissingKey {
	case MissingDefault, MissingShared, MissingSkip, MissingRefuse:
	default:
		add(CodeKey, "missingKey", "%q is not known: use shared, skip or refuse", s.MissingKey)
	}
}

// checkParam reports a "path.NAME" that no path of the spec names.
func (s *Spec) checkParam(add report, at string, src Source) {
	name := src.PathParam()
	if name == "" {
		return
	}
	for _, p := range s.Match.Path {
		if strings.Contains(p, "{"+name+"}") {
			return
		}
	}
	add(CodeKey, at, "%s: no path of match has a segment {%s}", src, name)
}

func (s *Spec) validateLimits(add report) {
	if len(s.Limits) == 0 {
		add(CodeLimit, "limit", `a limit is missing: write for example "60/min", or "unlimited"`)
	}
	if len(s.Limits) > MaxLimits {
		add(CodeLimit, "limits", "a rule has at most %d limits, here are %d", MaxLimits, len(s.Limits))
	}
	seen := map[string]bool{}
	for i := range s.Limits {
		l := &s.Limits[i]
		at := fmt.Sprintf("limits[%d].", i)
		s.validateLimit(add.under(at), l)
		if l.Name == "" && len(s.Limits) == 1 {
			continue
		}
		if problem := CheckName(l.Name); problem != "" {
			add(CodeName, at+"name", "%s", problem)
		}
		if seen[l.Name] {
			add(CodeName, at+"name", "%q names two limits of this rule", l.Name)
		}
		seen[l.Name] = true
	}
}

func (s *Spec) validateLimit(add report, l *Limit) {
	if l.Algorithm != TokenBucket && l.Algorithm != SlidingWindow {
		add(CodeLimit, "algorithm", "%q is not known: use %s or %s", l.Algorithm, TokenBucket, SlidingWindow)
		return
	}
	window, cost := l.Window(), s.largestCost()
	check := func(at string, r Rate) {
		err := r.check(l.Algorithm)
		switch {
		case err != nil:
			add(CodeLimit, at, "%s", err)
		case r.Unlimited || r.Amount == 0:
		case r.Window != window:
			add(CodeLimit, at, "limit %q: all values of a limit share one window; another one has %s", r, windowText(window))
		case r.Burst < cost:
			add(CodeLimit, at, "limit %q holds %d, but a request may cost %d: it could never pass", r, r.Burst, cost)
		}
	}
	check("rate", l.Rate)
	switch {
	case l.By == nil && len(l.Values) > 0:
		add(CodeLimit, "by", "values have no source to choose by")
	case l.By != nil && len(l.Values) == 0:
		add(CodeLimit, "values", "a limit by %s has no values", *l.By)
	case len(l.Values) > maxValues:
		add(CodeLimit, "values", "a limit has at most %d values, here are %d", maxValues, len(l.Values))
		return
	}
	if l.By != nil {
		if l.By.kind == 0 {
			add(CodeLimit, "by", "the source is missing: use %s", sourceForms)
		}
		s.checkParam(add, "by", *l.By)
	}
	for _, value := range sortedValues(l.Values) {
		check("values."+value, l.Values[value])
	}
}

func (s *Spec) validateCost(add report) {
	if len(s.Cost) > maxCosts {
		add(CodeCost, "cost", "a rule has at most %d costs, here are %d", maxCosts, len(s.Cost))
	}
	for i := range s.Cost {
		c := &s.Cost[i]
		at := fmt.Sprintf("cost[%d]", i)
		if c.Cost < 0 || c.Cost > 1e12 {
			add(CodeCost, at, "a cost is a whole number from 0 to 1_000_000_000_000, here is %d", c.Cost)
		}
		c.Match.Validate(add.under(at + ".match"))
		if c.Match.IsZero() && i < len(s.Cost)-1 {
			add(CodeCost, at, "this cost has no match, so the ones after it never apply")
		}
	}
}

func (r Response) validate(add report) {
	if r.Status != 0 && (r.Status < 400 || r.Status > 599) {
		add(CodeResponse, "response.status", "%d is not a status from 400 to 599", r.Status)
	}
	if len(r.Title) > 200 || strings.ContainsFunc(r.Title, func(c rune) bool { return c < ' ' }) {
		add(CodeResponse, "response.title", "a title is one line of at most 200 bytes")
	}
	switch r.Headers {
	case HeadersStandard, HeadersLegacy, HeadersBoth, HeadersNone:
	default:
		add(CodeResponse, "response.headers", "%q is not known: use standard, legacy, both or none", r.Headers)
	}
}

// Validate reports every problem of the match, with paths such as ".path[0]".
func (m *Match) Validate(add report) {
	for i, method := range m.Method {
		if strings.ToUpper(method) != method || !validHeaderName(strings.ToLower(method)) {
			add(CodeMatch, fmt.Sprintf(".method[%d]", i), "%q is not an HTTP method in upper case", method)
		}
	}
	for i, host := range m.Host {
		if host == "" || NormalizeHost(host) != host {
			add(CodeMatch, fmt.Sprintf(".host[%d]", i), "%q is never met: hosts are matched in lower case, without port and trailing dot", host)
		}
	}
	for i, path := range m.Path {
		if problem := checkPathPattern(path); problem != "" {
			add(CodeMatch, fmt.Sprintf(".path[%d]", i), "%s", problem)
		}
	}
	for i, method := range m.GRPC {
		if !grpcPattern.MatchString(method) {
			add(CodeMatch, fmt.Sprintf(".grpc[%d]", i), "%q is neither package.Service/Method nor package.Service/*", method)
		}
	}
	for i, p := range m.ClientIP {
		if !p.IsValid() || p.Masked() != p || p.Addr().Is4In6() {
			add(CodeMatch, fmt.Sprintf(".clientIP[%d]", i), "%s is not a CIDR in its shortest form, such as 10.0.0.0/8 or 2001:db8::/32", p)
		}
	}
	for _, f := range m.Header {
		if !validHeaderName(f.Name) {
			add(CodeMatch, ".header."+f.Name, "%q is not a header name in lower case", f.Name)
		}
	}
	for kind, fields := range map[string]FieldMatches{"header": m.Header, "query": m.Query, "attr": m.Attr} {
		if len(fields) > maxFields {
			add(CodeMatch, "."+kind, "at most %d conditions, here are %d", maxFields, len(fields))
		}
		for _, f := range fields {
			f.validate(add.under("." + kind + "." + f.Name))
		}
	}
	for name, n := range map[string]int{"method": len(m.Method), "host": len(m.Host), "path": len(m.Path), "grpc": len(m.GRPC), "clientIP": len(m.ClientIP)} {
		if n > maxValues {
			add(CodeMatch, "."+name, "a list has at most %d values, here are %d", maxValues, n)
		}
	}
	if m.Not != nil {
		if m.Not.Not != nil {
			add(CodeMatch, ".not.not", "a not inside of a not is not allowed: write what it means")
		}
		if m.Not.IsZero() {
			add(CodeMatch, ".not", "an empty not excludes every request")
			return
		}
		(&Match{
			Method: m.Not.Method, Host: m.Not.Host, Path: m.Not.Path, Header: m.Not.Header, Query: m.Not.Query,
			ClientIP: m.Not.ClientIP, GRPC: m.Not.GRPC, Attr: m.Not.Attr,
		}).Validate(add.under(".not"))
	}
}

func (f FieldMatch) validate(add report) {
	set := 0
	for _, is := range []bool{len(f.In) > 0, f.Present != nil, f.Prefix != "", f.Regex != nil} {
		if is {
			set++
		}
	}
	if f.Name == "" || len(f.Name) > 256 {
		add(CodeMatch, "", "a name of 1 to 256 bytes is missing")
	}
	if set != 1 {
		add(CodeMatch, "", "a condition is one value, a list of values, {present: true or false}, {prefix: text} or {regex: RE2}")
	}
	if len(f.In) > maxValues {
		add(CodeMatch, "", "a list has at most %d values, here are %d", maxValues, len(f.In))
	}
}
