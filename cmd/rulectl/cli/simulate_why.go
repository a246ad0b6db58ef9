package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// ruleReason says whether a rule applies to a request, and why not.
type ruleReason struct {
	rule    *rules.Rule
	applies bool
	why     string
}

// reasonsOf explains a decision rule by rule. Which rules apply is read off the decision; only the words are made here.
func reasonsOf(list []*rules.Rule, req *rules.Request, d *enforce.Decision) []ruleReason {
	applied := map[*rules.Rule]bool{}
	for i := range d.Outcomes {
		applied[d.Outcomes[i].Rule] = true
	}
	reasons := make([]ruleReason, len(list))
	for i, r := range list {
		spec := &r.Stable.Spec
		reasons[i] = ruleReason{rule: r, applies: applied[r]}
		switch {
		case applied[r]:
			reasons[i].why = rules.Summary(spec)
		case d.Exempt != "":
			reasons[i].why = fmt.Sprintf("the request is exempt: %s", d.Exempt)
		default:
			reasons[i].why = whyNot(spec, req)
		}
	}
	return reasons
}

// whyNot names the first part of a spec that the request does not meet, with what the request has in its place.
func whyNot(s *rules.Spec, req *rules.Request) string {
	m := &s.Match
	for _, part := range []struct {
		only rules.Match
		has  string
	}{
		{rules.Match{Method: m.Method}, "the method is " + orNothing(req.Method)},
		{rules.Match{Host: m.Host}, "the host is " + orNothing(req.Host)},
		{rules.Match{Path: m.Path}, "the path is " + req.Path},
		{rules.Match{GRPC: m.GRPC}, "it is not such a gRPC call"},
		{rules.Match{ClientIP: m.ClientIP}, "the address is " + addressText(req)},
		{rules.Match{Header: m.Header}, "the headers are others"},
		{rules.Match{Query: m.Query}, "the query is " + orNothing(req.RawQuery)},
		{rules.Match{Attr: m.Attr}, "the attributes are others"},
		{rules.Match{Not: m.Not}, "it is what the rule leaves out"},
	} {
		if !part.only.Matches(req) {
			return fmt.Sprintf("%s; it asks for %s", part.has, matchText(&part.only))
		}
	}
	if matches, _ := s.Matches(req); !matches {
		return "its expression (when) is false"
	}
	if rules.KeyOf(s, req).Missing() {
		var names []string
		for i := range s.Key {
			names = append(names, s.Key[i].Label())
		}
		return fmt.Sprintf("a value of its key (%s) is missing, and missingKey is skip", strings.Join(names, ", "))
	}
	return "it does not match"
}

func orNothing(text string) string {
	if text == "" {
		return "not given"
	}
	return text
}

func addressText(req *rules.Request) string {
	if !req.IP.IsValid() {
		return "not given"
	}
	return req.IP.String()
}

// matchText is a part of a match as a rule file would say it, in JSON.
func matchText(m *rules.Match) string {
	text, err := json.Marshal(m)
	if err != nil {
		return "something else"
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(text), "{"), "}")
}
