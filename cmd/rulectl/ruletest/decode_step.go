package ruletest

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// maxRepeat bounds the requests of one step.
const maxRepeat = 1_000_000

// step reads one step; known says whether the rules could be read.
func (d *decoder) step(n *yaml.Node, path string, t *Test, known bool) step {
	s := step{place: d.place(n), at: -1, repeat: 1}
	o, ok := d.mapping(n, path, "at", "request", "repeat", "every", "expect", "wouldRefuse")
	if !ok {
		return s
	}
	if n := o.get("at"); n != nil {
		s.at = d.duration(n, o.path+"at")
	}
	if n := o.get("every"); n != nil {
		s.every = d.duration(n, o.path+"every")
	}
	if n := o.get("repeat"); n != nil {
		if repeat, ok := d.integer(n, o.path+"repeat", 1, maxRepeat); ok {
			s.repeat = int(repeat)
			if s.every > longest/time.Duration(repeat) {
				d.fail(n, rulefile.CodeSize, o.path+"repeat", "the step goes on for more than 50 years")
			}
		}
	}
	if n, ok := d.required(o, "request"); ok {
		s.request = d.request(n, o.path+"request", t, known)
	}
	if n := o.get("expect"); n != nil {
		s.expect = d.expectation(n, o.path+"expect", s.repeat)
	}
	if n := o.get("wouldRefuse"); n != nil {
		s.wouldRefuse = d.ruleNames(n, o.path+"wouldRefuse", t, known)
	}
	return s
}

// longest bounds the time of a test, so that all its instants are exact.
const longest = 50 * 366 * 24 * time.Hour

// duration reads what Go reads, and numbers of the units of limits: 500ms, 1m30s, 5min, 2d.
func duration(text string) (time.Duration, error) {
	v, err := time.ParseDuration(text)
	if err != nil {
		rate, rateErr := rules.ParseRate("1/" + text)
		if rateErr != nil || strings.TrimLeft(text, "0123456789") == text {
			return 0, fmt.Errorf("%q is not a duration such as 500ms, 10s, 5min or 2d", text)
		}
		v = rate.Window
	}
	if v < 0 || v > longest || v%time.Microsecond != 0 {
		return 0, fmt.Errorf("%q is not from 0 to 50 years in whole microseconds", text)
	}
	return v, nil
}

func (d *decoder) duration(n *yaml.Node, path string) time.Duration {
	text, ok := d.scalar(n, path)
	if !ok {
		return 0
	}
	v, err := duration(text)
	if err != nil {
		d.fail(n, rulefile.CodeKind, path, "%s", err)
	}
	return v
}

func (d *decoder) request(n *yaml.Node, path string, t *Test, known bool) request {
	o, ok := d.mapping(n, path, "domain", "method", "path", "host", "ip", "header", "attr", "hits", "descriptors")
	if !ok {
		return request{}
	}
	domain := d.domain(o, t, known)
	hits := int64(1)
	if n := o.get("hits"); n != nil {
		hits, _ = d.integer(n, o.path+"hits", math.MinInt64, math.MaxInt64)
	}
	if n := o.get("descriptors"); n != nil {
		return d.descriptors(n, o, domain, hits)
	}
	return d.httpRequest(o, domain, hits)
}

// domain is the one the request names, or the only one there is.
func (d *decoder) domain(o object, t *Test, known bool) string {
	names := make([]string, len(t.sets))
	for i := range t.sets {
		names[i] = t.sets[i].Domain
	}
	n := o.get("domain")
	switch {
	case n != nil:
		name, ok := d.text(n, o.path+"domain")
		if ok && known && !slices.Contains(names, name) {
			d.fail(n, rulefile.CodeUnknown, o.path+"domain", "there is no domain %q; the rules have %s", name, strings.Join(names, ", "))
		}
		return name
	case len(names) == 1:
		return names[0]
	case known:
		d.fail(o.node, rulefile.CodeMissing, o.path+"domain", "the rules have several domains: name one of %s", strings.Join(names, ", "))
	}
	return ""
}

func (d *decoder) httpRequest(o object, domain string, hits int64) request {
	text := func(key, standard string) string {
		if n := o.get(key); n != nil {
			standard, _ = d.text(n, o.path+key)
		}
		return standard
	}
	r := &rules.Request{Domain: domain, Method: strings.ToUpper(text("method", "GET")), Host: rules.NormalizeHost(text("host", "")), Hits: hits}
	target := text("path", "/")
	made := request{summary: r.Method + " " + target, calls: []*rules.Request{r}}
	r.Path, r.RawQuery, _ = strings.Cut(target, "?")
	normal, err := rules.NormalizePath(r.Path)
	r.Path, made.invalid = normal, err != nil
	if n := o.get("ip"); n != nil {
		ip, err := netip.ParseAddr(n.Value)
		if err != nil {
			d.fail(n, rulefile.CodeKind, o.path+"ip", "%q is not an address", n.Value)
		}
		r.IP = ip.Unmap().WithZone("")
	}
	if n := o.get("header"); n != nil {
		r.Header = d.header(n, o.path+"header")
	}
	if hosts := r.Header["Host"]; len(hosts) > 0 { // as a server hands it on
		r.Host = rules.NormalizeHost(hosts[0])
		delete(r.Header, "Host")
	}
	if n := o.get("attr"); n != nil {
		r.Attr = d.entries(n, o.path+"attr")
	}
	return made
}

