package rules

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func limited(t *testing.T, rates ...string) *Spec {
	t.Helper()
	s := &Spec{Key: []KeySource{}}
	for i, text := range rates {
		rate, err := ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Limits = append(s.Limits, Limit{Name: string(rune('a' + i)), Algorithm: TokenBucket, Rate: rate})
	}
	return s
}

func TestCompareLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		warns         bool
	}{
		{"60/min", "60/min", false},
		{"60/min", "599/min", false},
		{"60/min", "600/min", true},
		{"600/min", "60/min", true},
		{"600/min", "61/min", false},
		{"1/s", "60/min", false}, // as fast, but sixty may come at once: below
		{"10/s burst 10", "600/min burst 10", false},
		{"60/min", "60/min burst 600", true},
		{"60/min burst 600", "60/min burst 60", true},
		{"60/min", "unlimited", true},
		{"unlimited", "60/min", true},
		{"unlimited", "unlimited", false},
		{"60/min", "0/s", true},
		{"0/s", "1/d", true},
		{"0/s", "0/min", false},
		{"34000000000/d", "3400000000/d", true},
	} {
		before, after := limited(t, c.before), limited(t, c.after)
		got := CompareLimits(before, after)
		want := c.warns || c.before == "1/s" && c.after == "60/min" // burst 1 against 60
		if (len(got) > 0) != want {
			t.Errorf("%s to %s: got %v, want a warning: %v", c.before, c.after, got, want)
		}
		for _, p := range got {
			if p.Code != WarnTenfold || !p.Warning || p.Path != "limits[0].rate" {
				t.Errorf("got %+v", p)
			}
		}
	}
}

func TestCompareLimitsOfPlans(t *testing.T) {
	t.Parallel()
	by, err := ParseSource("attr:plan")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(rates map[string]string) *Spec {
		s := limited(t, "60/min")
		s.Limits[0].By, s.Limits[0].Values = &by, map[string]Rate{}
		for value, text := range rates {
			s.Limits[0].Values[value] = limited(t, text).Limits[0].Rate
		}
		return s
	}
	before := plan(map[string]string{"pro": "6000/min", "free": "60/min"})
	for _, c := range []struct {
		after map[string]string
		paths string
	}{
		{map[string]string{"pro": "6000/min", "free": "60/min"}, ""},
		{map[string]string{"pro": "600/min", "free": "60/min"}, "limits[0].values.pro"},
		{map[string]string{"free": "60/min"}, "limits[0].values"}, // pro falls to the default
		{map[string]string{"pro": "6000/min", "new": "600/min"}, "limits[0].values.new"},
	} {
		var paths []string
		for _, p := range CompareLimits(before, plan(c.after)) {
			paths = append(paths, p.Path)
		}
		if got := strings.Join(paths, " "); got != c.paths {
			t.Errorf("%v: warnings at %q, want %q", c.after, got, c.paths)
		}
	}
	// Limits that are new or gone are for the diff to show.
	if got := CompareLimits(limited(t, "1/s", "100/s"), limited(t, "1/s")); len(got) > 0 {
		t.Errorf("a limit that is gone: got %v", got)
	}
}

// What covers says is certain: no request meets the inner match and not the outer one.
func TestCoversIsNeverWrong(t *testing.T) {
	t.Parallel()
	certain := 0
	rapid.Check(t, func(r *rapid.T) {
		outer, inner := drawMatch(r, 1), drawMatch(r, 1)
		if !covers(&outer, &inner) {
			return
		}
		certain++
		for range 20 {
			req := drawRequest(r)
			if inner.Matches(req) && !outer.Matches(req) {
				r.Fatalf("%+v meets %+v and not %+v, which covers it", req, inner, outer)
			}
		}
	})
	if certain == 0 {
		t.Error("no drawn match covers another: the property says nothing")
	}
}

func drawMatch(r *rapid.T, depth int) Match {
	some := func(label string, values ...string) []string {
		if rapid.IntRange(0, 2).Draw(r, label) > 0 {
			return nil
		}
		return rapid.SliceOfN(rapid.SampledFrom(values), 1, 2).Draw(r, label)
	}
	m := Match{
		Method: some("method", "GET", "POST"),
		Path:   some("path", "/*", "/a/*", "/a/b", "/a", "/{x}/b", "/{x}/*", "/{x}/{y}", "/a/", "/a/b/*"),
	}
	if rapid.IntRange(0, 3).Draw(r, "networks") == 0 {
		m.ClientIP = []netip.Prefix{netip.MustParsePrefix(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "::/0"}).Draw(r, "network"))}
	}
	if rapid.IntRange(0, 2).Draw(r, "header") == 0 {
		yes, no := true, false
		re, err := ParseRegex("^a")
		if err != nil {
			r.Fatal(err)
		}
		m.Attr = NewFieldMatches(map[string]ValueMatch{"t": rapid.SampledFrom([]ValueMatch{
			{Present: &yes}, {Present: &no}, {Prefix: "a"}, {Prefix: "ab"}, {In: []string{"a", "ab"}}, {In: []string{"b", ""}}, {Regex: re},
		}).Draw(r, "condition")})
	}
	if depth > 0 && rapid.IntRange(0, 3).Draw(r, "not") == 0 {
		if not := drawMatch(r, 0); !not.IsZero() {
			m.Not = &not
		}
	}
	return m
}

