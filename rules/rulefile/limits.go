package rulefile

import (
	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// readLimits reads "limit", or "limits", each with the rule's algorithm where it names none.
func (s *specReader) readLimits() {
	standard := rules.TokenBucket
	if n, path := s.value("algorithm"); n != nil {
		standard = s.algorithm(n, path)
	}
	one, path := s.value("limit")
	many, manyPath := s.value("limits")
	switch {
	case one != nil && many != nil:
		s.problem(many, CodeBoth, manyPath, "a rule has either limit or limits")
	case one != nil:
		s.addLimit("", standard, one, path)
	case many != nil:
		for i, e := range s.list(many, manyPath, "[{name: burst, limit: 20/s}, {name: daily, limit: 5000/d}]") {
			s.readLimit(e, index(manyPath, i), standard)
		}
	}
}

func (s *specReader) readLimit(n *yaml.Node, path string, algorithm rules.Algorithm) {
	o, ok := s.object(n, path, namedLimitObject)
	if !ok {
		return
	}
	at := index("limits", len(s.spec.Limits))
	if n := o.values["algorithm"]; n != nil {
		s.put(at+".algorithm", spot{o.path + "algorithm", n})
		algorithm = s.algorithm(n, o.path+"algorithm")
	}
	name := "unnamed" // has its own problem; an empty name would be a second
	if n, ok := s.required(o, "name", "name: burst"); ok {
		s.put(at+".name", spot{o.path + "name", n})
		name, _ = s.name(n, o.path+"name")
	}
	if n, ok := s.required(o, "limit", "limit: 60/min"); ok {
		s.addLimit(name, algorithm, n, o.path+"limit")
	}
}

func (s *specReader) addLimit(name string, algorithm rules.Algorithm, n *yaml.Node, path string) {
	l := rules.Limit{Name: name, Algorithm: algorithm}
	at := index("limits", len(s.spec.Limits))
	ok := false
	if n.Kind == yaml.MappingNode {
		ok = s.readPlan(&l, n, path, at)
	} else {
		l.Rate, ok = s.rate(n, path)
	}
	if ok {
		s.put(at, spot{path, n})
		s.spec.Limits = append(s.spec.Limits, l)
	}
}

// readPlan reads {by, values, default}; false when a part of it is missing or wrong.
func (s *specReader) readPlan(l *rules.Limit, n *yaml.Node, path, at string) bool {
	o, ok := s.object(n, path, planObject)
	if !ok {
		return false
	}
	by, hasBy := s.required(o, "by", "by: header:x-plan")
	if hasBy {
		s.put(at+".by", spot{o.path + "by", by})
		source, ok := s.source(by, o.path+"by", "by")
		l.By, hasBy = &source, ok
	}
	fallback, hasDefault := s.required(o, "default", "default: 60/min, for every other value and for none")
	if hasDefault {
		s.put(at+".rate", spot{o.path + "default", fallback})
		l.Rate, hasDefault = s.rate(fallback, o.path+"default")
	}
	values, hasValues := s.required(o, "values", "values: {free: 60/min, pro: 600/min}")
	if hasValues {
		hasValues = s.readValues(l, values, o.path+"values", at+".values")
	}
	return hasBy && hasDefault && hasValues
}

func (s *specReader) readValues(l *rules.Limit, n *yaml.Node, path, at string) bool {
	entries := s.entries(n, path, "a mapping of values to limits")
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		s.problem(n, rules.CodeLimit, path, "the mapping is empty: write for example {free: 60/min, pro: 600/min}")
	}
	l.Values = make(map[string]rules.Rate, len(entries))
	s.put(at, spot{path, n})
	for _, e := range entries {
		if rate, ok := s.rate(e.value, e.path); ok {
			s.put(at+"."+e.name, spot{e.path, e.value})
			l.Values[e.name] = rate
		}
	}
	return len(l.Values) > 0
}

// rate reads one rate. A number gets the parser's own message: "60" names no window.
func (s *specReader) rate(n *yaml.Node, path string) (rules.Rate, bool) {
	text := n.Value
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		var ok bool
		if text, ok = s.text(n, path, maxText); !ok {
			return rules.Rate{}, false
		}
	}
	rate, err := rules.ParseRate(text)
	if err != nil {
		hint := ""
		if Nearest(text, []string{"unlimited"}) != "" {
			hint = `; did you mean "unlimited"?`
		}
		s.problem(n, rules.CodeLimit, path, "%s%s", err, hint)
		return rules.Rate{}, false
	}
	return rate, true
}

// algorithm reads the name of one; a wrong name is reported, and read as the usual one.
func (s *specReader) algorithm(n *yaml.Node, path string) rules.Algorithm {
	if word, ok := s.word(n, rules.CodeLimit, path, string(rules.TokenBucket), string(rules.SlidingWindow)); ok {
		return rules.Algorithm(word)
	}
	return rules.TokenBucket
}
