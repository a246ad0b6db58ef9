package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/test/harness"
)

const gatewayRules = `
apiVersion: headgate/v1
kind: RuleSet
domain: public-api
rules:
  - {name: plan, match: {path: [/v1/things, /v1/login/new]}, key: [header:x-api-key], limit: 2/d}
  - {name: login, match: {method: POST, path: /v1/login}, key: [ip], limit: 1/d, response: {headers: none}}
  - {name: busy, match: {path: /v1/busy}, key: [], limit: 1/d, response: {status: 503}}
  - {name: shut, match: {path: /v1/shut}, key: [], limit: 0/s}
`

// referenced is how a refusal says what a caller can name to somebody who looks.
var referenced = regexp.MustCompile(`"reference":"[A-Z2-7]{13}"`)

// gateway is a stock proxy that runs one of the examples, between clients and a service, and asks a sidecar.
type gateway struct {
	t       *testing.T
	address string
	sidecar *sidecar
}

// startGateway starts a service, a sidecar with rules, and the proxy that run starts: of the files in deploy/examples
// only the ports are replaced, and the folder.
func startGateway(t *testing.T, run func(g *gateway, ports map[string]string) *exec.Cmd) *gateway {
	t.Helper()
	s := &system{
		t: t, database: filepath.Join(t.TempDir(), "headgate.db"), grpc: harness.FreeAddr(t), http: harness.FreeAddr(t),
		binaries: map[string]string{},
	}
	for _, name := range []string{"controlplane", "sidecar", "rulectl"} {
		s.binaries[name] = harness.Build(t, "./cmd/"+name)
	}
	s.startPlane()
	s.must("apply", "-f", s.file(gatewayRules), "--stage", "enforce", "--yes", "-m", "e2e")
	service := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(service.Close)
	g := &gateway{t: t, address: harness.FreeAddr(t), sidecar: &sidecar{system: s, name: "sidecar", ops: harness.FreeAddr(t)}}
	g.sidecar.args = []string{
		"--domain", "public-api", "--controlplane", s.grpc, "--store", "memory", "--listen", "off", "--rls-listen", "off",
		"--ops-listen", g.sidecar.ops, "--node-id", "sidecar",
	}
	g.sidecar.start()
	harness.StartCmd(t, "proxy", run(g, map[string]string{
		":8000": g.address, ":8082": g.sidecar.ops, ":9000": service.Listener.Addr().String(),
	}))
	g.eventually("GET", "/", http.StatusOK)
	return g
}

// echo tells what reached the service.
func echo(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %s from %q, %d bytes", r.Method, r.RequestURI, r.Header.Get("X-Forwarded-For"), n)
}

// installed returns the path of a program of the package with its name. Debian keeps servers out of a user's PATH.
func installed(t *testing.T, name string) string {
	t.Helper()
	for _, at := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(at); err == nil {
			return path
		}
	}
	t.Fatalf("%[1]s is not installed. Install it with\n  sudo apt-get install -y --no-install-recommends %[1]s", name)
	return ""
}

