package rules_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules"
)

func TestWhen(t *testing.T) {
	t.Parallel()
	req := &rules.Request{
		Method: "POST", Path: "/v1/login", Host: "api.example.com", IP: netip.MustParseAddr("192.0.2.1"), RawQuery: "a=1&a=2",
		Header: map[string][]string{"X-Plan": {"pro"}}, Attr: map[string]string{"tenant": "acme"},
	}
	for text, want := range map[string]bool{
		`method == "POST"`:                              true,
		`!path.startsWith("/v1/public/")`:               true,
		`header("x-plan") == "pro"`:                     true,
		`header("X-Plan") in ["free", "pro"]`:           true,
		`header("x-missing") == ""`:                     true,
		`query("a") == "1" && attr("tenant") == "acme"`: true,
		`attr("none") != "" || ip == "192.0.2.1"`:       true,
		`host.endsWith(".example.org")`:                 false,
		`path.matches("^/v[0-9]+/")`:                    true,
	} {
		w, err := rules.ParseWhen(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		s := rules.Spec{When: w}
		if got, failed := s.Matches(req); got != want || failed {
			t.Errorf("%s: got %v (failed %v), want %v", text, got, failed, want)
		}
	}
}

func TestWhenIsCheckedWhenItIsParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                 "",
		`metod == "POST"`:                  "undeclared reference to 'metod'",
		`method`:                           "gives a string",
		`method == 1`:                      "no matching overload",
		`header(1) == ""`:                  "no matching overload",
		`path.matches("(")`:                "",
		`[1, 2].all(x, x > 0)`:             "",
		`@request == ""`:                   "",
		`claims.role == "staff"`:           "undeclared reference",
		strings.Repeat("!", 2000) + "true": "longer than",
		strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500): "",
	} {
		if w, err := rules.ParseWhen(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, %v; want an error with %q", text, w, err, want)
		}
	}
}

// What remains to fail at run time makes the rule apply, and is told.
func TestWhenThatFailsApplies(t *testing.T) {
	t.Parallel()
	w, err := rules.ParseWhen(`int(header("x-n")) > 5`)
	if err != nil {
		t.Fatal(err)
	}
	s := rules.Spec{When: w}
	if matches, failed := s.Matches(&rules.Request{}); !matches || !failed {
		t.Errorf("got %v, failed %v; want that it applies and failed", matches, failed)
	}
}
