package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyWhatStaysOnThisMachineIsLoopback(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]bool{
		"127.0.0.1:18000": true, "[::1]:18000": true, "localhost:18000": true, "127.8.8.8:1": true, "unix:/run/headgate.sock": true,
		"10.0.0.7:18000": false, "example.com:18000": false, "0.0.0.0:18000": false, "localhost": false, "localhost.example.com:1": false,
		"dns:///127.0.0.1:18000": false, "dns:///example.com:18000": false, "": false,
	} {
		if got := isLoopback(server); got != want {
			t.Errorf("isLoopback(%q) = %t, want %t", server, got, want)
		}
	}
}

func TestSpanKnowsDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"15m": 15 * time.Minute, "1h30m": 90 * time.Minute, "90d": 90 * 24 * time.Hour} {
		var s span
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %v, %v; want %v", text, time.Duration(s), err, want)
		}
	}
	for _, text := range []string{"", "0s", "-1h", "-1d", "0d", "d", "1.5d", "90", "99999999999d", "soon"} {
		var s span
		if err := s.Set(text); err == nil {
			t.Errorf("%q is taken as %v", text, time.Duration(s))
		}
	}
}

func TestKeyValuesAreSplitAtCommas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want []string }{
		{nil, nil},
		{[]string{"a"}, []string{"a"}},
		{[]string{""}, []string{""}},
		{[]string{"a,b"}, []string{"a", "b"}},
		{[]string{"a,,b"}, []string{"a", "", "b"}},
		{[]string{`a\,b`}, []string{"a,b"}},
		{[]string{`a\,b,c`}, []string{"a,b", "c"}},
		{[]string{"a,b", "c"}, []string{"a,b", "c"}},
		{[]string{`a\,b`, "c"}, []string{`a\,b`, "c"}},
	} {
		f := overrideFlags{key: c.flags}
		if diff := cmp.Diff(c.want, f.values()); diff != "" {
			t.Errorf("--key %q (-want +got):\n%s", c.flags, diff)
		}
	}
}
