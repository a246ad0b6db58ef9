package rulefile

import (
	"net/netip"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// matchReader reads matches of one rule or exemption, and remembers where their parts stand, by the paths that package
// rules uses.
type matchReader struct {
	*decoder
	places places
}

// read returns the match; path is its path in the file, name the one that package rules uses.
func (m *matchReader) read(n *yaml.Node, path, name string) rules.Match {
	var match rules.Match
	o, ok := m.object(n, path, matchObject)
	if !ok {
		return match
	}
	match.Method = m.list(o, name, "method", strings.ToUpper)
	match.Host = m.list(o, name, "host", strings.ToLower)
	match.Path = m.list(o, name, "path", nil)
	match.GRPC = m.list(o, name, "grpc", nil)
	match.ClientIP = m.networks(o, name)
	match.Header = m.conditions(o, name, "header", strings.ToLower)
	match.Query = m.conditions(o, name, "query", nil)
	match.Attr = m.conditions(o, name, "attr", nil)
	if n := o.values["not"]; n != nil {
		m.put(name+".not", spot{o.path + "not", n})
		not := m.read(n, o.path+"not", name+".not")
		match.Not = &not
	}
	return match
}

func (m *matchReader) put(name string, at spot) { m.places.put(name, at, m.file) }

// list reads one text or several. Where case does not matter, normal brings them into the form that is matched.
func (m *matchReader) list(o object, name, key string, normal func(string) string) []string {
	n := o.values[key]
	if n == nil {
		return nil
	}
	m.put(name+"."+key, spot{o.path + key, n})
	texts, at := m.texts(n, o.path+key)
	for i := range texts {
		m.put(index(name+"."+key, i), at[i])
		if normal != nil {
			texts[i] = normal(texts[i])
		}
	}
	return texts
}

func (m *matchReader) networks(o object, name string) []netip.Prefix {
	n := o.values["clientIP"]
	if n == nil {
		return nil
	}
	m.put(name+".clientIP", spot{o.path + "clientIP", n})
	texts, at := m.texts(n, o.path+"clientIP")
	list := make([]netip.Prefix, 0, len(texts))
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			m.problem(at[i].node, rules.CodeMatch, at[i].path, "%q is not a CIDR%s", shorten(text), oneAddress(text))
			continue
		}
		m.put(index(name+".clientIP", len(list)), at[i])
		list = append(list, p)
	}
	return list
}

// oneAddress is the end of a message about an address where a CIDR belongs.
func oneAddress(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" {
		return `, such as 10.0.0.0/8 or 2001:db8::/32`
	}
	return ": for this one address write " + netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()).String()
}

// conditions reads a map of names to conditions.
func (m *matchReader) conditions(o object, name, key string, normal func(string) string) rules.FieldMatches {
	n := o.values[key]
	if n == nil {
		return nil
	}
	m.put(name+"."+key, spot{o.path + key, n})
	found := map[string]rules.ValueMatch{}
	for _, e := range m.entries(n, o.path+key, "a mapping of names to conditions") {
		field := e.name
		if normal != nil {
			field = normal(field)
		}
		if _, twice := found[field]; twice {
			m.problem(e.key, CodeAgain, e.path, "%q is named twice: case does not matter here", e.name)
			continue
		}
		if v, ok := m.condition(e.value, e.path); ok {
			m.put(name+"."+key+"."+field, spot{e.path, e.key})
			found[field] = v
		}
	}
	if len(n.Content) == 0 && n.Kind == yaml.MappingNode {
		m.problem(n, CodeKind, o.path+key, "the mapping is empty: leave %s out where it should not matter", key)
	}
	if len(found) == 0 {
		return nil
	}
	return rules.NewFieldMatches(found)
}

// condition reads one condition: a text, a list of texts, or a mapping with one key.
func (m *matchReader) condition(n *yaml.Node, path string) (rules.ValueMatch, bool) {
	var v rules.ValueMatch
	if n.Kind != yaml.MappingNode {
		texts, _ := m.texts(n, path)
		v.In = texts
		return v, len(texts) > 0
	}
	o, ok := m.object(n, path, conditionObject)
	if !ok {
		return v, false
	}
	if len(o.values) != 1 {
		if len(o.meant) == 0 {
			m.problem(n, rules.CodeMatch, path, "a condition has exactly one of the keys %s", strings.Join(conditionObject.names(), ", "))
		}
		return v, false
	}
	if n := o.values["present"]; n != nil {
		is, ok := m.truth(n, o.path+"present")
		v.Present = &is
		return v, ok
	}
	if n := o.values["prefix"]; n != nil {
		v.Prefix, ok = m.text(n, o.path+"prefix", maxText)
		if ok && v.Prefix == "" {
			m.problem(n, rules.CodeMatch, o.path+"prefix", "every value has the empty prefix: write {present: true}")
		}
		return v, ok && v.Prefix != ""
	}
	v.Regex, ok = m.regex(o.values["regex"], o.path+"regex")
	return v, ok
}

func (m *matchReader) regex(n *yaml.Node, path string) (*rules.Regex, bool) {
	text, ok := m.text(n, path, maxText)
	if !ok {
		return nil, false
	}
	if text == "" {
		m.problem(n, rules.CodeMatch, path, "every value matches the empty expression: write {present: true}")
		return nil, false
	}
	re, err := m.programs.regex(text)
	if err != nil {
		m.problem(n, rules.CodeMatch, path, "%s", err)
		return nil, false
	}
	return re, true
}
