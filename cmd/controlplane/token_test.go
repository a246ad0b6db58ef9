package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/cmd/controlplane/app"
	sidecar "github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/certs/certstest"
)

// control runs `controlplane` with the arguments.
func control(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&log)
	err = c.ExecuteContext(t.Context())
	return out.String(), log.String(), err
}

// must runs a command that is expected to succeed.
func must(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := control(t, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, stderr)
	}
	return stdout, stderr
}

func TestTokenIsShownOnceAndListedWithoutItsSecret(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "headgate.db")
	token, told := must(t, "token", "create", "--database-url", db, "--name", "ci", "--role", "editor", "--domain", "a", "--domain", "b")
	parts := regexp.MustCompile(`^hg_([0-9a-f]{12})_[0-9a-f]{64}\n$`).FindStringSubmatch(token)
	if parts == nil {
		t.Fatalf("standard output is %q, want the token and nothing else", token)
	}
	id, secret := parts[1], strings.TrimSpace(token)
	if !strings.Contains(told, id+" lets in ci as editor, for a,b, until ") || strings.Contains(told, secret) {
		t.Errorf("standard error is %q, want who and until when, without the token", told)
	}
	if out, told := must(t, "token", "create", "--database-url", db, "--certificate", "--name", "spiffe://x/n1", "--role", "sidecar"); out != "" ||
		!strings.Contains(told, "lets in spiffe://x/n1 as sidecar, for all domains, never expires") {
		t.Errorf("certificate: %q and %q", out, told)
	}
	list, _ := must(t, "token", "list", "--database-url", db)
	for _, want := range []string{"^ID +TYPE +NAME +ROLE +DOMAINS +CREATED +LIFE\n", id + " +token +ci +editor +a,b .* 20[-0-9]+ [:0-9]+Z +until 20[-0-9]+ [:0-9]+Z", "certificate +spiffe://x/n1 +sidecar +all domains .* never expires"} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("the list has no %q:\n%s", want, list)
		}
	}
	if strings.Contains(list, secret[len("hg_"+id+"_"):]) {
		t.Errorf("the secret is in the list:\n%s", list)
	}
	must(t, "token", "revoke", "--database-url", db, id)
	if list, _ := must(t, "token", "list", "--database-url", db); !regexp.MustCompile(id + ".* ✖ revoked 20[-0-9]+ [:0-9]+Z").MatchString(list) {
		t.Errorf("the list does not say that %s is revoked:\n%s", id, list)
	}
	if _, _, err := control(t, "token", "revoke", "--database-url", db, "ffffffffffff"); err == nil {
		t.Error("what is not there was revoked")
	}
}

func TestTokenCreateRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "headgate.db")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--role", "editor"}, "--name is missing"},
		{[]string{"--role", "editor", "--certificate"}, "--name is missing"},
		{[]string{"--role", "god", "--name", "a"}, `--role: invalid: "god" is no role`},
		{[]string{"--role", "editor", "--name", "a", "--expires", "soon"}, `--expires: "soon" is not a time such as 12h or 90d`},
		{[]string{"--role", "editor", "--name", "a", "--expires", "0d"}, "--expires"},
		{[]string{"--role", "editor", "--name", "a", "--expires", "-5h"}, "--expires"},
		{[]string{"--role", "editor", "--name", "a", "--expires", "99999d"}, "--expires"},
		{[]string{"--role", "editor", "--name", "a", "--domain", "Not A Name"}, "domain"},
	} {
		out, _, err := control(t, append([]string{"token", "create", "--database-url", db}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%q: got %q and %v, want an error that says %q", c.args, out, err, c.want)
		}
	}
}

