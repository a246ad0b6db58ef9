package rulefile_test

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// Decode reads from what Format writes the same rule set, whatever it is.
func TestFormatThenDecodeIsIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		set := drawSet(r)
		written := rulefile.Format(set)
		again, err := rulefile.Decode("f", written)
		if err != nil || len(again) != 1 {
			r.Fatalf("%v\n%s", err, written)
		}
		wantSameSet(t, again[0], set)
		wantCanonical(t, "f", written)
	})
}

// Words that are awkward in YAML.
var (
	words = rapid.OneOf(
		rapid.SampledFrom([]string{
			"", " ", "a", "yes", "Null", "~", "1", "1.5", "0x10", "1e3", "12:30", "2024-01-01", "- a", "a: b", "a #b", "#", "&a", "*a", "!t", "%", "@", "`", "|", ">",
			"{a}", "[a]", "a,b", "it's", `say "x"`, `back\slash`, "é", "🚦", "a:", "?", "? a", "=", "<<", "---", "...", "true", ".inf", "-", "a ", " a", "\u00a0", "\u2028", "\ufeff",
		}),
		rapid.StringMatching(`[ -~é\x{ad}\x{feff}\x{e0001}]{0,12}`),
	)
	lines = rapid.OneOf(words, rapid.SampledFrom([]string{"a\nb", "a\n", "\na", "a\n\nb\n", "a\n b\n\n", " a\nb", "a\t\nb", "a \nb", "# a\n# b"}))
	name  = rapid.StringMatching(`[a-z0-9-]{1,12}`)
)

func drawSet(r *rapid.T) rulefile.RuleSet {
	set := rulefile.RuleSet{Domain: name.Draw(r, "domain"), Owner: lines.Draw(r, "owner")}
	if rapid.Bool().Draw(r, "sharded") {
		s := drawSource(r)
		set.Shard = &s
	}
	for i, n := range rapid.SliceOfNDistinct(name, 0, 2, rapid.ID).Draw(r, "exempt") {
		m := drawMatch(r, 1)
		if m.IsZero() || i > 2 {
			m.Method = []string{"GET"}
		}
		set.Exempt = append(set.Exempt, rules.Exemption{Name: n, Match: m})
	}
	for i, n := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(r, "rules") {
		s := drawSpec(r)
		s.Response.Title = string(rune('a' + i)) // no two rules are the same
		set.Rules = append(set.Rules, rulefile.Rule{Name: n, Spec: s})
	}
	return set
}

