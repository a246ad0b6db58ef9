package ui

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// words are the functions of the templates.
var words = template.FuncMap{
	"asset":      asset,
	"count":      func(n any) string { return tally.Thousands(whole(n)) },
	"short":      func(n any) string { return short(float64(whole(n))) },
	"percent":    tally.Percent,
	"keys":       keyShare, // of hundredths of a percent
	"interval":   interval,
	"when":       when,
	"ago":        ago,
	"lasting":    lasting,
	"rulepath":   rulePath,
	"targetpath": targetPath,
	"nodepath":   nodePath,
	"keyhash":    keyHash,
	"domainOf":   domainOf,
	"word":       word,
	"brief":      brief,
	"prev":       func(n int64) int64 { return n - 1 },
	"lasted":     lasted,
	"behind":     behind,
	"stands":     stands,
	"dict":       dict,
	"join":       strings.Join,
	"add":        func(a, b int) int { return a + b },
}

// whole takes the numbers that messages have.
func whole(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case uint32:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// short is a number with three digits that say something: 792k.
func short(n float64) string {
	for _, unit := range []struct {
		above, of float64 // what rounds to a thousand has the next unit
		name      string
	}{{999.5e6, 1e9, "G"}, {999.5e3, 1e6, "M"}, {1e4, 1e3, "k"}} {
		switch {
		case n >= 999.5*unit.of:
			return tally.Thousands(int64(n/unit.of)) + unit.name
		case n >= unit.above:
			return strconv.FormatFloat(n/unit.of, 'g', 3, 64) + unit.name
		}
	}
	return tally.Thousands(int64(n))
}

// keyShare is a share of keys, in hundredths of a percent as messages have it.
func keyShare(n uint32) string { return rules.Percent(n).String() }

// interval is a share with what it surely is: 0.4% (95%: 0.37% to 0.43%).
func interval(i *adminpb.Interval) string {
	if i == nil {
		return "–"
	}
	return fmt.Sprintf("%s (95%%: %s to %s)", tally.Percent(i.GetEstimate()), tally.Percent(i.GetLow()), tally.Percent(i.GetHigh()))
}

// when is a time in UTC, which the script of the page makes local.
func when(t any) template.HTML { return timeElement(t, "2006-01-02 15:04:05 UTC", "") }

// ago is a time of which the script says how long ago it was, or how long it is until then.
func ago(t any) template.HTML { return timeElement(t, "2006-01-02 15:04 UTC", " data-ago") }

func timeElement(t any, layout, more string) template.HTML {
	var at time.Time
	switch t := t.(type) {
	case time.Time:
		at = t
	case *timestamppb.Timestamp:
		if t != nil {
			at = t.AsTime()
		}
	}
	if at.IsZero() {
		return "–"
	}
	at = at.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s"%s>%s</time>`, //nolint:gosec // made of a time alone
		at.Format(time.RFC3339), at.Format("2006-01-02 15:04:05 UTC"), more, at.Format(layout)))
}

// lasting is a length of time in its two largest units: 2h 5m.
func lasting(d time.Duration) string {
	d = d.Round(time.Second)
	if d < 0 {
		return "–"
	}
	var parts []string
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.of; n > 0 && len(parts) < 2 {
			parts = append(parts, fmt.Sprintf("%d%s", n, unit.name))
			d -= n * unit.of
		}
	}
	if len(parts) == 0 {
		return "0s"
	}
	return strings.Join(parts, " ")
}

// rulePath is the address of a rule's page.
func rulePath(domain, rule string) string { return "/d/" + domain + "/r/" + rule }

// aWord is how many bytes a name has at most to be kept in one line.
const aWord = 24

// word keeps a name in one line, since browsers break it at its hyphens: in the narrow column of a table, api-key-plan would
// be three lines. A long one is broken all the same.
func word(name string) template.HTML {
	text := template.HTMLEscapeString(name)
	if len(name) > aWord {
		return template.HTML(text) //nolint:gosec // escaped
	}
	return template.HTML(`<span class="word">` + text + `</span>`) //nolint:gosec // escaped
}

// dict hands several values to a template that others share.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d values are no pairs", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
