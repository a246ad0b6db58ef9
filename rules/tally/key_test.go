package tally_test

import (
	"net/netip"
	"regexp"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

func specOf(t *testing.T, parts ...string) *rules.Spec {
	t.Helper()
	s := &rules.Spec{}
	for _, text := range parts {
		k, err := rules.ParseKeySource(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Key = append(s.Key, k)
	}
	return s
}

func TestLabelShowsWhoItIsAndNoSecret(t *testing.T) {
	t.Parallel()
	req := &rules.Request{
		Method: "GET", Path: "/v1/a", IP: netip.MustParseAddr("192.0.2.17"),
		Header: map[string][]string{"Authorization": {"Bearer secret"}, "X-Tenant": {"acme-corporation"}, "X-Odd": {"a\x1b[2J\nb"}},
	}
	for _, test := range []struct {
		key  []string
		want string
	}{
		{nil, `^\*$`},
		{[]string{"ip", "method"}, `^192\.0\.2\.\*,GET$`},
		{[]string{"header:authorization", "path"}, `^#[0-9a-f]{8},/v1/a$`},
		{[]string{"header:x-tenant", "header:x-none"}, `^ac…on,-$`},
		{[]string{"header:x-odd"}, `^a…$`},
	} {
		s := specOf(t, test.key...)
		got := tally.Label([16]byte{1}, s, rules.KeyOf(s, req))
		if !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("label of %v is %q, want %s", test.key, got, test.want)
		}
	}
}
