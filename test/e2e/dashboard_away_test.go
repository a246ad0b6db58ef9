package e2e_test

import (
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/test/browser"
	"github.com/headgate/headgate/test/harness"
)

// Somebody freezes a rule while the database falls silent, looks a customer up, and stays on the page until all is back.
func TestPageOutlivesASilentDatabaseAndARestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.must("apply", "-f", s.file(shop("{name: search, key: [ip], limit: 5/min}")))
	s.stopPlane()
	u, err := url.Parse(s.database)
	if err != nil {
		t.Fatal(err)
	}
	link := harness.NewLink(t, u.Host)
	u.Host = link.Addr
	s.database = u.String()
	s.startPlane()

	tab := browser.New(t, s.behindProxy())
	tab.Open("/d/shop/r/search?tab=keys")
	tab.Wait(`body[data-feed="open"]`)
	tab.Click(`#rule-head a[href$="/do/freeze"]`)
	tab.Type("#dialog[open] [name=message]", "OPS-1")
	link.Swallow()
	tab.Expect("503 POST")
	tab.Click("#dialog[open] [type=submit]")
	tab.WaitText("#dialog #failed", "Whether this was done is not known")
	tab.Press("\x1b")
	tab.Type("#key-0", "192.0.2.7")
	tab.Click("#lookup [type=submit]")
	tab.WaitText("#trouble:not([hidden])", "The database")

	link.Mend()
	tab.WaitGone("#trouble:not([hidden])")
	tab.Click("#lookup [type=submit]")
	tab.WaitText("#found", "No refusal is kept")

	tab.Expect("502 ") // of the proxy, which a browser gives a stream up for
	s.stopPlane()
	tab.WaitText("#trouble:not([hidden])", "does not answer")
	tab.Wait(`body[data-feed="lost"]`)
	s.startPlane()
	tab.WaitGone("#trouble:not([hidden])")
	tab.Wait(`body[data-feed="open"]`)
	tab.Open("/audit/1") // which has no stream that the end of the test would break off
}

func (s *system) stopPlane() {
	s.t.Helper()
	if err := s.plane.Interrupt(); err != nil {
		s.t.Fatal(err)
	}
}

// behindProxy is the address of a proxy before the HTTP port of the control plane.
func (s *system) behindProxy() string {
	to := &url.URL{Scheme: "http", Host: s.http}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		ErrorLog: log.New(io.Discard, "", 0),
	})
	s.t.Cleanup(proxy.Close)
	return proxy.URL
}
