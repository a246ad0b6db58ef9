package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/certs/certstest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds every wait for something that is expected to happen.
const patience = 20 * time.Second

func tomorrow() time.Time  { return time.Now().Add(24 * time.Hour) }
func yesterday() time.Time { return time.Now().Add(-time.Hour) }

// logBuffer is written by one goroutine and read by another.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// world is a folder with the files of a server and a client.
type world struct {
	t        *testing.T
	dir      string
	log      *logBuffer
	registry *prometheus.Registry
}

func setup(t *testing.T) *world {
	t.Helper()
	return &world{t: t, dir: t.TempDir(), log: &logBuffer{}, registry: prometheus.NewRegistry()}
}

func (w *world) write(name string, pair certstest.Pair) certs.Files {
	w.t.Helper()
	return certs.Files{Cert: certstest.Write(w.t, pair.Cert, w.dir, name+".crt"), Key: certstest.Write(w.t, pair.Key, w.dir, name+".key")}
}

func (w *world) ca(name string, authorities ...*certstest.Authority) string {
	w.t.Helper()
	var all []byte
	for _, a := range authorities {
		all = append(all, a.PEM...)
	}
	return certstest.Write(w.t, all, w.dir, name+".crt")
}

func (w *world) options() certs.Options {
	return certs.Options{Log: slog.New(slog.NewTextHandler(w.log, nil)), Registerer: w.registry}
}

