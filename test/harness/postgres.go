package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

const installPostgres = "initdb and postgres are not installed. Install them with\n  sudo apt-get install -y postgresql"

// postgresAdmin returns the URL of an administrator's database, starting the server of
// this test process when TEST_POSTGRES_URL names none. A failure is kept: the next test
// would only fail in the same way, slowly.
var postgresAdmin = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("TEST_POSTGRES_URL"); url != "" {
		return url, nil
	}
	return startPostgres()
})

// Postgres returns the URL of a fresh, empty database, which is dropped when the test
// ends. The server is the one named by TEST_POSTGRES_URL, whose user must be allowed to
// create databases, or else one that this test process starts and shares among its tests.
//
// That server is set up unlike a developer's habit on purpose: it sorts text by the rules
// of English and its time zone is not UTC. A query that quietly relies on byte order or on
// the server's zone gives itself away.
func Postgres(tb testing.TB) string {
	tb.Helper()
	needMain(tb)
	admin, err := postgresAdmin()
	if err != nil {
		tb.Fatalf("start postgres: %v", err)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	name := "headgate_test_" + hex.EncodeToString(random[:])
	// From template0, to which nobody connects: parallel tests would be refused a copy of
	// template1 while somebody looks at it.
	if err := execSQL(admin, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		tb.Fatalf("create a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := execSQL(admin, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("drop the database of the test: %v", err)
		}
	})
	database, err := url.Parse(admin)
	if err != nil {
		tb.Fatalf("TEST_POSTGRES_URL: %v", err)
	}
	database.Path = "/" + name
	return database.String()
}

// execSQL runs one statement on a connection of its own.
func execSQL(url, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// startPostgres makes a database cluster in a temporary folder, serves it on a free
// loopback port until Main releases it, and returns the URL of its administrator.
func startPostgres() (string, error) {
	initdb, err := findPostgres("initdb")
	if err != nil {
		return "", err
	}
	postgres, err := findPostgres("postgres")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "headgate-postgres-")
	if err != nil {
		return "", err
	}
	releaseAtEnd(func() { _ = os.RemoveAll(dir) })
	credential, err := unprivileged(dir)
	if err != nil {
		return "", err
	}
	// Both run in dir: the working directory may be closed to the user they run as.
	command := func(path string, args ...string) *exec.Cmd {
		cmd := exec.Command(path, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd
	}

	data := filepath.Join(dir, "data")
	args := []string{"--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C.UTF-8"}
	if majorVersion(initdb) >= 15 { // before that, ICU rules could not be a cluster's default
		args = append(args, "--locale-provider", "icu", "--icu-locale", "en-US")
	}
	if out, err := command(initdb, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}

	addr, ok := freeAddr()
	if !ok {
		return "", errors.New("no free port")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	args = []string{"-D", data, "-p", port}
	for _, setting := range []string{
		"listen_addresses=" + host,
		"unix_socket_directories=", // none: their paths may not be long, and temporary folders may
		"max_connections=200",
		"timezone=Asia/Kathmandu",
		"lc_messages=C", // the line waited for below is in English
		// The data need not outlive the machine. It still outlives the server's clients.
		"fsync=off", "full_page_writes=off",
	} {
		args = append(args, "-c", setting)
	}
	server, err := spawn("postgres", command(postgres, args...))
	if err != nil {
		return "", err
	}
	releaseAtEnd(func() {
		_ = server.cmd.Process.Signal(syscall.SIGQUIT) // the immediate stop, which also ends its workers
		<-server.Done()
	})
	if _, err := server.waitLog(0, "database system is ready to accept connections"); err != nil {
		return "", fmt.Errorf("%w\n%s", err, tail(server.Log()))
	}
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable", nil
}

// findPostgres looks where Debian keeps the server's binaries, out of PATH, as well.
func findPostgres(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	paths, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		return "", err
	}
	newest, best := "", -1
	for _, path := range paths {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err == nil && version > best {
			newest, best = path, version
		}
	}
	if newest == "" {
		return "", errors.New(installPostgres)
	}
	return newest, nil
}

// majorVersion returns 15 for `initdb (PostgreSQL) 15.3 (Debian …)`, and 0 when in doubt.
func majorVersion(initdb string) int {
	out, err := exec.Command(initdb, "--version").Output()
	if err != nil {
		return 0
	}
	_, text, _ := strings.Cut(string(out), "(PostgreSQL) ")
	text, _, _ = strings.Cut(text, ".")
	version, _ := strconv.Atoi(text)
	return version
}

// unprivileged returns whom to run Postgres as, and gives that user dir. Postgres refuses
// to run as root, which a container's tests often are. Nil means: as whoever runs the test.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres refuses to run as root, and there is neither a user postgres nor nobody")
}
