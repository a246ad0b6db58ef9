package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Summary says in plain words what a spec means: "Each API key: 600 calls a minute, bursts to 1,200". What is as usual is
// left out; each other part is one more sentence. It is made from the spec, so it cannot say something else than what is
// enforced.
func Summary(s *Spec) string {
	sentences := []string{subject(s.Key) + ": " + limitWords(s)}
	if scope := scopeWords(s); scope != "" {
		sentences = append(sentences, scope)
	}
	if s.When != nil {
		sentences = append(sentences, "Only when "+s.When.String())
	}
	if s.Exact {
		sentences = append(sentences, "Only descriptors without entries that the rule does not name, and HTTP requests")
	}
	sentences = append(sentences, costWords(s)...)
	if text := missingWords(s); text != "" {
		sentences = append(sentences, text)
	}
	switch s.Failure.Mode {
	case FailOpen:
	case FailClosed:
		sentences = append(sentences, "While the store is away, refuses all")
	case FailLocal:
		sentences = append(sentences, "While the store is away, each sidecar counts alone: "+rateWords(s.Failure.Local, TokenBucket, unit(s)))
	}
	if text := responseWords(s.Response); text != "" {
		sentences = append(sentences, text)
	}
	return strings.Join(sentences, ". ")
}

// subject says whose calls share a counter.
func subject(key []KeySource) string {
	if len(key) == 0 {
		return "All callers together"
	}
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = partWords(k)
	}
	if len(parts) == 1 {
		return "Each " + parts[0]
	}
	return "Each combination of " + listWords(parts, "and")
}

func partWords(k KeySource) string {
	text := sourceWords(k.Source)
	if k.As != "" {
		text = k.As
	}
	return text
}

func sourceWords(s Source) string {
	switch s.kind {
	case sourceIP:
		if s.prefix < 128 {
			return fmt.Sprintf("client address (IPv6 by /%d)", s.prefix)
		}
		return "client address"
	case sourceMethod:
		return "method"
	case sourceHost:
		return "host"
	case sourcePath:
		return "path"
	case sourcePathParam:
		return s.name + " in the path"
	case sourceHeader:
		switch s.name {
		case "x-api-key":
			return "API key"
		case "authorization":
			return "credential"
		}
		return s.name + " header"
	case sourceQuery:
		return s.name + " parameter"
	case sourceCookie:
		return s.name + " cookie"
	case sourceAttr:
		return s.name
	}
	return ""
}

// unit is what a limit counts: calls, where each costs 1.
func unit(s *Spec) string {
	for _, c := range s.Cost {
		if c.Cost != 1 {
			return "unit"
		}
	}
	return "call"
}

func limitWords(s *Spec) string {
	parts := make([]string, len(s.Limits))
	for i := range s.Limits {
		parts[i] = planWords(&s.Limits[i], unit(s))
		if len(s.Limits) > 1 {
			parts[i] += " (" + s.Limits[i].Name + ")"
		}
	}
	separator := ", and "
	for i := range s.Limits {
		if s.Limits[i].By != nil {
			separator = "; and "
		}
	}
	return strings.Join(parts, separator)
}

func planWords(l *Limit, unit string) string {
	if l.By == nil {
		return rateWords(l.Rate, l.Algorithm, unit)
	}
	parts := make([]string, 0, len(l.Values)+1)
	for _, value := range sortedValues(l.Values) {
		if value == "" {
			parts = append(parts, `empty: `+rateWords(l.Values[value], l.Algorithm, unit))
			continue
		}
		parts = append(parts, value+": "+rateWords(l.Values[value], l.Algorithm, unit))
	}
	parts = append(parts, "any other: "+rateWords(l.Rate, l.Algorithm, unit))
	return "by " + sourceWords(*l.By) + ", " + strings.Join(parts, "; ")
}

func rateWords(r Rate, a Algorithm, unit string) string {
	switch {
	case r.Unlimited:
		return "no limit"
	case r.Amount == 0:
		return "always refused"
	}
	text := grouped(r.Amount) + " " + unit
	if r.Amount != 1 {
		text += "s"
	}
	if a == SlidingWindow {
		return "about " + text + " in any " + spanWords(r.Window, false)
	}
	text += " " + spanWords(r.Window, true)
	switch {
	case r.Burst > r.Amount:
		text += ", bursts to " + grouped(r.Burst)
	case r.Burst < r.Amount:
		text += ", at most " + grouped(r.Burst) + " at once"
	}
	return text
}

// spanWords is "a minute" or "every 15 minutes" for a rate, and "minute" or "15 minutes" otherwise.
func spanWords(w time.Duration, rate bool) string {
	length, name := time.Second, "second"
	switch {
	case w%(24*time.Hour) == 0:
		length, name = 24*time.Hour, "day"
	case w%time.Hour == 0:
		length, name = time.Hour, "hour"
	case w%time.Minute == 0:
		length, name = time.Minute, "minute"
	}
	n := int64(w / length)
	switch {
	case n != 1 && rate:
		return "every " + grouped(n) + " " + name + "s"
	case n != 1:
		return grouped(n) + " " + name + "s"
	case rate && name == "hour":
		return "an hour"
	case rate:
		return "a " + name
	}
	return name
}

// grouped writes a number with a comma between each three digits.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// listWords joins words: "a, b and c".
func listWords(list []string, and string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " " + and + " " + list[len(list)-1]
}