func (w *world) server(files certs.Files) *certs.Server {
	w.t.Helper()
	s, err := certs.NewServer(files, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) client(files certs.Files, name string) *certs.Client {
	w.t.Helper()
	c, err := certs.NewClient(files, name, certs.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// metric returns the value of a metric without labels.
func (w *world) metric(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	w.t.Fatalf("there is no metric %s", name)
	return 0
}

// dial makes one connection over TLS and a word each way, and returns the serial number of the server's certificate.
// With TLS 1.3 a client learns only from the answer that its certificate was refused.
func dial(ctx context.Context, server *certs.Server, client *certs.Client, authority string) (serial string, err error) {
	var d net.Dialer
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	served := make(chan struct{})
	go func() {
		defer close(served)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = raw.Close() }()
		conn, _, err := server.Credentials().ServerHandshake(raw)
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("hello"))
		_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
		_ = conn.Close()
	}()
	defer func() { <-served }()
	raw, err := d.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	defer func() { _ = raw.Close() }()
	conn, info, err := client.Credentials().ClientHandshake(ctx, authority, raw)
	if err != nil {
		return "", err
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		return "", err
	}
	shown, ok := info.(credentials.TLSInfo)
	if !ok {
		return "", fmt.Errorf("the handshake gave a %T", info)
	}
	return shown.State.PeerCertificates[0].SerialNumber.String(), nil
}

func (w *world) wantRefused(server *certs.Server, client *certs.Client, authority, want string) {
	w.t.Helper()
	if _, err := dial(w.t.Context(), server, client, authority); err == nil || !strings.Contains(err.Error(), want) {
		w.t.Errorf("got %v, want an error that says %q", err, want)
	}
}

func (w *world) wantAccepted(server *certs.Server, client *certs.Client, authority string) string {
	w.t.Helper()
	serial, err := dial(w.t.Context(), server, client, authority)
	if err != nil {
		w.t.Error(err)
	}
	return serial
}

func TestBothSidesCheckEachOther(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ours, foreign := certstest.New(t), certstest.New(t)
	files := w.write("server", ours.Server(tomorrow()))
	files.CA = w.ca("clients", ours)
	server := w.server(files)
	trusting := certs.Files{CA: w.ca("servers", ours)}
	with := func(name string, pair certstest.Pair) certs.Files {
		f := w.write(name, pair)
		f.CA = trusting.CA
		return f
	}
	w.wantAccepted(server, w.client(with("client", ours.Client(tomorrow(), "n1")), ""), "localhost:1")
	w.wantAccepted(server, w.client(with("client", ours.Client(tomorrow(), "n1")), ""), "127.0.0.1:1")
	w.wantAccepted(server, w.client(trusting, ""), "localhost:1")
	w.wantAccepted(server, w.client(trusting, "localhost"), "localhost")

	w.wantRefused(server, w.client(trusting, ""), "elsewhere:1", "not elsewhere")
	w.wantRefused(server, w.client(trusting, ""), "127.0.0.2:1", "not 127.0.0.2")
	w.wantRefused(server, w.client(certs.Files{CA: w.ca("foreign", foreign)}, ""), "localhost:1", "signed by unknown authority")
	w.wantRefused(server, w.client(certs.Files{}, ""), "localhost:1", "signed by unknown authority")
	w.wantRefused(server, w.client(with("foreign", foreign.Client(tomorrow(), "n1")), ""), "localhost:1", "unknown certificate authority")
	w.wantRefused(server, w.client(with("expired", ours.Client(yesterday(), "n1")), ""), "localhost:1", "expired certificate")
	w.wantRefused(server, w.client(with("usage", ours.Server(tomorrow())), ""), "localhost:1", "bad certificate")
	if n := w.metric("headgate_tls_handshake_failures_total"); n < 3 {
		t.Errorf("%v failed handshakes were counted", n)
	}
	if !strings.Contains(w.log.String(), "TLS handshake failed") {
		t.Errorf("the log says nothing of the failed handshakes: %q", w.log)
	}

	w = setup(t)
	expired := w.server(w.write("server", ours.Server(yesterday())))
	w.wantRefused(expired, w.client(trusting, ""), "localhost:1", "expired")
	if !strings.Contains(w.log.String(), "certificate has expired") {
		t.Errorf("the log does not say that the certificate has expired: %q", w.log)
	}
}

func TestFilesThatCannotBeUsedAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := certstest.New(t)
	one, other := w.write("one", a.Server(tomorrow())), w.write("other", a.Server(tomorrow()))
	garbage := certstest.Write(t, []byte("not PEM"), w.dir, "garbage")
	damaged := certstest.Write(t, append(bytes.Clone(a.PEM), bytes.Replace(a.PEM, []byte("MI"), []byte("AA"), 1)...), w.dir, "damaged")
	for _, c := range []struct {
		name  string
		files certs.Files
		want  string
	}{
		{"no certificate", certs.Files{}, "needs a certificate"},
		{"missing file", certs.Files{Cert: filepath.Join(w.dir, "none"), Key: one.Key}, filepath.Join(w.dir, "none")},
		{"key of another", certs.Files{Cert: one.Cert, Key: other.Key}, "does not match"},
		{"garbage", certs.Files{Cert: garbage, Key: one.Key}, garbage},
		{"garbage as authorities", certs.Files{Cert: one.Cert, Key: one.Key, CA: garbage}, "no certificate in it"},
		{"a damaged authority", certs.Files{Cert: one.Cert, Key: one.Key, CA: damaged}, "certificate 2"},
		{"a key as authority", certs.Files{Cert: one.Cert, Key: one.Key, CA: one.Key}, "EC PRIVATE KEY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := certs.NewServer(c.files, certs.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
	if _, err := certs.NewClient(certs.Files{Cert: one.Cert}, "", certs.Options{}); err == nil {
		t.Error("a client's certificate was taken without its key")
	}
}

// reloads waits until the condition holds for a new connection.
func (w *world) reloads(check func() error) {
	w.t.Helper()
	harness.Eventually(w.t, patience, check)
}

func TestBrokenFilesLeaveTheOldOnesAndAreToldOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := certstest.New(t)
	files := w.write("server", a.Server(tomorrow()))
	server, client := w.server(files), w.client(certs.Files{CA: w.ca("ca", a)}, "")
	old := w.wantAccepted(server, client, "localhost:1")
	broken := func(failures float64, say string) {
		t.Helper()
		w.reloads(func() error {
			if serial := w.wantAccepted(server, client, "localhost:1"); serial != old {
				t.Fatalf("the certificate is %s, want the old one, %s", serial, old)
			}
			if n := w.metric("headgate_tls_reload_failures_total"); n != failures {
				return fmt.Errorf("%v failures, want %v", n, failures)
			}
			return nil
		})
		if !strings.Contains(w.log.String(), say) {
			t.Errorf("the log does not say %q: %s", say, w.log)
		}
	}
	certstest.Write(t, []byte("half"), files.Cert)
	broken(1, "failed to find any PEM data")
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	broken(2, "no such file")
	w.write("server", a.Server(yesterday()))
	broken(3, "it expired on")
	// Looked at again and again, it is still one failure.
	looked := time.Now()
	w.reloads(func() error {
		w.wantAccepted(server, client, "localhost:1")
		if time.Since(looked) < 2500*time.Millisecond {
			return fmt.Errorf("not looked at twice yet")
		}
		return nil
	})
	broken(3, "it expired on")
	if n := strings.Count(w.log.String(), "cannot be used"); n != 3 {
		t.Errorf("logged %d times, want 3: %s", n, w.log)
	}

	until := tomorrow().Add(time.Hour).Truncate(time.Second)
	w.write("server", a.Server(until))
	w.reloads(func() error {
		if serial := w.wantAccepted(server, client, "localhost:1"); serial == old {
			return fmt.Errorf("still the old certificate")
		}
		return nil
	})
	if at := w.metric("headgate_tls_certificate_expires_timestamp_seconds"); at != float64(until.Unix()) {
		t.Errorf("the certificate expires at %v, want %d", at, until.Unix())
	}
}

func TestAuthoritiesAreFollowedAtBothEnds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first, second := certstest.New(t), certstest.New(t)
	files := w.write("server", first.Server(tomorrow()))
	files.CA = w.ca("clients", first)
	own := w.write("client", first.Client(tomorrow(), "n1"))
	own.CA = w.ca("servers", first)
	server, client := w.server(files), w.client(own, "")
	w.wantAccepted(server, client, "localhost:1")

	// The server no longer takes the authority of the client's certificate.
	w.ca("clients", second)
	w.reloads(func() error {
		if _, err := dial(t.Context(), server, client, "localhost:1"); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
			return fmt.Errorf("got %w, want a refusal", err)
		}
		return nil
	})
	// The client's next one is of the new authority, and so is the server's.
	w.write("client", second.Client(tomorrow(), "n1"))
	w.ca("servers", first, second)
	w.write("server", second.Server(tomorrow()))
	w.reloads(func() error {
		_, err := dial(t.Context(), server, client, "localhost:1")
		return err
	})
	w.ca("servers", first)
	w.reloads(func() error {
		if _, err := dial(t.Context(), server, client, "localhost:1"); err == nil {
			return fmt.Errorf("a server of an authority that is no longer trusted was accepted")
		}
		return nil
	})
}