func TestExpiryIsReadInDays(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	for text, want := range map[string]string{
		"90d": "2026-05-30T12:00:00Z", "1d": "2026-03-02T12:00:00Z", "90m": "2026-03-01T13:30:00Z", "never": "0001-01-01T00:00:00Z",
	} {
		if got, err := expiry(text, now); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
}

func TestRenewLineageAsksFirst(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "headgate.db")
	if _, _, err := control(t, "renew-lineage", "--database-url", db); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("got %v, want a question", err)
	}
	first, _ := must(t, "renew-lineage", "--database-url", db, "--yes")
	second, _ := must(t, "renew-lineage", "--database-url", db, "--yes")
	if strings.TrimSpace(first) == "" || first == second {
		t.Errorf("got %q and %q, want two histories", first, second)
	}
}

func TestMigrateMakesTheDatabaseForTheControlPlane(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	must(t, "migrate", "--database-url", db)
	if _, told := must(t, "migrate", "--database-url", db); !strings.Contains(told, "up to date") {
		t.Errorf("the second time: %q", told)
	}
	must(t, "token", "list", "--database-url", db)
	if _, _, err := control(t, "migrate", "--database-url", "headgate.db"); err == nil || !strings.Contains(err.Error(), "--database-url") {
		t.Errorf("SQLite: got %v, want a refusal", err)
	}
}

// A control plane with TLS, as its operator sets it up: tokens are made at the database, and sidecars come in by token
// and by certificate.
func TestSidecarsComeInByTokenAndByCertificate(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), certstest.New(t)
	write := func(name string, content []byte) string { return certstest.Write(t, content, dir, name) }
	db := filepath.Join(dir, "headgate.db")
	editor, _ := must(t, "token", "create", "--database-url", db, "--name", "ci", "--role", "editor")
	node, _ := must(t, "token", "create", "--database-url", db, "--name", "n1", "--role", "sidecar", "--domain", demoDomain)
	must(t, "token", "create", "--database-url", db, "--certificate", "--name", "n2.example", "--role", "sidecar", "--domain", demoDomain)

	ca := write("ca.crt", authority.PEM)
	server, client := authority.Server(time.Now().Add(time.Hour)), authority.Client(time.Now().Add(time.Hour), "n2.example")
	c := app.DefaultConfig()
	c.Database, c.GRPCListen, c.HTTPListen, c.Auth = db, "127.0.0.1:0", "127.0.0.1:0", app.AuthToken
	c.TLSCert, c.TLSKey, c.TLSClientCA = write("server.crt", server.Cert), write("server.key", server.Key), ca
	plane, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	running(t, plane.Run)
	apply(t, plane.GRPCAddr().String(), ca, write("editor.token", []byte(editor)))

	for name, trust := range map[string]sidecar.Trust{
		"token":       {CA: ca, TokenFile: write("node.token", []byte(node))},
		"certificate": {CA: ca, Cert: write("client.crt", client.Cert), Key: write("client.key", client.Key), ServerName: "localhost"},
	} {
		s := sidecar.DefaultConfig()
		s.NodeID, s.Domains, s.Store = name, []string{demoDomain}, sidecar.InMemory
		s.RLSListen = sidecar.Off
		s.ProxyListen, s.OpsListen, s.ControlPlane, s.Trust = "127.0.0.1:0", "127.0.0.1:0", plane.GRPCAddr().String(), trust
		gate, err := sidecar.New(t.Context(), s, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		running(t, gate.Run)
		harness.Eventually(t, 30*time.Second, func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+gate.OpsAddr().String()+"/readyz", nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("the sidecar with a %s has no rules: %s", name, resp.Status)
			}
			return nil
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// running runs a part until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// apply applies the demo rules as whoever has the token.
func apply(t *testing.T, address, ca, tokenFile string) {
	t.Helper()
	client, err := certs.NewClient(certs.Files{CA: ca}, "", certs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := certs.NewTokenFile(tokenFile, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(client.Credentials()), grpc.WithPerRPCCredentials(token))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = adminpb.NewAdminServiceClient(conn).Apply(t.Context(), &adminpb.ApplyRequest{
		Files: []*adminpb.File{{Name: "demo.yaml", Content: demoRules}},
	})
	if err != nil {
		t.Fatal(err)
	}
}
