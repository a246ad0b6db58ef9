package ui_test

import (
	"strings"
	"testing"
)

func TestErrorPagesLeadBackToWhereSomebodyWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("shop", "{name: login, key: [ip], limit: 1/s}")
	for path, to := range map[string]string{
		"/d/shop?sort=colour":           "/d/shop",
		"/d/shop/r/login?tab=secrets":   "/d/shop/r/login",
		"/d/shop/r/none":                "/d/shop",
		"/d/shop/r/login/do/nothing":    "/d/shop",
		"/sidecars/none":                "/sidecars",
		"/audit/999":                    "/audit",
		"/d/%22%3E%3Cscript%3E/r/login": "/d/%22%3E%3Cscript%3E",
		"/d/none":                       "",
		"/nothing":                      "",
	} {
		_, page := w.get(path)
		if got := strings.Contains(page, ">Back to "); got != (to != "") || to != "" && !strings.Contains(page, `href="`+to+`">Back to `) {
			t.Errorf("%s: the page does not lead back to %q\n%s", path, to, page)
		}
	}
}
