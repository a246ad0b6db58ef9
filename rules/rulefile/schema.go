package rulefile

import (
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// What a file of this schema begins with.
const (
	APIVersion = "headgate/v1"
	Kind       = "RuleSet"
)

// The words of "failure". Open is the default, and the zero value of [rules.Failure].
const (
	failOpen   = "open"
	failClosed = string(rules.FailClosed)
)

// document is one decoded document: rules whose name could be read, right or wrong otherwise.
type document struct {
	domain string
	rules  []placedRule
}

type placedRule struct {
	Rule
	node *yaml.Node // of the name
	path string     // rules[3]
}

// place is where a part of a spec was written.
type place struct {
	path string
	node *yaml.Node
}

func (d *decoder) decode(content []byte) []document {
	roots := d.parse(content)
	if len(roots) == 0 && len(d.problems) == 0 {
		d.place(1, 1, CodeEmpty, "there is no rule set in this file: begin with apiVersion: %s", APIVersion)
	}
	list := make([]document, 0, len(roots))
	for _, root := range roots {
		d.refuseHidden(root)
		list = append(list, d.ruleSet(root))
	}
	return list
}

func (d *decoder) ruleSet(root *yaml.Node) document {
	var set document
	o, ok := d.object(root, "", "apiVersion", "kind", "domain", "owner", "rules")
	if !ok {
		return set
	}
	if n, ok := d.required(o, "apiVersion", "apiVersion: "+APIVersion); ok {
		d.word(n, CodeHeader, "apiVersion", APIVersion)
	}
	if n, ok := d.required(o, "kind", "kind: "+Kind); ok {
		d.word(n, CodeHeader, "kind", Kind)
	}
	if n, ok := d.required(o, "domain", "domain: public-api"); ok {
		set.domain, _ = d.name(n, "domain")
	}
	owner := ""
	if n := o.values["owner"]; n != nil {
		owner, _ = d.text(n, "owner", maxText)
	}
	n, ok := d.required(o, "rules", "rules: [{name: per-ip, key: [ip], limit: 60/min}]")
	if !ok {
		return set
	}
	elements := d.list(n, "rules", "[{name: per-ip, key: [ip], limit: 60/min}]")
	for i, e := range elements {
		if r, ok := d.rule(e, index("rules", i), owner); ok {
			set.rules = append(set.rules, r)
		}
	}
	return set
}

// name returns a text that may name a rule, domain or limit.
func (d *decoder) name(n *yaml.Node, path string) (string, bool) {
	text, ok := d.text(n, path, maxText)
	if !ok {
		return "", false
	}
	if problem := rules.CheckName(text); problem != "" {
		d.problem(n, rules.CodeName, path, "%s", problem)
		return "", false
	}
	return text, true
}

// rule reads one rule; false when it has no name it could be known by.
func (d *decoder) rule(n *yaml.Node, path, owner string) (placedRule, bool) {
	o, ok := d.object(n, path, "name", "description", "owner", "match", "key", "limit", "limits", "algorithm", "failure")
	if !ok {
		return placedRule{}, false
	}
	s := specReader{decoder: d, rule: o, places: map[string]place{}}
	s.spec.Owner = owner
	s.read()
	name, ok := d.required(o, "name", "name: per-ip")
	if !ok {
		return placedRule{}, false
	}
	r := placedRule{node: name, path: path}
	r.Name, ok = d.name(name, o.path+"name")
	r.Spec, r.Place = s.spec, Place{d.file, name.Line, name.Column}
	return r, ok
}

// specReader reads the spec of one rule and remembers where each part of it was written.
type specReader struct {
	*decoder
	rule   object
	spec   rules.Spec
	places map[string]place // by the path that rules.Spec.Validate uses
}

func (s *specReader) read() {
	if n := s.rule.values["description"]; n != nil {
		s.spec.Description, _ = s.text(n, s.rule.path+"description", maxDescription)
	}
	if n := s.rule.values["owner"]; n != nil {
		s.spec.Owner, _ = s.text(n, s.rule.path+"owner", maxText)
	}
	if n := s.rule.values["match"]; n != nil {
		s.readMatch(n)
	}
	if n, ok := s.required(s.rule, "key", "key: [ip], or key: [] for one counter for all"); ok {
		s.readKey(n)
	}
	s.readLimits()
	if n := s.rule.values["failure"]; n != nil {
		if word, ok := s.word(n, rules.CodeMode, s.rule.path+"failure", failOpen, failClosed); ok && word != failOpen {
			s.spec.Failure = rules.Failure(word)
		}
	}
	s.validate()
}

func (s *specReader) readMatch(n *yaml.Node) {
	o, ok := s.object(n, s.rule.path+"match", "method", "path")
	if !ok {
		return
	}
	read := func(key string) []string {
		n := o.values[key]
		if n == nil {
			return nil
		}
		texts, places := s.texts(n, o.path+key)
		for i, p := range places {
			s.places[index("match."+key, i)] = p
		}
		return texts
	}
	s.spec.Match = rules.Match{Method: read("method"), Path: read("path")}
}

func (s *specReader) readKey(n *yaml.Node) {
	path := s.rule.path + "key"
	elements := s.list(n, path, "[ip] or [header:x-api-key]")
	s.spec.Key = []rules.KeySource{}
	for i, e := range elements {
		text, ok := s.text(e, index(path, i), maxText)
		if !ok {
			continue
		}
		source, err := rules.ParseKeySource(text)
		if err != nil {
			s.problem(e, rules.CodeKey, index(path, i), "%s", err)
			continue
		}
		s.places[index("key", len(s.spec.Key))] = place{index(path, i), e}
		s.spec.Key = append(s.spec.Key, source)
	}
}

// readLimits reads "limit", or "limits", each with the rule's algorithm where it names none.
func (s *specReader) readLimits() {
	standard := rules.TokenBucket
	if n := s.rule.values["algorithm"]; n != nil {
		standard = s.algorithm(n, s.rule.path+"algorithm")
	}
	one, many := s.rule.values["limit"], s.rule.values["limits"]
	switch {
	case one != nil && many != nil:
		s.problem(many, CodeBoth, s.rule.path+"limits", "a rule has either limit or limits")
	case one != nil:
		s.addLimit("", standard, one, s.rule.path+"limit")
	case many != nil:
		s.places["limits"] = place{s.rule.path + "limits", many}
		s.places["limit"] = s.places["limits"]
		elements := s.list(many, s.rule.path+"limits", "[{name: burst, limit: 20/s}, {name: daily, limit: 5000/d}]")
		for i, e := range elements {
			s.readLimit(e, index(s.rule.path+"limits", i), standard)
		}
	}
}

func (s *specReader) readLimit(n *yaml.Node, path string, algorithm rules.Algorithm) {
	o, ok := s.object(n, path, "name", "limit", "algorithm")
	if !ok {
		return
	}
	if n := o.values["algorithm"]; n != nil {
		algorithm = s.algorithm(n, o.path+"algorithm")
	}
	name := ""
	if n, ok := s.required(o, "name", "name: burst"); ok {
		s.places[index("limits", len(s.spec.Limits))+".name"] = place{o.path + "name", n}
		name, _ = s.name(n, o.path+"name")
	}
	if n, ok := s.required(o, "limit", "limit: 60/min"); ok {
		s.addLimit(name, algorithm, n, o.path+"limit")
	}
}

func (s *specReader) addLimit(name string, algorithm rules.Algorithm, n *yaml.Node, path string) {
	text, ok := s.text(n, path, maxText)
	if !ok {
		return
	}
	rate, err := rules.ParseRate(text)
	if err != nil {
		s.problem(n, rules.CodeLimit, path, "%s", err)
		return
	}
	s.places[index("limits", len(s.spec.Limits))] = place{path, n}
	s.spec.Limits = append(s.spec.Limits, rules.Limit{Name: name, Algorithm: algorithm, Rate: rate})
}

// algorithm reads the name of one; a wrong name is reported, and read as the usual one.
func (s *specReader) algorithm(n *yaml.Node, path string) rules.Algorithm {
	if word, ok := s.word(n, rules.CodeLimit, path, string(rules.TokenBucket)); ok {
		return rules.Algorithm(word)
	}
	return rules.TokenBucket
}

// validate asks package rules, and finds the places of what it says. A fault at a place that has one already follows
// from it, and a limit that could not be read is not also missing.
func (s *specReader) validate() {
	for _, p := range s.spec.Validate() {
		at := s.find(p.Path)
		if p.Path == "limit" && s.triedLimits() {
			continue
		}
		if p.Path != "limit" && s.reported[position{at.node.Line, at.node.Column}] {
			continue
		}
		s.problem(at.node, p.Code, at.path, "%s", p.Message)
	}
}

// triedLimits reports that the rule has something where its limits belong. When none of it became a limit, each part
// has its own problem.
func (s *specReader) triedLimits() bool {
	if many := s.rule.values["limits"]; many != nil && many.Kind == yaml.SequenceNode && len(many.Content) == 0 {
		return s.rule.has("limit")
	}
	return s.rule.has("limit") || s.rule.has("limits")
}

// find returns the place of a part, or of the nearest part around it that has one.
func (s *specReader) find(path string) place {
	for around := path; around != ""; {
		if at, ok := s.places[around]; ok {
			return at
		}
		around = around[:max(0, strings.LastIndexAny(around, ".["))]
	}
	return place{s.rule.path + path, s.rule.node}
}
