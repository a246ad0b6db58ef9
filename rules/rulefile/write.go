package rulefile

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// Format returns the canonical file of a rule set: one document, and nothing in it that is so by default. [Decode] reads
// the same rule set from it.
func Format(set RuleSet) []byte {
	root := mapping(
		"apiVersion", text(APIVersion), "kind", text(Kind), "domain", text(set.Domain), "owner", textOrNil(set.Owner),
		"shard", sourceOrNil(set.Shard), "exempt", exemptNode(set.Exempt),
	)
	list := make([]*yaml.Node, len(set.Rules))
	for i := range set.Rules {
		list[i] = ruleNode(&set.Rules[i], set.Owner)
	}
	root.Content = append(root.Content, text("rules"), sequence(list))
	canonical(root, ruleSetObject)
	var p printer
	p.document(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}})
	return []byte(p.out.String())
}

// mapping makes a mapping of keys and nodes in turn; a nil node leaves its key out.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		if value, _ := pairs[i+1].(*yaml.Node); value != nil {
			n.Content = append(n.Content, text(key), value)
		}
	}
	return n
}

func sequence(content []*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: content}
}

func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

func textOrNil(value string) *yaml.Node {
	if value == "" {
		return nil
	}
	return text(value)
}

func texts(values []string) *yaml.Node {
	if len(values) == 0 {
		return nil
	}
	list := make([]*yaml.Node, len(values))
	for i, v := range values {
		list[i] = text(v)
	}
	return sequence(list)
}

func number(n int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(n, 10)}
}

// trueOrNil leaves false out: it is the default of every truth in a file.
func trueOrNil(is bool) *yaml.Node {
	if !is {
		return nil
	}
	return truth(true)
}

func truth(is bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(is)}
}

func sourceOrNil(s *rules.Source) *yaml.Node {
	if s == nil {
		return nil
	}
	return text(s.String())
}

func exemptNode(list []rules.Exemption) *yaml.Node {
	if len(list) == 0 {
		return nil
	}
	nodes := make([]*yaml.Node, len(list))
	for i := range list {
		nodes[i] = mapping("name", text(list[i].Name), "match", matchNode(&list[i].Match))
	}
	return sequence(nodes)
}

func ruleNode(r *Rule, owner string) *yaml.Node {
	s := &r.Spec
	n := mapping("name", text(r.Name), "description", textOrNil(s.Description))
	if s.Owner != owner { // "" where the rule has none, though the rule set has one
		n.Content = append(n.Content, text("owner"), text(s.Owner))
	}
	rest := mapping("labels", labelsNode(s.Labels), "match", matchNode(&s.Match), "exact", trueOrNil(s.Exact), "key", keyNode(s.Key),
		"missingKey", textOrNil(string(s.MissingKey)), "cost", costNode(s.Cost), "response", responseNode(s.Response))
	n.Content = append(n.Content, rest.Content...)
	if s.When != nil {
		n.Content = append(n.Content, text("when"), text(s.When.String()))
	}
	if s.Failure.Mode != rules.FailOpen {
		n.Content = append(n.Content, text("failure"), text(s.Failure.String()))
	}
	n.Content = append(n.Content, limitNodes(s.Limits)...)
	return n
}

func labelsNode(labels map[string]string) *yaml.Node {
	if len(labels) == 0 {
		return nil
	}
	n := mapping()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		n.Content = append(n.Content, text(name), text(labels[name]))
	}
	return n
}

// matchNode is nil for a match that asks nothing.
func matchNode(m *rules.Match) *yaml.Node {
	if m.IsZero() {
		return nil
	}
	networks := make([]string, len(m.ClientIP))
	for i, p := range m.ClientIP {
		networks[i] = netip.Prefix.String(p)
	}
	n := mapping("method", texts(m.Method), "host", texts(m.Host), "path", texts(m.Path), "header", conditionsNode(m.Header),
		"query", conditionsNode(m.Query), "clientIP", texts(networks), "grpc", texts(m.GRPC), "attr", conditionsNode(m.Attr))
	if m.Not != nil {
		n.Content = append(n.Content, text("not"), matchNode(m.Not))
	}
	return n
}

func conditionsNode(fields rules.FieldMatches) *yaml.Node {
	if len(fields) == 0 {
		return nil
	}
	n := mapping()
	for i := range fields {
		f := &fields[i]
		value := texts(f.In)
		switch {
		case f.Present != nil:
			value = mapping("present", truth(*f.Present))
		case f.Prefix != "":
			value = mapping("prefix", text(f.Prefix))
		case f.Regex != nil:
			value = mapping("regex", text(f.Regex.String()))
		}
		n.Content = append(n.Content, text(f.Name), value)
	}
	return n
}

func keyNode(key []rules.KeySource) *yaml.Node {
	list := make([]*yaml.Node, len(key))
	for i, k := range key {
		list[i] = mapping("from", text(k.Source.String()), "as", textOrNil(k.As), "lower", trueOrNil(k.Lower),
			"trim", trueOrNil(k.Trim), "hash", trueOrNil(k.Hash))
	}
	return sequence(list)
}

func costNode(costs []rules.Cost) *yaml.Node {
	if len(costs) == 0 {
		return nil
	}
	list := make([]*yaml.Node, len(costs))
	for i := range costs {
		list[i] = mapping("match", matchNode(&costs[i].Match), "cost", number(costs[i].Cost))
	}
	if len(costs) == 1 && costs[0].Match.IsZero() {
		return number(costs[0].Cost)
	}
	return sequence(list)
}

func responseNode(r rules.Response) *yaml.Node {
	if r == (rules.Response{}) {
		return nil
	}
	n := mapping("title", textOrNil(r.Title), "headers", textOrNil(string(r.Headers)))
	if r.Status != 0 {
		n.Content = append(n.Content, text("status"), number(int64(r.Status)))
	}
	return n
}

// limitNodes are the keys limit or limits, and algorithm where the one limit has another than the usual one.
func limitNodes(limits []rules.Limit) []*yaml.Node {
	if len(limits) == 1 && limits[0].Name == "" {
		nodes := []*yaml.Node{text("limit"), limitNode(&limits[0])}
		if limits[0].Algorithm != rules.TokenBucket {
			nodes = append(nodes, text("algorithm"), text(string(limits[0].Algorithm)))
		}
		return nodes
	}
	list := make([]*yaml.Node, len(limits))
	for i := range limits {
		l := &limits[i]
		list[i] = mapping("name", text(l.Name), "limit", limitNode(l))
		if l.Algorithm != rules.TokenBucket {
			list[i].Content = append(list[i].Content, text("algorithm"), text(string(l.Algorithm)))
		}
	}
	return []*yaml.Node{text("limits"), sequence(list)}
}

func limitNode(l *rules.Limit) *yaml.Node {
	if l.By == nil {
		return text(l.Rate.String())
	}
	values := mapping()
	for _, value := range slices.Sorted(maps.Keys(l.Values)) {
		values.Content = append(values.Content, text(value), text(l.Values[value].String()))
	}
	return mapping("by", text(l.By.String()), "values", values, "default", text(l.Rate.String()))
}
