package rulefile

import (
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// rule reads one rule; false when it has no name it could be known by.
func (d *decoder) rule(n *yaml.Node, path, owner string) (placedRule, bool) {
	o, ok := d.object(n, path, ruleObject)
	if !ok {
		return placedRule{}, false
	}
	before := len(d.problems)
	s := specReader{decoder: d, rule: o, places: places{}}
	s.spec.Owner = owner
	s.read()
	name, ok := d.required(o, "name", "name: per-ip")
	if !ok {
		return placedRule{}, false
	}
	r := placedRule{node: name, path: path}
	r.Name, ok = d.name(name, o.path+"name")
	r.Spec, r.Place, r.places = s.spec, Place{d.file, name.Line, name.Column}, s.places
	r.broken = len(d.problems) > before
	return r, ok
}

// specReader reads the spec of one rule and remembers where each part of it was written.
type specReader struct {
	*decoder
	rule   object
	spec   rules.Spec
	places places
}

// value returns the value of a key with its place, which is remembered; nil when the key is not there.
func (s *specReader) value(key string) (*yaml.Node, string) {
	n := s.rule.values[key]
	path := s.rule.path + key
	if n != nil {
		s.put(key, spot{path, n})
	}
	return n, path
}

func (s *specReader) put(name string, at spot) { s.places.put(name, at, s.file) }

func (s *specReader) read() {
	s.put("", spot{strings.TrimSuffix(s.rule.path, "."), s.rule.node})
	s.readText()
	if n, path := s.value("match"); n != nil {
		m := matchReader{s.decoder, s.places}
		s.spec.Match = m.read(n, path, "match")
	}
	if n, path := s.value("when"); n != nil {
		s.readWhen(n, path)
	}
	if n, path := s.value("exact"); n != nil {
		s.spec.Exact, _ = s.truth(n, path)
	}
	if n, ok := s.required(s.rule, "key", "key: [ip], or key: [] for one counter for all"); ok {
		s.readKey(n)
	}
	if n, path := s.value("missingKey"); n != nil {
		word, _ := s.word(n, rules.CodeKey, path, string(rules.MissingShared), string(rules.MissingSkip), string(rules.MissingRefuse))
		s.spec.MissingKey = rules.MissingKey(word)
	}
	s.readLimits()
	if n, path := s.value("cost"); n != nil {
		s.readCost(n, path)
	}
	if n, path := s.value("failure"); n != nil {
		s.readFailure(n, path)
	}
	if n, path := s.value("response"); n != nil {
		s.readResponse(n, path)
	}
	s.validate()
}

func (s *specReader) readText() {
	if n, path := s.value("description"); n != nil {
		s.spec.Description, _ = s.text(n, path, maxText)
	}
	if n, path := s.value("owner"); n != nil {
		s.spec.Owner, _ = s.text(n, path, maxText)
	}
	n, path := s.value("labels")
	if n == nil {
		return
	}
	for _, e := range s.entries(n, path, "a mapping of names to text") {
		text, ok := s.text(e.value, e.path, maxText)
		if !ok {
			continue
		}
		s.put("labels."+e.name, spot{e.path, e.key})
		if s.spec.Labels == nil {
			s.spec.Labels = map[string]string{}
		}
		s.spec.Labels[e.name] = text
	}
}

func (s *specReader) readWhen(n *yaml.Node, path string) {
	text, ok := s.text(n, path, maxText)
	if !ok {
		return
	}
	when, err := s.programs.when(text)
	if err != nil {
		s.problem(n, rules.CodeWhen, path, "%s", err)
		return
	}
	s.spec.When = when
}

func (s *specReader) readKey(n *yaml.Node) {
	path := s.rule.path + "key"
	s.put("key", spot{path, n})
	s.spec.Key = []rules.KeySource{}
	for i, e := range s.list(n, path, "[ip] or [header:x-api-key]") {
		part, ok := s.keyPart(e, index(path, i))
		if !ok {
			continue
		}
		s.put(index("key", len(s.spec.Key)), spot{index(path, i), e})
		s.spec.Key = append(s.spec.Key, part)
	}
}

// keyPart reads a source, or a mapping with "from".
func (s *specReader) keyPart(n *yaml.Node, path string) (rules.KeySource, bool) {
	var part rules.KeySource
	if n.Kind != yaml.MappingNode {
		source, ok := s.source(n, path, "key")
		part.Source = source
		return part, ok
	}
	o, ok := s.object(n, path, keyPartObject)
	if !ok {
		return part, false
	}
	from, ok := s.required(o, "from", "from: header:x-login-name")
	if ok {
		part.Source, ok = s.source(from, o.path+"from", "key")
	}
	if n := o.values["as"]; n != nil {
		part.As, _ = s.name(n, o.path+"as")
	}
	for key, field := range map[string]*bool{"lower": &part.Lower, "trim": &part.Trim, "hash": &part.Hash} {
		if n := o.values[key]; n != nil {
			*field, _ = s.truth(n, o.path+key)
		}
	}
	return part, ok
}

// readCost reads a number, or a list of costs with matches.
func (s *specReader) readCost(n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode {
		if cost, ok := s.number(n, path); ok {
			s.put("cost[0]", spot{path, n})
			s.spec.Cost = []rules.Cost{{Cost: cost}}
		}
		return
	}
	elements := s.list(n, path, "[{match: {path: /v1/export}, cost: 100}, {cost: 1}], or a number")
	if len(elements) == 0 && n.Kind == yaml.SequenceNode {
		s.problem(n, CodeKind, path, "the list is empty: leave cost out where each request costs 1")
	}
	for i, e := range elements {
		at := index(path, i)
		o, ok := s.object(e, at, costObject)
		if !ok {
			continue
		}
		name := index("cost", len(s.spec.Cost))
		s.put(name, spot{at, e})
		var c rules.Cost
		if n := o.values["match"]; n != nil {
			m := matchReader{s.decoder, s.places}
			s.put(name+".match", spot{o.path + "match", n})
			c.Match = m.read(n, o.path+"match", name+".match")
		}
		if n, ok := s.required(o, "cost", "cost: 5"); ok {
			c.Cost, _ = s.number(n, o.path+"cost")
		}
		s.spec.Cost = append(s.spec.Cost, c)
	}
}

func (s *specReader) readFailure(n *yaml.Node, path string) {
	text, ok := s.text(n, path, maxText)
	if !ok {
		return
	}
	failure, err := rules.ParseFailure(text)
	if err != nil {
		word, _, _ := strings.Cut(text, " ")
		hint := ""
		if near := Nearest(word, []string{"open", "closed", "local"}); near != "" && near != word {
			hint = "; did you mean \"" + near + "\"?"
		}
		s.problem(n, rules.CodeMode, path, "%s%s", err, hint)
		return
	}
	s.spec.Failure = failure
}

func (s *specReader) readResponse(n *yaml.Node, path string) {
	o, ok := s.object(n, path, responseObject)
	if !ok {
		return
	}
	r := &s.spec.Response
	if n := o.values["status"]; n != nil {
		s.put("response.status", spot{o.path + "status", n})
		if status, ok := s.number(n, o.path+"status"); ok {
			r.Status = int(min(status, 1_000_000))
			if r.Status == 0 {
				r.Status = -1 // 0 would be read as the default
			}
		}
	}
	if n := o.values["title"]; n != nil {
		s.put("response.title", spot{o.path + "title", n})
		r.Title, _ = s.text(n, o.path+"title", maxText)
	}
	if n := o.values["headers"]; n != nil {
		word, _ := s.word(n, rules.CodeResponse, o.path+"headers", headersStandard, string(rules.HeadersLegacy), string(rules.HeadersBoth), string(rules.HeadersNone))
		if word != headersStandard {
			r.Headers = rules.Headers(word)
		}
	}
}

// headersStandard is the word for the zero value of [rules.Headers].
const headersStandard = "standard"

// validate asks package rules, and finds the places of what it says. A limit that could not be read is not also
// missing.
func (s *specReader) validate() {
	for _, p := range s.spec.Validate() {
		if p.Path == "limit" {
			if !s.triedLimits() {
				at := s.places.find("limits")
				s.place(at.Line, at.Column, p.Code, "%s", p.Message)
				s.problems[len(s.problems)-1].Path = s.limitPath()
			}
			continue
		}
		s.follow(s.places, p.Path, p.Code, "%s", p.Message)
	}
}

func (s *specReader) limitPath() string {
	if s.rule.values["limits"] != nil {
		return s.rule.path + "limits"
	}
	return s.rule.path + "limit"
}

// triedLimits reports that the rule has something where its limits belong. When none of it became a limit, each part
// has its own problem.
func (s *specReader) triedLimits() bool {
	if many := s.rule.values["limits"]; many != nil && many.Kind == yaml.SequenceNode && len(many.Content) == 0 {
		return s.rule.has("limit")
	}
	return s.rule.has("limit") || s.rule.has("limits")
}
