package rules_test

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
)

func keyOf(t *testing.T, parts ...string) (key []rules.KeySource) {
	t.Helper()
	for _, text := range parts {
		k, err := rules.ParseKeySource(text)
		if err != nil {
			t.Fatal(err)
		}
		key = append(key, k)
	}
	return key
}

// Whoever reads a key of a request can name it again, whatever is done to its values; an address by any of its network.
func TestKeyOfValuesIsTheKeyOfTheRequestThatShowsThem(t *testing.T) {
	t.Parallel()
	all := keyOf(t, "ip", "ip/64", "method", "host", "path", "path.id", "header:x-name", "query:q", "cookie:c", "attr:tenant")
	text := rapid.StringMatching(`[ A-Za-z0-9%,äÄ\t-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		s := &rules.Spec{Match: rules.Match{Path: []string{"/v1/{id}"}}}
		s.Key = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 8, rules.KeySource.String).Draw(t, "key")
		for i := range s.Key {
			s.Key[i].Lower, s.Key[i].Trim = rapid.Bool().Draw(t, "lower"), rapid.Bool().Draw(t, "trim")
		}
		req := &rules.Request{
			Method: "G" + text.Draw(t, "method"), Host: "h" + text.Draw(t, "host"),
			Path:     "/v1/" + rapid.StringMatching(`[A-Za-z0-9]{1,4}`).Draw(t, "segment"),
			RawQuery: "q=" + rapid.StringMatching(`[A-Za-z0-9]{0,4}`).Draw(t, "q"),
			Header: map[string][]string{
				"X-Name": {text.Draw(t, "name")}, "Cookie": {"c=" + rapid.StringMatching(`[A-Za-z0-9]{0,4}`).Draw(t, "cookie")},
			},
			Attr: map[string]string{"tenant": text.Draw(t, "tenant")},
			IP: rapid.SampledFrom([]netip.Addr{
				netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("2001:db8::1:2:3"),
				netip.MustParseAddr("fe80::1%eth0"),
			}).Draw(t, "ip"),
		}
		shown, given := make([]string, len(s.Key)), make([]string, len(s.Key))
		for i, k := range s.Key {
			one := *s
			one.Key = []rules.KeySource{k}
			shown[i] = rules.KeyOf(&one, req).Show(&one, func(_ rules.KeySource, value string) string { return value })
			given[i] = shown[i]
			if strings.HasPrefix(k.String(), "ip") {
				given[i] = req.IP.String()
			}
		}
		for _, values := range [][]string{shown, given} {
			got, err := rules.KeyOfValues(s, values)
			if want := rules.KeyOf(s, req); err != nil || !bytes.Equal(got.Encoded(), want.Encoded()) || got.Missing() {
				t.Fatalf("KeyOfValues(%q) = %q, %v; want %q", values, got.Encoded(), err, want.Encoded())
			}
		}
	})
}

func TestKeyOfValuesNamesThePartsWhenNoRequestHasTheValues(t *testing.T) {
	t.Parallel()
	s := &rules.Spec{Key: keyOf(t, "ip/64", "header:authorization", "method")}
	for _, c := range []struct {
		values []string
		want   string
	}{
		{[]string{"192.0.2.1"}, "1 values for a key of 3 parts: ip/64, header:authorization, method"},
		{[]string{"192.0.2.1", "a", "GET", "b"}, "4 values for a key of 3 parts: ip/64, header:authorization, method"},
		{[]string{"localhost", "a", "GET"}, "value 1 is not an address; the key has 3 parts: ip/64, header:authorization, method"},
		{[]string{"2001:db8::/48", "a", "GET"}, "value 1 is not an address"},
		{[]string{"192.0.2.0/24", "a", "GET"}, "value 1 is not an address"},
		{[]string{"192.0.2.1", "a", ""}, "value 3 is empty, which it is in no request"},
	} {
		if _, err := rules.KeyOfValues(s, c.values); !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("KeyOfValues(%q): %v, want ErrInvalid with %q", c.values, err, c.want)
		}
	}
	if key, err := rules.KeyOfValues(&rules.Spec{}, nil); err != nil || !key.Shared() {
		t.Errorf("of an empty key: %v, %v; want the one counter for all", key, err)
	}
}

func TestHidePathShowsNothingThatTheKeyHashes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ source, path, want string }{
		{"path.token", "/reset/s3cret/form", "/reset/#/form"},
		{"path.token", "/reset/s3cret/s3cret", "/reset/s3cret/s3cret"}, // which the rule does not match
		{"path.token", "/other/s3cret", "/other/#"},
		{"path", "/reset/s3cret/form", "#"},
		{"host", "/reset/s3cret/form", "/reset/s3cret/form"},
		{"cookie:c", "/reset/s3cret/form", "/reset/s3cret/form"},
	} {
		s := &rules.Spec{Key: keyOf(t, "ip", test.source), Match: rules.Match{Path: []string{"/reset/{token}/form", "/other/{token}"}}}
		if got := s.HidePath(test.path); got != test.path {
			t.Errorf("%s of %s, not hashed: %s", test.source, test.path, got)
		}
		s.Key[1].Hash = true
		if got := s.HidePath(test.path); got != test.want {
			t.Errorf("%s of %s: %s, want %s", test.source, test.path, got, test.want)
		}
	}
}
