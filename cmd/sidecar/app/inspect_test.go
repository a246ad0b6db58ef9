package app_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// inspection asks the door of a sidecar whose rule "r" is keyed on the client address, with 3 a day.
func inspection(t *testing.T, query string, form url.Values, header ...string) (int, string) {
	t.Helper()
	engine := enforce.NewEngine(memlimit.New(), nobody{}, slog.New(slog.DiscardHandler))
	key, err := rules.ParseKeySource("ip/64")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := rules.ParseRate("3/d")
	if err != nil {
		t.Fatal(err)
	}
	v := rules.Version{Number: 1, Spec: rules.Spec{Key: []rules.KeySource{key}, Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate}}}}
	engine.Swap(rules.NewIndex(rules.Domain{Name: "d", Revision: 4}, []*rules.Rule{{Domain: "d", Name: "r", UID: "u", Stable: &v}}))
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/inspect"+query, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	app.InspectDoor(engine, "d").ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestInspectAnswersInJSON(t *testing.T) {
	t.Parallel()
	code, got := inspection(t, "", url.Values{"rule": {"r"}, "key": {"192.0.2.1"}})
	want := `{"domain":"d","rule":"r","revision":4,"state":"v1 stable","percent":0,"inCohort":false,"versions":[{"version":1,` +
		`"candidate":false,"part":"binds","key":["ip/64"],"limits":[{"rate":"3/d","spent":0,"left":3,"wait":0,"reset":0}]}]}`
	if code != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", code, got, want)
	}
}

// The values of a key may be secrets: they are taken from the body alone, and are in no answer.
func TestInspectRefusesWithoutTheValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query string
		form  url.Values
		code  int
		want  string
	}{
		{"", url.Values{"rule": {"r"}, "key": {"s3cret"}}, 400, "value 1 is not an address; the key has 1 parts: ip/64"},
		{"", url.Values{"rule": {"r"}, "key": {"s3cret", "s3cret"}}, 400, "2 values for a key of 1 parts: ip/64"},
		{"", url.Values{"rule": {"gone"}, "key": {"s3cret"}}, 404, `rule \"gone\" is not in force here`},
		{"", url.Values{"rule": {"r"}, "domain": {"x"}}, 404, "this sidecar has d"},
		{"", url.Values{"rule": {"r"}, "key": {"192.0.2.1"}, "ip": {"s3cret"}}, 400, "ip is not an address"},
		{"", url.Values{"rule": {"r"}, "s3cret": {"1"}}, 400, "a parameter is not known or repeated"},
		{"?key=s3cret", url.Values{"rule": {"r"}}, 400, "belong in the body"},
		{"", url.Values{"rule": {"r"}, "key": {strings.Repeat("s3cret", 1<<16)}}, 400, "the form cannot be read"},
	} {
		if code, got := inspection(t, c.query, c.form); code != c.code || !strings.Contains(got, c.want) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: %d %s, want %d %q", c.query, code, got, c.code, c.want)
		}
	}
	form := url.Values{"rule": {"r"}, "key": {"192.0.2.1"}}
	for name, page := range map[string][]string{
		"another site's":                    {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		"one whose name points here":        {"Origin", "http://example.com", "Sec-Fetch-Site", "same-origin"}, // as the request's Host
		"one of a browser without Fetch":    {"Origin", "http://example.com"},
		"one that hides where it came from": {"Sec-Fetch-Site", "none"},
	} {
		if code, got := inspection(t, "", form, page...); code != http.StatusForbidden {
			t.Errorf("page, %s: %d %s", name, code, got)
		}
	}
}