// example writes a file of deploy/examples into dir, with what it says replaced.
func example(t *testing.T, name, dir string, replaced map[string]string) string {
	t.Helper()
	content, err := os.ReadFile("../../deploy/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for old, by := range replaced {
		if !strings.Contains(text, old) {
			t.Fatalf("%s does not say %s", name, old)
		}
		if strings.HasPrefix(old, ":") { // a port, for an address
			by = by[strings.LastIndex(by, ":"):]
		}
		text = strings.ReplaceAll(text, old, by)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNginxExample(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(_ *gateway, ports map[string]string) *exec.Cmd {
		dir := t.TempDir()
		// What Debian's /etc/nginx/nginx.conf says around it, for a process of our own: one, since workers outlive a master
		// that is killed.
		main := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log stderr; events {}\n"+
			"http { access_log off; client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3;"+
			" uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5; include %[2]s; }\n", dir, example(t, "nginx.conf", dir, ports))
		path := filepath.Join(dir, "main.conf")
		if err := os.WriteFile(path, []byte(main), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(installed(t, "nginx"), "-p", dir, "-c", path, "-e", "stderr")
	})
	if got := g.call("GET", "/_headgate/open", ""); got.status != http.StatusNotFound {
		t.Errorf("a client that asks for a check itself got %d, want 404", got.status)
	}
	g.check()
}

func TestCaddyExample(t *testing.T) {
	t.Parallel()
	startGateway(t, func(_ *gateway, ports map[string]string) *exec.Cmd {
		dir := t.TempDir()
		for _, own := range []string{":8001", ":8002", ":2019"} {
			ports[own] = harness.FreeAddr(t)
		}
		cmd := exec.Command(installed(t, "caddy"), "run", "--config", example(t, "Caddyfile", dir, ports), "--adapter", "caddyfile")
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		return cmd
	}).check()
}

func TestHAProxyExample(t *testing.T) {
	t.Parallel()
	startGateway(t, func(_ *gateway, ports map[string]string) *exec.Cmd {
		dir := t.TempDir()
		ports["/etc/haproxy/headgate.lua"] = example(t, "headgate.lua", dir, nil)
		return exec.Command(installed(t, "haproxy"), "-db", "-f", example(t, "haproxy.cfg", dir, ports))
	}).check()
}

// gatewayAnswer is what a client got.
type gatewayAnswer struct {
	status int
	header http.Header
	body   string
}

// call sends a request with the body as a client with an API key of its own, which is the method and the path unless a
// header says otherwise.
func (g *gateway) call(method, path, body string, header ...string) gatewayAnswer {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.address+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Close = true
	r.Header.Set("X-Api-Key", method+path)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return gatewayAnswer{}
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Error(err)
	}
	return gatewayAnswer{resp.StatusCode, resp.Header, string(content)}
}

func (g *gateway) eventually(method, path string, want int) {
	g.t.Helper()
	harness.Eventually(g.t, patience, func() error {
		if got := g.call(method, path, ""); got.status != want {
			return fmt.Errorf("%s %s: status %d, want %d", method, path, got.status, want)
		}
		return nil
	})
}

// check holds the gateway to what every example promises.
func (g *gateway) check() {
	g.passesAndRefuses()
	g.tellsTheSidecarTheTruth()
	g.letsNothingBeRead()
	g.outlivesTheSidecar()
}

// What is allowed reaches the service as it is, and what is not gets the sidecar's refusal.
func (g *gateway) passesAndRefuses() {
	const path = "/v1/things?a=%2F"
	body := strings.Repeat("x", 8<<10)
	for left := 1; left >= 0; left-- {
		got := g.call("POST", path, body)
		if want := `POST ` + path + ` from "127.0.0.1", 8192 bytes`; got.status != http.StatusOK || got.body != want {
			g.t.Errorf("allowed: %d %q, want 200 %q", got.status, got.body, want)
		}
		limit, policy := got.header.Get("RateLimit"), got.header.Get("RateLimit-Policy")
		if !strings.HasPrefix(limit, fmt.Sprintf(`"plan";r=%d;t=`, left)) || policy != `"plan";q=2;w=86400` {
			g.t.Errorf("allowed: RateLimit %q, RateLimit-Policy %q, want %d left of 2 a day", limit, policy, left)
		}
	}
	got := g.call("POST", path, body)
	seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
	if err != nil || seconds < 40_000 || seconds > 43_200 {
		g.t.Errorf("refused: Retry-After %q, want nearly half a day", got.header.Get("Retry-After"))
	}
	want := []string{"429", fmt.Sprintf(`"plan";r=0;t=%d`, seconds), `"plan";q=2;w=86400`, "no-store", "application/problem+json"}
	is := []string{strconv.Itoa(got.status)}
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Cache-Control", "Content-Type"} {
		is = append(is, got.header.Get(name))
	}
	if diff := cmp.Diff(want, is); diff != "" || !strings.Contains(got.body, "#quota-exceeded") || !referenced.MatchString(got.body) {
		g.t.Errorf("refused (-want +got):\n%s\n%s", diff, got.body)
	}

	if got := g.call("GET", "/v1/busy", ""); got.status != http.StatusOK {
		g.t.Errorf("the first of a rule with a status of its own: %d, want 200", got.status)
	}
	if got := g.call("GET", "/v1/busy", ""); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		g.t.Errorf("refused with the rule's status: %d, Retry-After %q; want 503", got.status, got.header.Get("Retry-After"))
	}
	if got := g.call("GET", "/unlimited", ""); got.status != http.StatusOK || len(got.header["Ratelimit"]) > 0 {
		g.t.Errorf("without a limit: %d, RateLimit %q; want 200 and none", got.status, got.header["Ratelimit"])
	}
}