func drawSource(r *rapid.T) rules.Source {
	text := rapid.SampledFrom([]string{"ip", "ip/64", "method", "host", "path", "header:x-api-key", "query:a b", "query:{x}", "cookie:s:d", "attr:tenant", "attr:#"}).Draw(r, "source")
	s, err := rules.ParseSource(text)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func drawSpec(r *rapid.T) rules.Spec {
	s := rules.Spec{
		Description: lines.Draw(r, "description"), Owner: lines.Draw(r, "owner"), Match: drawMatch(r, 1),
		Exact: rapid.Bool().Draw(r, "exact"), Key: []rules.KeySource{},
		MissingKey: rapid.SampledFrom([]rules.MissingKey{"", "shared", "skip", "refuse"}).Draw(r, "missing"),
		Response: rules.Response{
			Status:  rapid.SampledFrom([]int{0, 400, 599}).Draw(r, "status"),
			Headers: rapid.SampledFrom([]rules.Headers{"", "legacy", "both", "none"}).Draw(r, "headers"),
		},
		Failure: rapid.SampledFrom([]rules.Failure{
			{}, {Mode: rules.FailClosed}, {Mode: rules.FailLocal, Local: rules.Rate{Amount: 20_000, Window: time.Second, Burst: 20_000}},
		}).Draw(r, "failure"),
	}
	if rapid.Bool().Draw(r, "labelled") {
		s.Labels = map[string]string{rapid.StringMatching(`[a-zA-Z0-9][a-z0-9_./-]{0,5}`).Draw(r, "label"): lines.Draw(r, "value")}
	}
	if text := rapid.SampledFrom([]string{"", `method == "GET"`, "method == \"GET\" &&\n  path != \"#\"\n", "true", `header("x") == '{a}: b'`}).Draw(r, "when"); text != "" {
		var err error
		if s.When, err = rules.ParseWhen(text); err != nil {
			r.Fatal(err)
		}
	}
	seen := map[rules.Source]bool{}
	for range rapid.IntRange(0, 3).Draw(r, "parts") {
		k := rules.KeySource{Source: drawSource(r), Lower: rapid.Bool().Draw(r, "lower"), Trim: rapid.Bool().Draw(r, "trim"), Hash: rapid.Bool().Draw(r, "hash")}
		if rapid.Bool().Draw(r, "named") {
			k.As = name.Draw(r, "as")
		}
		if !seen[k.Source] {
			s.Key, seen[k.Source] = append(s.Key, k), true
		}
	}
	for range rapid.IntRange(0, 2).Draw(r, "costs") {
		s.Cost = append(s.Cost, rules.Cost{Match: rules.Match{Path: []string{"/x"}}, Cost: rapid.Int64Range(0, 99).Draw(r, "cost")})
	}
	s.Limits = drawLimits(r)
	return s
}

func drawLimits(r *rapid.T) []rules.Limit {
	draw := func() rules.Limit {
		window := rapid.SampledFrom([]time.Duration{time.Second, 90 * time.Second, time.Hour, 24 * time.Hour}).Draw(r, "window")
		rate := func(amount int64) rules.Rate { return rules.Rate{Amount: amount, Window: window, Burst: amount} }
		l := rules.Limit{
			Algorithm: rapid.SampledFrom([]rules.Algorithm{rules.TokenBucket, rules.SlidingWindow}).Draw(r, "algorithm"),
			Rate:      rapid.SampledFrom([]rules.Rate{rate(100), rate(12_345), rate(0), {Unlimited: true}}).Draw(r, "rate"),
		}
		if rapid.Bool().Draw(r, "by") {
			s := drawSource(r)
			l.By, l.Values = &s, map[string]rules.Rate{words.Draw(r, "plan"): rate(100), "x": {Unlimited: true}}
		}
		return l
	}
	if rapid.Bool().Draw(r, "one") {
		return []rules.Limit{draw()}
	}
	var list []rules.Limit
	for _, n := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(r, "limits") {
		l := draw()
		l.Name = n
		list = append(list, l)
	}
	return list
}

func drawMatch(r *rapid.T, depth int) rules.Match {
	some := func(label string, values ...string) []string {
		if rapid.Bool().Draw(r, label) {
			return nil
		}
		return rapid.SliceOfN(rapid.SampledFrom(values), 1, 3).Draw(r, label)
	}
	m := rules.Match{
		Method: some("method", "GET", "POST"), Host: some("host", "a.example", "127.0.0.1", "[::1]"), Path: some("path", "/", "/*", "/v1/{id}/x", "/a:b", "/%20", "/a,b"),
		GRPC: some("grpc", "a.B/C", "a.B/*"), Header: drawFields(r, "x-a", "x-b"), Query: drawFields(r, "a b", "#", "{}"), Attr: drawFields(r, "tenant", ": "),
	}
	if rapid.Bool().Draw(r, "networks") {
		m.ClientIP = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}
	}
	if depth > 0 && rapid.Bool().Draw(r, "not") {
		if not := drawMatch(r, 0); !not.IsZero() {
			m.Not = &not
		}
	}
	return m
}

func drawFields(r *rapid.T, names ...string) rules.FieldMatches {
	found := map[string]rules.ValueMatch{}
	for _, n := range names {
		yes := rapid.Bool().Draw(r, "present")
		re, err := rules.ParseRegex(`^v\d+$`)
		if err != nil {
			r.Fatal(err)
		}
		switch rapid.IntRange(0, 5).Draw(r, "kind") {
		case 0:
			found[n] = rules.ValueMatch{In: rapid.SliceOfN(words, 1, 3).Draw(r, "in")}
		case 1:
			found[n] = rules.ValueMatch{Present: &yes}
		case 2:
			found[n] = rules.ValueMatch{Prefix: words.Filter(func(s string) bool { return s != "" }).Draw(r, "prefix")}
		case 3:
			found[n] = rules.ValueMatch{Regex: re}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return rules.NewFieldMatches(found)
}