// Kubernetes writes a secret into a new folder, and moves the link ..data to it; the files are links through that one.
func TestRotationUnderLoadFailsNoHandshake(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := certstest.New(t)
	secret := func(n int) {
		pair := a.Server(tomorrow())
		folder := fmt.Sprintf("..%d", n)
		if err := os.Mkdir(filepath.Join(w.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		certstest.Write(t, pair.Cert, w.dir, folder, "tls.crt")
		certstest.Write(t, pair.Key, w.dir, folder, "tls.key")
		certstest.Write(t, a.PEM, w.dir, folder, "ca.crt")
		next := filepath.Join(w.dir, "..data_tmp")
		if err := os.Symlink(folder, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(w.dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	secret(0)
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(w.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(w.dir, name) }
	server := w.server(certs.Files{Cert: in("tls.crt"), Key: in("tls.key"), CA: in("ca.crt")})
	own := w.write("client", a.Client(tomorrow(), "n1"))
	own.CA = in("ca.crt")
	client := w.client(own, "")

	ctx, stop := context.WithCancel(t.Context())
	var serials sync.Map
	var handshakes atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				serial, err := dial(t.Context(), server, client, "localhost:1")
				if err != nil {
					t.Error(err)
					return
				}
				serials.Store(serial, true)
				handshakes.Add(1)
			}
		})
	}
	seen := func() (n int) {
		serials.Range(func(any, any) bool { n++; return true })
		return n
	}
	for n := 1; n <= 3; n++ {
		secret(n)
		harness.Eventually(t, patience, func() error {
			if t.Failed() || seen() > n {
				return nil
			}
			return fmt.Errorf("%d certificates were seen after %d rotations", seen(), n)
		})
	}
	stop()
	callers.Wait()
	t.Logf("%d handshakes over 3 rotations", handshakes.Load())
}

func TestNothingBelowTLS12IsSpoken(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := certstest.New(t)
	server := w.server(w.write("server", a.Server(tomorrow())))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM)
	for most, want := range map[uint16]uint16{tls.VersionTLS11: 0, tls.VersionTLS12: tls.VersionTLS12, tls.VersionTLS13: tls.VersionTLS13} {
		ours, theirs := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = tls.Server(theirs, server.Config()).HandshakeContext(t.Context())
			_ = theirs.Close()
		}()
		conn := tls.Client(ours, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: most})
		err := conn.HandshakeContext(t.Context())
		if got := conn.ConnectionState().Version; (err == nil) != (want != 0) || err == nil && got != want {
			t.Errorf("a client with at most %s: got %s, %v", tls.VersionName(most), tls.VersionName(got), err)
		}
		_ = ours.Close()
		<-served
	}
}

func TestConnectionEndsWithTheClientsCertificate(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := certstest.New(t)
	files := w.write("server", a.Server(tomorrow()))
	files.CA = w.ca("ca", a)
	server := w.server(files)
	own := w.write("client", a.Client(time.Now().Add(3*time.Second), "n1"))
	own.CA = files.CA
	client := w.client(own, "")
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	served := make(chan error, 1)
	go func() {
		conn, _, err := server.Credentials().ServerHandshake(theirs)
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // for ever, but for the certificate
		}
		served <- err
	}()
	if _, _, err := client.Credentials().ClientHandshake(t.Context(), "localhost:1", ours); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, ours) }()
	select {
	case err := <-served:
		if err == nil {
			t.Error("the client said something")
		}
	case <-time.After(patience):
		t.Error("the connection is open after its certificate has expired")
	}
}
