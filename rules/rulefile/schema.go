package rulefile

import (
	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// What a file of this schema begins with.
const (
	APIVersion = "headgate/v1"
	Kind       = "RuleSet"
)

// document is one decoded document: what of it could be read, right or wrong otherwise.
type document struct {
	domain string
	owner  string
	shard  *placedSource
	exempt []placedExemption
	rules  []placedRule
}

type placedSource struct {
	source rules.Source
	node   *yaml.Node
}

type placedExemption struct {
	exemption rules.Exemption
	node      *yaml.Node // of the name
	path      string     // exempt[1]
	places    places
}

type placedRule struct {
	Rule
	node *yaml.Node // of the name
	path string     // rules[3]
}

// spot is a part of a document with its path there.
type spot struct {
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
	o, ok := d.object(root, "", ruleSetObject)
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
	if n := o.values["owner"]; n != nil {
		set.owner, _ = d.text(n, "owner", maxText)
	}
	if n := o.values["shard"]; n != nil {
		set.shard = d.shard(n)
	}
	if n := o.values["exempt"]; n != nil {
		set.exempt = d.exemptions(n)
	}
	n, ok := d.required(o, "rules", "rules: [{name: per-ip, key: [ip], limit: 60/min}]")
	if !ok {
		return set
	}
	for i, e := range d.list(n, "rules", "[{name: per-ip, key: [ip], limit: 60/min}]") {
		if r, ok := d.rule(e, index("rules", i), set.owner); ok {
			set.rules = append(set.rules, r)
		}
	}
	return set
}

func (d *decoder) shard(n *yaml.Node) *placedSource {
	source, ok := d.source(n, "shard", "shard")
	if !ok {
		return nil
	}
	if source.PathParam() != "" {
		d.problem(n, rules.CodeKey, "shard", "%s: segments are named by each rule's own paths; a shard is for a whole domain", source)
		return nil
	}
	return &placedSource{source, n}
}

func (d *decoder) exemptions(n *yaml.Node) []placedExemption {
	elements := d.list(n, "exempt", "[{name: health, match: {path: /livez}}]")
	list := make([]placedExemption, 0, len(elements))
	for i, e := range elements {
		path := index("exempt", i)
		o, ok := d.object(e, path, exemptionObject)
		if !ok {
			continue
		}
		x := placedExemption{path: path, node: e, places: places{}}
		x.places.put("", spot{path, e}, d.file)
		if n, ok := d.required(o, "name", "name: health"); ok {
			x.node = n
			x.exemption.Name, _ = d.name(n, o.path+"name")
		}
		if n, ok := d.required(o, "match", "match: {path: /livez}"); ok {
			m := matchReader{decoder: d, places: x.places}
			x.places.put("match", spot{o.path + "match", n}, d.file)
			x.exemption.Match = m.read(n, o.path+"match", "match")
			if x.exemption.Match.IsZero() && n.Kind == yaml.MappingNode && len(n.Content) == 0 {
				d.problem(n, rules.CodeMatch, o.path+"match", "an empty match exempts every request: say which are meant")
			}
			x.exemption.Match.Validate(func(code, at, format string, args ...any) {
				d.follow(x.places, "match"+at, code, format, args...)
			})
		}
		list = append(list, x)
	}
	return list
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

// source returns a source; what is the noun for messages.
func (d *decoder) source(n *yaml.Node, path, what string) (rules.Source, bool) {
	text, ok := d.text(n, path, maxText)
	if !ok {
		return rules.Source{}, false
	}
	source, err := rules.ParseSource(text)
	if err != nil {
		d.problem(n, rules.CodeKey, path, "%s %s%s", what, err, nearSource(text))
		return rules.Source{}, false
	}
	return source, true
}
