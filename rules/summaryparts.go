package rules

import (
	"net/netip"
	"strconv"
	"strings"
)

// scopeWords says which requests a spec is for; "" for all.
func scopeWords(s *Spec) string {
	text := matchWords(&s.Match)
	if rest, ok := strings.CutPrefix(text, allBut); ok {
		return "All but " + rest
	}
	if text != "" {
		text = "Only " + text
	}
	return text
}

const allBut = "all but "

func matchWords(m *Match) string {
	var parts []string
	switch {
	case len(m.Method) > 0 && len(m.Path) > 0:
		parts = append(parts, listWords(m.Method, "or")+" "+listWords(m.Path, "or"))
	case len(m.Method) > 0:
		parts = append(parts, listWords(m.Method, "or"))
	case len(m.Path) > 0:
		parts = append(parts, listWords(m.Path, "or"))
	}
	if len(m.Host) > 0 {
		parts = append(parts, "on "+listWords(m.Host, "or"))
	}
	if len(m.GRPC) > 0 {
		parts = append(parts, "gRPC "+listWords(m.GRPC, "or"))
	}
	if len(m.ClientIP) > 0 {
		networks := make([]string, len(m.ClientIP))
		for i, p := range m.ClientIP {
			networks[i] = p.String()
			if p.Bits() == p.Addr().BitLen() && p.Addr() != (netip.Addr{}) {
				networks[i] = p.Addr().String()
			}
		}
		parts = append(parts, "from "+listWords(networks, "or"))
	}
	for _, group := range []struct {
		noun   string
		fields FieldMatches
	}{{"header ", m.Header}, {"parameter ", m.Query}, {"", m.Attr}} {
		for _, f := range group.fields {
			parts = append(parts, conditionWords(group.noun+f.Name, &f.ValueMatch))
		}
	}
	switch {
	case m.Not != nil && len(parts) == 0:
		return allBut + matchWords(m.Not)
	case m.Not != nil:
		parts = append(parts, "but not "+matchWords(m.Not))
	}
	return strings.Join(parts, ", ")
}

func conditionWords(name string, v *ValueMatch) string {
	switch {
	case v.Present != nil && *v.Present:
		return "with " + name
	case v.Present != nil:
		return "without " + name
	case v.Prefix != "":
		return "with " + name + " beginning with " + strconv.Quote(v.Prefix)
	case v.Regex != nil:
		return "with " + name + " matching " + strconv.Quote(v.Regex.String())
	}
	values := make([]string, len(v.In))
	for i, value := range v.In {
		values[i] = valueWords(value)
	}
	return "with " + name + " " + listWords(values, "or")
}

// valueWords quotes what could not be told from the words around it.
func valueWords(value string) string {
	if value == "" || strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./@") != "" {
		return strconv.Quote(value)
	}
	return value
}

// costWords says what a call costs, where that is not 1.
func costWords(s *Spec) []string {
	if unit(s) == "call" {
		return nil
	}
	var b strings.Builder
	b.WriteString("A call costs ")
	rest := true // whether some requests cost the default
	for i := range s.Cost {
		c := &s.Cost[i]
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case !c.Match.IsZero():
			b.WriteString(grouped(c.Cost) + " (" + matchWords(&c.Match) + ")")
		case i > 0:
			b.WriteString("otherwise " + grouped(c.Cost))
			rest = false
		default:
			b.WriteString(grouped(c.Cost))
			rest = false
		}
	}
	if rest {
		b.WriteString(", otherwise 1")
	}
	sentences := []string{b.String()}
	for i := range s.Cost {
		if s.Cost[i].Cost == 0 {
			return append(sentences, "Cost 0 looks without spending")
		}
	}
	return sentences
}

// missingWords says what a request without a value of the key gets. Unless the spec says it, only what an HTTP request
// can be without is spoken of.
func missingWords(s *Spec) string {
	var parts []string
	for _, k := range s.Key {
		switch k.kind {
		case sourceHeader, sourceQuery, sourceCookie, sourceAttr, sourcePathParam:
			parts = append(parts, partWords(k))
		default:
			if s.MissingKey != MissingDefault {
				parts = append(parts, partWords(k))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	shared := "one counter for all of them"
	if len(s.Key) > 1 {
		shared = "counted as if all of them had the same"
	}
	without := "Without " + listWords(parts, "or") + ": "
	switch s.MissingKey {
	case MissingShared:
		return without + shared
	case MissingSkip:
		return without + "not limited by this rule"
	case MissingRefuse:
		return without + "refused"
	}
	return without + shared + "; descriptors are not limited by this rule"
}

func responseWords(r Response) string {
	var parts []string
	if r.StatusCode() != DefaultStatus || r.Title != "" {
		text := "Refuses with " + strconv.Itoa(r.StatusCode())
		if r.Title != "" {
			text += " " + r.Title
		}
		parts = append(parts, text)
	}
	switch r.Headers {
	case HeadersNone:
		parts = append(parts, "Tells callers nothing about the limit")
	case HeadersLegacy:
		parts = append(parts, "Tells callers in X-RateLimit headers")
	case HeadersBoth:
		parts = append(parts, "Tells callers in RateLimit and X-RateLimit headers")
	}
	return strings.Join(parts, ". ")
}
