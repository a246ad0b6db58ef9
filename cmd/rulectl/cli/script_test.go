package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/certs/certstest"
)

func check[T any](ts *testscript.TestScript, value T, err error) T {
	ts.Check(err)
	return value
}

// secured lets a script go on with a control plane that asks who one is and has TLS: its tokens are in admin.token and
// sidecar.token, and client.crt and client.key are a viewer's certificate.
func secured(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		dir, until := ts.MkAbs("."), time.Now().Add(time.Hour)
		authority := certstest.New(t)
		server, client := authority.Server(until), authority.Client(until, "cn-of-a-viewer")
		ca := certstest.Write(t, authority.PEM, dir, "ca.pem")
		certstest.Write(t, client.Cert, dir, "client.crt")
		certstest.Write(t, client.Key, dir, "client.key")
		material, err := certs.NewServer(certs.Files{
			Cert: certstest.Write(t, server.Cert, dir, "server.crt"), Key: certstest.Write(t, server.Key, dir, "server.key"), CA: ca,
		}, certs.Options{})
		plane, err := start(t.TempDir(), doors{auth: true, tls: check(ts, material, err)})
		ts.Check(err)
		ts.Defer(plane.stop)
		ctx := context.Background()
		for _, role := range []access.Role{access.Admin, access.Sidecar} {
			text, err := plane.token(ctx, role)
			certstest.Write(t, []byte(check(ts, text, err)+"\n"), dir, string(role)+".token")
		}
		viewer := access.NewCertificate("cn-of-a-viewer")
		viewer.Role = access.Viewer
		_, err = plane.service.AddCredential(ctx, viewer, rollout.Why{Who: access.Local("test")})
		ts.Check(err)
		*ts.Value(planeKey{}).(*controlPlane) = *plane //nolint:errcheck // a panic would name it
		ts.Setenv("RULECTL_SERVER", plane.addr)
		ts.Setenv("RULECTL_TLS_CA", ca)
	}
}

// expired makes a token that has ended, in expired.token.
func expired(ts *testscript.TestScript, _ bool, _ []string) {
	text, credential := access.NewToken()
	credential.Name, credential.Role, credential.Expires = "late@test", access.Viewer, time.Now().Add(50*time.Millisecond)
	plane := ts.Value(planeKey{}).(*controlPlane) //nolint:errcheck // a panic would name it
	_, err := plane.service.AddCredential(context.Background(), credential, rollout.Why{Who: access.Local("test")})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("expired.token"), []byte(text), 0o600))
	<-time.After(time.Until(credential.Expires))
}

// id sets ID to that of the token in a file: id FILE.
func id(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("ID", strings.Split(ts.ReadFile(args[0]), "_")[1])
}

// pushed waits until new streams get what was changed.
func pushed(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Value(planeKey{}).(*controlPlane).pushed(context.Background())) //nolint:errcheck // a panic would name it
}

// counted sets what v2 of each rule judged, would have refused, and of what another rule refused as well: counted 1000 10 0.
func counted(ts *testscript.TestScript, _ bool, args []string) {
	c := ts.Value(planeKey{}).(*controlPlane).tallies //nolint:errcheck // a panic would name it
	for i, into := range []*atomic.Int64{&c.judged, &c.refused, &c.shared} {
		n, err := strconv.ParseInt(args[i], 10, 64)
		ts.Check(err)
		into.Store(n)
	}
}

// edit copies a file with one text in place of another: edit FILE TO OLD NEW.
func edit(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[2]) {
		ts.Fatalf("%s does not contain %q", args[0], args[2])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.ReplaceAll(text, args[2], args[3])), 0o600))
}

// anchor sets ANCHOR to what verify would have printed at a record of an export: anchor FILE NUMBER.
func anchor(ts *testscript.TestScript, _ bool, args []string) {
	lines := bufio.NewScanner(strings.NewReader(ts.ReadFile(args[0])))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r struct {
			Number json.Number `json:"number"`
			Seal   string      `json:"seal"`
		}
		ts.Check(json.Unmarshal(lines.Bytes(), &r))
		if r.Number.String() == args[1] {
			ts.Setenv("ANCHOR", args[1]+":"+r.Seal)
			return
		}
	}
	ts.Fatalf("%s has no record %s", args[0], args[1])
}

// opsPort stands for a sidecar's operations port, and answers as that does.
type opsPort struct {
	away atomic.Bool // its Redis does not answer
	mu   sync.Mutex
	last string // what was asked
}

type opsKey struct{}

