package rulefile

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// canonical brings a mapping that has been decoded without a problem into canonical form: keys in the order of the
// reference, values in their own canonical form. Comments stay with what they belong to. A style of FlowStyle afterwards
// means that the node may be written on one line.
func canonical(n *yaml.Node, o *Object) {
	n.Style = yaml.FlowStyle
	pairs := make([][2]*yaml.Node, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, [2]*yaml.Node{n.Content[i], n.Content[i+1]})
	}
	names := o.names()
	slices.SortStableFunc(pairs, func(a, b [2]*yaml.Node) int {
		return slices.Index(names, a[0].Value) - slices.Index(names, b[0].Value)
	})
	n.Content = n.Content[:0]
	for _, pair := range pairs {
		if f, ok := o.field(pair[0].Value); ok {
			pair[1] = canonicalValue(pair[1], f)
		}
		n.Content = append(n.Content, pair[0], pair[1])
	}
}

func canonicalValue(n *yaml.Node, f Field) *yaml.Node {
	switch n.Kind {
	case yaml.ScalarNode:
		setScalar(n, canonicalScalar(f.Type, n.Value), f.Type)
		return n
	case yaml.SequenceNode:
		n.Style = yaml.FlowStyle
		for i, e := range n.Content {
			n.Content[i] = canonicalElement(e, f)
		}
		return alone(n, f)
	case yaml.MappingNode:
		if strings.HasPrefix(f.Type, "map of") {
			canonicalMap(n, f)
			return n
		}
		canonical(n, f.Object)
	}
	return n
}

// setScalar gives a node its value; numbers lose quotes that they do not need.
func setScalar(n *yaml.Node, value, fieldType string) {
	n.Value = value
	if strings.HasPrefix(fieldType, "number") {
		n.Tag, n.Style = "!!int", 0
	}
}

func canonicalElement(e *yaml.Node, f Field) *yaml.Node {
	if e.Kind != yaml.MappingNode {
		setScalar(e, canonicalScalar(f.Type, e.Value), f.Type)
		return e
	}
	canonical(e, f.Object)
	// {from: ip} says no more than ip.
	if f.Object == keyPartObject && len(e.Content) == 2 && e.Content[0].Value == "from" && !commented(e.Content[0]) && !commented(e.Content[1]) {
		from := e.Content[1]
		from.HeadComment, from.LineComment, from.FootComment = e.HeadComment, e.LineComment, e.FootComment
		return from
	}
	return e
}

// alone writes a list of one value as the value, where the reference allows both.
func alone(n *yaml.Node, f Field) *yaml.Node {
	if !strings.HasSuffix(f.Type, ", or list") && f.Type != "map of conditions" || len(n.Content) != 1 || commented(n.Content[0]) {
		return n
	}
	only := n.Content[0]
	only.HeadComment, only.LineComment, only.FootComment = n.HeadComment, n.LineComment, n.FootComment
	return only
}

// canonicalMap is for mappings with free keys, whose order is the author's.
func canonicalMap(n *yaml.Node, f Field) {
	n.Style = yaml.FlowStyle
	for i := 0; i+1 < len(n.Content); i += 2 {
		if f.Name == "header" {
			n.Content[i].Value = strings.ToLower(n.Content[i].Value)
		}
		switch value := n.Content[i+1]; value.Kind {
		case yaml.MappingNode:
			canonical(value, f.Object)
		case yaml.SequenceNode:
			n.Content[i+1] = canonicalValue(value, f)
		default:
			value.Value = canonicalScalar(f.Type, value.Value)
		}
	}
}

func commented(n *yaml.Node) bool {
	return n.HeadComment != "" || n.LineComment != "" || n.FootComment != ""
}

// commentedBelow reports a comment on any part of the node, which then cannot be written on one line.
func commentedBelow(n *yaml.Node) bool {
	return slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return commented(c) || commentedBelow(c) })
}