func drawRequest(r *rapid.T) *Request {
	req := &Request{
		Method: rapid.SampledFrom([]string{"GET", "POST", "PUT"}).Draw(r, "request method"),
		Path:   rapid.SampledFrom([]string{"/", "/a", "/a/", "/a/b", "/a/b/", "/c/b", "/c/d", "/a/b/c", "/c/b/c", "*", ""}).Draw(r, "request path"),
		IP:     rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.2.2.3"), netip.MustParseAddr("::1")}).Draw(r, "ip"),
	}
	if v := rapid.SampledFrom([]string{"none", "", "a", "ab", "abc", "b"}).Draw(r, "t"); v != "none" {
		req.Attr = map[string]string{"t": v}
	}
	return req
}

func TestSameRulesLooksAtEverythingButText(t *testing.T) {
	t.Parallel()
	a, b, c, d := limited(t, "1/s"), limited(t, "1/s"), limited(t, "2/s"), limited(t, "1/s")
	a.Match.Method, b.Match.Method, d.Match.Method = []string{"GET", "POST"}, []string{"POST", "GET", "POST"}, []string{"GET"}
	b.Description, b.Owner, b.Labels, b.Cost = "text", "x", map[string]string{"a": "b"}, []Cost{{Cost: 1}}
	got := SameRules([]NamedSpec{{"a", *a}, {"c", *c}, {"b", *b}, {"d", *d}})
	if len(got) != 1 || got[0] != (Pair{0, 2}) {
		t.Errorf("got %v, want the pair of a and b", got)
	}
	if a.Match.Method[0] != "GET" || b.Match.Method[0] != "POST" {
		t.Error("the specs were changed")
	}
}

func TestRegexIsBounded(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		`^v[0-9]+$`: true, `\d{3}-[a-z]{2,10}`: true, strings.Repeat("[^a]", 250): true,
		`(x{100}){10}y{1000}`: false, `\pL{1000}\pL{1000}`: false, strings.Repeat("x", 1025): false, `(`: false,
	} {
		start := time.Now()
		if _, err := ParseRegex(text); (err == nil) != ok {
			t.Errorf("%.30s: got %v, want accepted %v", text, err, ok)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%.30s took %s", text, took)
		}
	}
}

// FuzzWhen holds what is true of every expression: parsing never panics, and what is accepted is evaluated within its
// bounds on requests as large as they come, says the same each time, and survives its text.
func FuzzWhen(f *testing.F) {
	for _, text := range []string{
		`method == "POST"`, `!path.startsWith("/v1/public/")`, `header("x-plan") in ["free", "pro"]`, `int(header("n")) > 5`, `query("a") + attr("b") == ip`,
		`path.matches("^(a*)*$")`, `path.matches(path)`, `[1,2].all(x, x > 0)`, `size(path) > 10 ? host == "" : true`, `@request == ""`, `(((`, "\"\xff\"",
		`header(header(header("a"))) != ""`, `{"a": path}["a"] == ""`, `duration("1s") > duration(path)`, `timestamp(path).getFullYear() > 1`, `b"a" == bytes(path)`, `path + path + path == host`,
	} {
		f.Add(text)
	}
	long := strings.Repeat("a", 8<<10)
	requests := []*Request{{}, {
		Method: "POST", Path: "/" + long, Host: long, RawQuery: "a=" + long, IP: netip.MustParseAddr("2001:db8::1"),
		Header: map[string][]string{"X-Plan": {long}, "N": {"12"}}, Attr: map[string]string{"b": long},
	}}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWhen(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n\n") || len(err.Error()) > 10_000 {
				t.Fatalf("the message is unreadable: %q", err)
			}
			return
		}
		again, err := ParseWhen(w.String())
		if err != nil {
			t.Fatalf("%q is not read again: %v", w, err)
		}
		for _, r := range requests {
			start := time.Now()
			is, failed := w.holds(r)
			if took := time.Since(start); took > time.Second {
				t.Fatalf("%q takes %s for one request", text, took)
			}
			if failed && !is {
				t.Fatalf("%q failed, and the rule would not apply", text)
			}
			if is2, failed2 := again.holds(r); is2 != is || failed2 != failed {
				t.Fatalf("%q says %v, %v and then %v, %v", text, is, failed, is2, failed2)
			}
		}
	})
}