// Whatever a client sends, the sidecar judges the request that is forwarded, of the client that sent it.
func (g *gateway) tellsTheSidecarTheTruth() {
	for i, c := range []struct {
		path   string
		header []string
		want   int
	}{
		{"/v1/login", nil, http.StatusOK},
		{"/v1/login", nil, http.StatusTooManyRequests},
		{"/v1/login", []string{"X-Forwarded-For", "192.0.2.1", "X-Real-IP", "192.0.2.1"}, http.StatusTooManyRequests},
		{"/v1/login", []string{"X-Original-URI", "/", "X-Original-URL", "/", "X-Forwarded-Uri", "/"}, http.StatusTooManyRequests},
		{"/v1/login", []string{"X-Original-Method", "GET", "X-Forwarded-Method", "GET"}, http.StatusTooManyRequests},
		{"/v1/login?domain=other&deny_status=418", nil, http.StatusTooManyRequests},
		{"/v1/./%6cogin", nil, http.StatusTooManyRequests},
		{"/v1/lo%2fgin", nil, http.StatusBadRequest},
	} {
		got := g.call("POST", c.path, "", c.header...)
		if got.status != c.want || got.header.Get("Retry-After")+got.header.Get("RateLimit") != "" {
			g.t.Errorf("login %d, %s with %q: %d, %v; want %d without a hint how fast to go", i+1, c.path, c.header, got.status, got.header, c.want)
		}
	}
}

// What the sidecar cannot read must not look like a sidecar that is gone.
func (g *gateway) letsNothingBeRead() {
	for name, value := range map[string]string{"a control character": "a\x01b", "a long header": strings.Repeat("x", 900<<10)} {
		if status, err := g.raw("GET /v1/shut HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: " + value + "\r\n\r\n"); err == nil && status < 400 {
			g.t.Errorf("a request with %s got %d, want a refusal", name, status)
		}
		if got := g.call("GET", "/v1/shut", ""); got.status != http.StatusTooManyRequests {
			g.t.Errorf("after a request with %s another got %d, want 429", name, got.status)
		}
	}
}

// raw sends what no HTTP client would, and returns the status of the answer. A connection that is cut is an error.
func (g *gateway) raw(request string) (status int, err error) {
	g.t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(g.t.Context(), "tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// A sidecar that hangs or is gone: requests pass, but where the example says that they must not. When it is back, it is
// asked again.
func (g *gateway) outlivesTheSidecar() {
	unchecked := func(how string) {
		g.t.Helper()
		g.eventually("GET", "/v1/shut", http.StatusOK) // the signal takes a moment
		for range 3 {
			if got := g.call("GET", "/v1/shut", ""); got.status != http.StatusOK {
				g.t.Errorf("%s: %d, want 200", how, got.status)
			}
			got := g.call("GET", "/v1/login/new", "")
			if got.status != http.StatusServiceUnavailable || got.header.Get("Content-Type") != "application/problem+json" {
				g.t.Errorf("%s: %d %q where nothing may pass, want 503", how, got.status, got.header.Get("Content-Type"))
			}
		}
	}
	g.sidecar.process.Pause()
	unchecked("the sidecar hangs")
	g.sidecar.process.Resume()
	g.eventually("GET", "/v1/shut", http.StatusTooManyRequests)
	g.sidecar.process.Kill()
	unchecked("the sidecar is gone")
	g.sidecar.start()
	g.eventually("GET", "/v1/shut", http.StatusTooManyRequests)
	g.eventually("GET", "/v1/login/new", http.StatusOK)
}
