package accesslog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/rulectl/accesslog"
	"github.com/headgate/headgate/rules"
)

const wholeJSON = `{"time":"2015-05-17T12:05:03+02:00","method":"GET","path":"/a?b=c","ip":"192.0.2.1"}`

func TestJSONLinesGiveTheRequestThatASidecarSaw(t *testing.T) {
	t.Parallel()
	line := `{"time": 1431857103, "method": "POST", "path": "//v1/./login?x=1", "ip": "::ffff:192.0.2.1", "status": 200,
		"headers": {"x-api-key": "k", "X-Many": ["a", "b"], "host": "Shop.example:8080", "gone": null},
		"attrs": {"tenant": "a\u002cb", "count": 12, "on": true, "gone": null}}`
	e, err := accesslog.ParseJSON(strings.ReplaceAll(line, "\n", " "))
	if err != nil {
		t.Fatal(err)
	}
	want := with(request("192.0.2.1", "POST", "/v1/login"), func(r *rules.Request) {
		r.RawQuery, r.Host = "x=1", "shop.example"
		r.Header = map[string][]string{"X-Api-Key": {"k"}, "X-Many": {"a", "b"}}
		r.Attr = map[string]string{"tenant": "a,b", "count": "12", "on": "true"}
	})
	if diff := cmp.Diff(want, e.Request, equal); diff != "" || e.At != at {
		t.Errorf("at %d, want %d; -want +got:\n%s", e.At, at, diff)
	}
}

func TestJSONTimesAreExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`"2015-05-17T10:05:03Z"`:             at,
		`"2015-05-17T10:05:03.25Z"`:          at + 250_000,
		`1431857103`:                         at,
		`1431857103.000001`:                  at + 1,
		`1431857103.0000019`:                 at + 1,
		`1431857103.1`:                       at + 100_000,
		`1.431857103e9`:                      at,
		`0`:                                  0,
		`"2015-05-17T10:05:03.123456789Z"`:   at + 123_456,
		`"2015-05-17T12:05:03.5+02:00"`:      at + 500_000,
		`"2015-05-17T10:05:03.000001Z"`:      at + 1,
		`1431857103.99999999999999999999999`: at + 999_999,
	} {
		e, err := accesslog.ParseJSON(strings.Replace(wholeJSON, `"2015-05-17T12:05:03+02:00"`, text, 1))
		if err != nil || e.At != want {
			t.Errorf("%s: at %d, error %v; want %d", text, e.At, err, want)
		}
	}
}

func TestAJSONLineIsMalformedUnlessTheWholeFormatIsThere(t *testing.T) {
	t.Parallel()
	for i := range wholeJSON {
		if _, err := accesslog.ParseJSON(wholeJSON[:i]); err == nil {
			t.Errorf("the first %d bytes pass: %s", i, wholeJSON[:i])
		}
	}
	replace := func(old, new string) string { return strings.Replace(wholeJSON, old, new, 1) }
	for name, line := range map[string]string{
		"two objects":          wholeJSON + wholeJSON,
		"a list":               "[" + wholeJSON + "]",
		"null":                 "null",
		"no time":              replace(`"time"`, `"Time"`),
		"a time in words":      replace("2015-05-17T12:05:03+02:00", "yesterday"),
		"a time in millis":     replace(`"2015-05-17T12:05:03+02:00"`, "1431857103000"),
		"a time before 1970":   replace(`"2015-05-17T12:05:03+02:00"`, "-1"),
		"a time just before":   replace(`"2015-05-17T12:05:03+02:00"`, "-0.5"),
		"a huge time":          replace(`"2015-05-17T12:05:03+02:00"`, "1e999999"),
		"a time that is true":  replace(`"2015-05-17T12:05:03+02:00"`, "true"),
		"no ip":                replace(`"ip"`, `"address"`),
		"an ip that is none":   replace("192.0.2.1", "client"),
		"a method of a number": replace(`"GET"`, "7"),
		"an empty path":        replace("/a?b=c", ""),
		"headers in a list":    replace(`"ip"`, `"headers":[],"ip"`),
		"a header of a number": replace(`"ip"`, `"headers":{"a":7},"ip"`),
		"an attr of a list":    replace(`"ip"`, `"attrs":{"a":[]},"ip"`),
	} {
		if _, err := accesslog.ParseJSON(line); err == nil {
			t.Errorf("%s passes: %s", name, line)
		}
	}
}
