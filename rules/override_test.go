package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
)

func override(t *testing.T, limit, rate string) rules.Override {
	t.Helper()
	r, err := rules.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	return rules.Override{Limit: limit, Rate: r}
}

func TestCheckOverrideSaysWhatTheLimitAllows(t *testing.T) {
	t.Parallel()
	one := spec(t, "60/min")
	two := spec(t, "20/s")
	two.Limits = append(two.Limits, spec(t, "50_000/d").Limits...)
	two.Limits[0].Name, two.Limits[1].Name = "burst", "daily"
	two.Limits[1].Algorithm = rules.SlidingWindow
	dear := spec(t, "60/min")
	dear.Cost = []rules.Cost{{Cost: 10}}
	for _, c := range []struct {
		name     string
		spec     *rules.Spec
		override rules.Override
		want     string // "": accepted
	}{
		{"another amount", one, override(t, "", "600/min burst 1_200"), ""},
		{"less", one, override(t, "", "1/min"), ""},
		{"the window in other words", one, override(t, "", "600/60s"), ""},
		{"unlimited", one, override(t, "", "unlimited"), ""},
		{"nothing", one, override(t, "", "0/s"), ""},
		{"another window", one, override(t, "", "600/h"), "whose window is min"},
		{"no such limit", one, override(t, "daily", "600/min"), `no limit of the name "daily": it has one without a name`},
		{"none of several", two, override(t, "", "600/s"), `the rule has several limits: say which one with --name: burst, daily`},
		{"one of several", two, override(t, "daily", "600/d"), ""},
		{"a burst where there is none", two, override(t, "daily", "600/d burst 700"), "a burst is only for token-bucket"},
		{"too much to be exact", one, override(t, "", "1_000_000_000_000/min"), "at most"},
		{"less than a request costs", dear, override(t, "", "9/min"), "holds 9, but a request may cost 10"},
		{"as much as a request costs", dear, override(t, "", "1/min burst 10"), ""},
		{"nothing, where a request costs", dear, override(t, "", "0/min"), ""},
		{"of an unlimited one", spec(t, "unlimited"), override(t, "", "0/s"), "no counter"},
	} {
		err := rules.CheckOverride(c.spec, c.override)
		if (c.want == "") != (err == nil) || err != nil && (!errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// An override of another key, rule, domain or list of sources must not hold for this one.
func TestOverrideKeyTellsKeysApart(t *testing.T) {
	t.Parallel()
	parts := keyOf(t, "header:x-name", "attr:tenant")
	name, tenant := parts[0], parts[1]
	lower := name
	lower.Lower = true
	seen := map[rules.OverrideKey]string{}
	for what, key := range map[string]struct {
		secret byte
		uid    string
		parts  []rules.KeySource
		values []string
	}{
		"one":            {1, "u", []rules.KeySource{name}, []string{"a"}},
		"another secret": {2, "u", []rules.KeySource{name}, []string{"a"}},
		"another rule":   {1, "v", []rules.KeySource{name}, []string{"a"}},
		"another source": {1, "u", []rules.KeySource{tenant}, []string{"a"}},
		"in lower case":  {1, "u", []rules.KeySource{lower}, []string{"a"}},
		"another value":  {1, "u", []rules.KeySource{name}, []string{"b"}},
		"two values":     {1, "u", []rules.KeySource{name, tenant}, []string{"a", ""}},
		"shifted":        {1, "u", []rules.KeySource{name, tenant}, []string{"", "a"}},
		"none":           {1, "u", nil, nil},
	} {
		s := &rules.Spec{Key: key.parts}
		k, err := rules.KeyOfValues(s, key.values)
		if err != nil {
			t.Fatal(err)
		}
		hashed := rules.NewOverrideKey([16]byte{key.secret}, key.uid, s, k)
		if other, twice := seen[hashed]; twice {
			t.Errorf("%s has the key of %s", what, other)
		}
		seen[hashed] = what
	}
}

func TestOverridesSurviveTheirEncoding(t *testing.T) {
	t.Parallel()
	o := override(t, "daily", "600/d")
	o.Key, o.Until = rules.OverrideKey{1, 15: 0xfe}, time.Date(2026, 7, 1, 12, 0, 0, 123_000, time.UTC)
	b, err := rules.EncodeOverrides([]rules.Override{o})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"key":"010000000000000000000000000000fe","limit":"daily","rate":"600/d","until":"2026-07-01T12:00:00.000123Z"}]`
	if string(b) != want {
		t.Errorf("encoded %s, want %s", b, want)
	}
	got, err := rules.DecodeOverrides(b)
	if diff := cmp.Diff([]rules.Override{o}, got); diff != "" || err != nil {
		t.Errorf("decoded (-want +got), %v:\n%s", err, diff)
	}
	for _, text := range []string{``, `{}`, `[{"key":"01"}]`, strings.Replace(want, "limit", "later", 1), want + `[]`} {
		if got, err := rules.DecodeOverrides([]byte(text)); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("decoded %s as %v, %v; want ErrInvalid", text, got, err)
		}
	}
}