// sidecar starts one, and sets SIDECAR to its address.
func sidecar(ts *testscript.TestScript, _ bool, _ []string) {
	o := ts.Value(opsKey{}).(*opsPort) //nolint:errcheck // a panic would name it
	server := httptest.NewServer(o)
	ts.Defer(server.Close)
	ts.Setenv("SIDECAR", strings.TrimPrefix(server.URL, "http://"))
}

func (o *opsPort) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	form, _ := url.QueryUnescape(strings.ReplaceAll(r.Form.Encode(), "&", " "))
	o.mu.Lock()
	o.last = fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, form)
	o.mu.Unlock()
	fail := func(status int, text string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
	}
	switch r.URL.Path {
	case "/inspect":
		inspected(w, r, fail)
		return
	case "/readyz":
		if o.away.Load() {
			fmt.Fprintln(w, "the last rules stay in force: no stream to the control plane at c:18000: receive: not authenticated: the token is revoked")
		}
		return
	case "/metrics":
		fmt.Fprintln(w, "headgate_config_revision{domain=\"publc-api\"} 0\nheadgate_config_revision{domain=\"shop\"} 10")
		fmt.Fprintf(w, "# HELP headgate_store_up …\nheadgate_store_up %s\nheadgate_store_breaker_state{node=\"r:6379\"} 0\n", o.storeUp())
		return
	}
	switch r.Form.Get("domain") {
	case "nope":
		fail(http.StatusNotFound, `not found: domain "nope" is not served here: this sidecar has public-api`)
	case "forbidden":
		fail(http.StatusForbidden, "forbidden: another site's page may not freeze")
	case "html":
		http.Error(w, "<html>", http.StatusBadGateway)
	default:
		fmt.Fprint(w, `{"freezes": [{"domain": "public-api", "rule": "login", "until": "2999-01-01T00:00:00Z", "includingClosed": true,
			"source": "sidecar", "actor": "anna"}], "warning": "a restart of this sidecar will forget it: no space"}`)
	}
}

// inspected answers as the inspect door does.
func inspected(w http.ResponseWriter, r *http.Request, fail func(int, string)) {
	switch r.PostForm.Get("rule") {
	case "keyed":
		fail(http.StatusBadRequest, "invalid: 0 values for a key of 1 parts: header:x-api-key")
	case "gone":
		fail(http.StatusNotFound, `not found: rule "gone" is not in force here`)
	case "away":
		fail(http.StatusServiceUnavailable, "unavailable: the store of counters does not answer")
	case "all":
		fmt.Fprint(w, `{"domain":"public-api","rule":"all","revision":7,"state":"v2 at 50% with no stable version","percent":50,"inCohort":null,
			"versions":[{"version":2,"candidate":true,"part":"either","key":[],"limits":[{"rate":"9/s","spent":0,"left":9,"wait":0,"reset":0}]}]}`)
	default:
		fmt.Fprint(w, `{"domain":"public-api","rule":"login","revision":7,"state":"v2 at 10% beside stable v1","percent":10,"inCohort":true,"versions":[
			{"version":1,"candidate":false,"part":"what-if","key":["header:x-api-key"],"limits":[{"rate":"60/min","spent":60,"left":0,"wait":-1,"reset":3600}]},
			{"version":2,"candidate":true,"part":"frozen","frozenUntil":"2999-01-01T00:00:00Z","key":["header:x-api-key"],"limits":[
				{"name":"burst","rate":"5/s","by":"header:x-plan","spent":1,"left":4,"wait":0,"reset":1},
				{"name":"daily","rate":"900/d","overrideUntil":"2999-01-01T00:00:00Z","spent":5,"left":895,"wait":0,"reset":480}]}]}`)
	}
}

// storeUp is what the metrics say of Redis.
func (o *opsPort) storeUp() string {
	if o.away.Load() {
		return "0"
	}
	return "1"
}

// storeAway has the sidecar say that its Redis does not answer.
func storeAway(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value(opsKey{}).(*opsPort).away.Store(true) //nolint:errcheck // a panic would name it
}

// asked prints what the sidecar was asked last; the user who runs the tests is "me".
func asked(ts *testscript.TestScript, _ bool, _ []string) {
	me, err := user.Current()
	ts.Check(err)
	o := ts.Value(opsKey{}).(*opsPort) //nolint:errcheck // a panic would name it
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err = fmt.Fprintln(ts.Stdout(), strings.Replace(o.last, "actor="+me.Username+" ", "actor=me ", 1))
	ts.Check(err)
}