// header reads a mapping of names to a value or a list of values.
func (d *decoder) header(n *yaml.Node, path string) map[string][]string {
	header := map[string][]string{}
	o, _ := d.mapping(n, path)
	for _, key := range o.keys {
		values := []*yaml.Node{o.get(key.Value)}
		if values[0].Kind == yaml.SequenceNode {
			values = values[0].Content
		}
		name := textproto.CanonicalMIMEHeaderKey(key.Value)
		for _, v := range values {
			if text, ok := d.scalar(v, o.path+key.Value); ok {
				header[name] = append(header[name], text)
			}
		}
	}
	return header
}

func (d *decoder) entries(n *yaml.Node, path string) map[string]string {
	entries := map[string]string{}
	o, _ := d.mapping(n, path)
	for _, key := range o.keys {
		if text, ok := d.scalar(o.get(key.Value), o.path+key.Value); ok {
			entries[key.Value] = text
		}
	}
	return entries
}

func (d *decoder) descriptors(n *yaml.Node, o object, domain string, hits int64) request {
	for _, key := range o.keys {
		if !slices.Contains([]string{"descriptors", "domain", "hits"}, key.Value) {
			d.fail(key, rulefile.CodeBoth, o.path+key.Value, "a request has either descriptors or %s", key.Value)
		}
	}
	var made request
	var parts []string
	for i, e := range d.sequence(n, o.path+"descriptors") {
		entries := d.entries(e, index(o.path+"descriptors", i))
		made.calls = append(made.calls, rules.FromDescriptor(domain, entries, hits))
		var text []string
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			text = append(text, name+"="+entries[name])
		}
		parts = append(parts, "("+strings.Join(text, ", ")+")")
	}
	if n.Kind == yaml.SequenceNode && len(made.calls) == 0 {
		d.fail(n, rulefile.CodeMissing, o.path+"descriptors", "there is no descriptor")
	}
	made.summary = "descriptors " + strings.Join(parts, " ")
	return made
}

func (d *decoder) expectation(n *yaml.Node, path string, repeat int) expectation {
	if n.Kind == yaml.SequenceNode {
		if len(n.Content) != repeat {
			d.fail(n, rulefile.CodeKind, path, "the list has %d entries; repeat is %d", len(n.Content), repeat)
		}
		var e expectation
		for i, element := range n.Content {
			e.each = append(e.each, d.checks(element, index(path, i)))
		}
		return e
	}
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Value == "count" {
		o, _ := d.mapping(n, path, "count")
		return expectation{count: d.counts(o.get("count"), o.path+"count")}
	}
	return expectation{each: [][]check{d.checks(n, path)}}
}

func (d *decoder) counts(n *yaml.Node, path string) (list []check) {
	o, _ := d.mapping(n, path, allowed, refused)
	for _, key := range o.keys {
		if v, ok := d.integer(o.get(key.Value), o.path+key.Value, 0, maxRepeat); ok {
			list = append(list, check{key.Value, strconv.FormatInt(v, 10)})
		}
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.fail(n, rulefile.CodeMissing, path, "nothing is counted: give allowed, refused or both")
	}
	return list
}

// checks reads what one decision must be: a word, or fields.
func (d *decoder) checks(n *yaml.Node, path string) (list []check) {
	if n.Kind == yaml.ScalarNode {
		if word, ok := d.word(n, path, allowed, refused); ok {
			list = append(list, check{fieldDecision, word})
		}
		return list
	}
	o, _ := d.mapping(n, path, fields...)
	for _, field := range fields { // in the order in which differences are told
		if v := o.get(field); v != nil {
			if want, ok := d.want(field, v, o.path+field); ok {
				list = append(list, check{field, want})
			}
		}
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.fail(n, rulefile.CodeMissing, path, "nothing is expected: give one of %s", strings.Join(fields, ", "))
	}
	return list
}

var reasons = []string{
	string(enforce.ReasonOverLimit), string(enforce.ReasonCostExceedsLimit), string(enforce.ReasonMissingKey),
	string(enforce.ReasonMalformed), string(enforce.ReasonStoreUnavailable), none,
}

// want reads the value that a field must have, as the text it is compared by.
func (d *decoder) want(field string, n *yaml.Node, path string) (string, bool) {
	switch field {
	case fieldDecision:
		return d.word(n, path, allowed, refused)
	case fieldReason:
		return d.word(n, path, reasons...)
	case fieldRule, fieldLimit:
		text, ok := d.text(n, path)
		if text == "" {
			text = none
		}
		return text, ok
	}
	if n.Value == none {
		return none, true
	}
	v, ok := d.integer(n, path, 0, math.MaxInt64)
	return strconv.FormatInt(v, 10), ok
}
