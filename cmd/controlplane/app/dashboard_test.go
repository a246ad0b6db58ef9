package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/rules/rollout/access"
)

// browse asks for a page of the HTTP port, and returns the status and where it leads.
func (p *plane) browse(url string, change func(*http.Request)) (status int, location string) {
	p.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.authority.PEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	change(req)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// session opens one for a token with the role, and returns its secret.
func (p *plane) session(role access.Role) string {
	p.t.Helper()
	_, c := access.NewToken()
	c.Name, c.Role, c.Created = "somebody", role, time.Now()
	p.add(c)
	who, err := c.Identity(time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	secret, session := access.NewSession(who, time.Now())
	if err := p.Store().AddSession(p.t.Context(), session); err != nil {
		p.t.Fatal(err)
	}
	return secret
}

func cookie(name, secret string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: secret}) }
}

func nothing(*http.Request) {}

func TestDashboardAsksPeopleToSignIn(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	viewer := p.token("vi", access.Viewer, func(c *access.Credential) { c.Domains = []string{"d"} })
	secret := p.session(access.Admin)
	base := "https://" + p.HTTPAddr().String()
	for _, c := range []struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		{"/audit?d=a", nothing, http.StatusSeeOther},
		{"/", cookie("__Host-headgate_session", secret), http.StatusOK},
		{"/audit", cookie("headgate_session", secret), http.StatusSeeOther},
		{"/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+viewer.token) }, http.StatusOK},
		{"/metrics", cookie("__Host-headgate_session", secret), http.StatusUnauthorized},
		{"/debug/pprof/", cookie("__Host-headgate_session", secret), http.StatusUnauthorized},
		{"/livez", nothing, http.StatusOK},
	} {
		if got, location := p.browse(base+c.path, c.change); got != c.want {
			t.Errorf("%s: got %d to %q, want %d", c.path, got, location, c.want)
		}
	}
	if _, location := p.browse(base+"/audit?d=a", nothing); location != "/login?next=%2Faudit%3Fd%3Da" {
		t.Errorf("sent to %q", location)
	}
}

// A proxy in front of the port may speak TLS for it.
func TestSessionsAreForTLSWherePeopleUseIt(t *testing.T) {
	t.Parallel()
	for external, want := range map[string]string{"": "headgate_session", "http://hg.example": "headgate_session", "https://hg.example": "__Host-headgate_session"} {
		p := start(t, func(c *app.Config) {
			c.TLSCert, c.TLSKey, c.TLSClientCA, c.Alerts.ExternalURL = "", "", "", external
		})
		secret := p.session(access.Viewer)
		for _, name := range []string{"headgate_session", "__Host-headgate_session"} {
			got, _ := p.browse("http://"+p.HTTPAddr().String()+"/", cookie(name, secret))
			if in := got != http.StatusSeeOther; in != (name == want) {
				t.Errorf("external URL %q: %s gets %d", external, name, got)
			}
		}
	}
}

func TestDashboardWithoutAuthenticationAnswersToItsAddress(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{false, true} {
		p := start(t, func(c *app.Config) {
			c.Auth, c.TLSCert, c.TLSKey, c.TLSClientCA, c.Insecure = app.AuthOff, "", "", "", insecure
		})
		base := "http://" + p.HTTPAddr().String()
		foreign := http.StatusMisdirectedRequest
		if insecure {
			foreign = http.StatusOK
		}
		_, port, _ := strings.Cut(p.HTTPAddr().String(), ":")
		for host, want := range map[string]int{
			p.HTTPAddr().String(): http.StatusOK, "localhost:" + port: http.StatusOK, "rebound.example:" + port: foreign,
		} {
			if got, _ := p.browse(base+"/", func(r *http.Request) { r.Host = host }); got != want {
				t.Errorf("insecure %v, %s: got %d, want %d", insecure, host, got, want)
			}
		}
	}
}
