package rulefile

import (
	"fmt"

	"github.com/headgate/headgate/rules"
)

// joiner collects the documents of each domain.
type joiner struct {
	list     []RuleSet
	sets     map[string]int   // domain: its index in list
	places   map[string]Place // "domain/name", or "domain exempt name": where it was written first
	problems []rules.Problem
}

func (j *joiner) join(d *decoder, doc document) {
	at, known := j.sets[doc.domain]
	if !known {
		at = len(j.list)
		j.sets[doc.domain] = at
		j.list = append(j.list, RuleSet{Domain: doc.domain})
	}
	set := &j.list[at]
	if set.Owner == "" {
		set.Owner = doc.owner
	}
	j.joinShard(d, set, doc.shard)
	for _, x := range doc.exempt {
		id := doc.domain + " exempt " + x.exemption.Name
		if first, twice := j.places[id]; twice && x.exemption.Name != "" {
			d.problem(x.node, CodeTwice, x.path+".name", "%q is already the name of the exemption at %s", x.exemption.Name, first)
			continue
		}
		j.places[id] = Place{d.file, x.node.Line, x.node.Column}
		set.Exempt, set.exemptAt = append(set.Exempt, x.exemption), append(set.exemptAt, x.places)
	}
	for _, r := range doc.rules {
		id := doc.domain + "/" + r.Name
		if first, twice := j.places[id]; twice {
			d.problem(r.node, CodeTwice, r.path+".name", "%q is already the name of the rule at %s", r.Name, first)
			continue
		}
		j.places[id] = r.Place
		set.Rules = append(set.Rules, r.Rule)
	}
}

// joinShard demands that the documents of a domain agree.
func (j *joiner) joinShard(d *decoder, set *RuleSet, shard *placedSource) {
	switch {
	case shard == nil:
	case set.Shard == nil:
		set.Shard = &shard.source
		set.shardAt = located{Place{d.file, shard.node.Line, shard.node.Column}, "shard"}
	case *set.Shard != shard.source:
		d.problem(shard.node, CodeTwice, "shard", "the domain's shard is already %s, at %s", set.Shard, set.shardAt.Place)
	}
}

// sameRules reports rules of a domain that are equal in everything but text: each call would count twice.
func sameRules(set *RuleSet) []rules.Problem {
	var problems []rules.Problem
	for _, pair := range rules.SameRules(set.Named()) {
		first, second := &set.Rules[pair.First], &set.Rules[pair.Second]
		if first.broken || second.broken {
			continue // what could not be read may be what makes them differ
		}
		at := second.places.find("")
		problems = append(problems, rules.Problem{
			Code: rules.CodeSame, File: second.Place.File, Line: second.Place.Line, Column: second.Place.Column, Path: at.path,
			Message: fmt.Sprintf("rule %q says the same as rule %q at %s: leave one of them out, or make them differ in more than text",
				second.Name, first.Name, first.Place),
		})
	}
	return problems
}
