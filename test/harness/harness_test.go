package harness_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func TestPostgresGivesEachTestItsOwnEmptyDatabase(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, harness.Postgres(t))
			// Fails in a database that another of these has used.
			if _, err := conn.Exec(t.Context(), "CREATE TABLE only_mine (n int)"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPostgresIsNotSetUpToHideMistakes(t *testing.T) {
	t.Parallel()
	if os.Getenv("TEST_POSTGRES_URL") != "" {
		t.Log("a server of somebody else's: set up as they like")
		return
	}
	conn := connect(t, harness.Postgres(t))
	var zone string
	if err := conn.QueryRow(t.Context(), "SHOW timezone").Scan(&zone); err != nil {
		t.Fatal(err)
	}
	if zone == "UTC" {
		t.Error("the server's time zone is UTC; a query that relies on it would not be found")
	}
	var version int
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	var byteOrder bool
	if err := conn.QueryRow(t.Context(), "SELECT 'B' < 'a'").Scan(&byteOrder); err != nil {
		t.Fatal(err)
	}
	if byteOrder && version >= 150_000 {
		t.Error("the server sorts text by bytes; a query that relies on it would not be found")
	}
}

func newRedis(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ReadTimeout: 200 * time.Millisecond, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestRedisIsLostAndComesBackEmptyOnTheSameAddress(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	client := newRedis(t, server.Addr)
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}

	server.Kill()
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed Redis answered")
	}

	server.Restart()
	if err := client.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("got %v from a restarted Redis, want no such key", err)
	}
}

func TestRedisPausedAnswersNothingAndKeepsItsData(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	client := newRedis(t, server.Addr)
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}

	server.Pause()
	var timeout net.Error
	if err := client.Get(t.Context(), "k").Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("got %v from a paused Redis, want a timeout", err)
	}

	server.Resume()
	harness.Eventually(t, 10*time.Second, func() error { return client.Get(t.Context(), "k").Err() })
}

func TestRedisAddrAnswers(t *testing.T) {
	t.Parallel()
	if err := newRedis(t, harness.RedisAddr(t)).Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestFreeAddrGivesNoAddressTwice(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 50 {
		addr := harness.FreeAddr(t)
		if seen[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		seen[addr] = true
	}
}

func TestProcessIsReadWhileItRuns(t *testing.T) {
	t.Parallel()
	p := harness.Start(t, "shell", "sh", "-c", `
		trap 'echo bye; exit 3' INT
		echo ready on out
		echo ready on err >&2
		while :; do read line; done`)
	if got := p.WaitLog("on err"); got != "ready on err" {
		t.Errorf("got line %q", got)
	}
	p.WaitLog("on out")
	if got := p.Stdout(); got != "ready on out\n" {
		t.Errorf("got standard output %q", got)
	}
	mark := p.Mark()

	var exit *exec.ExitError
	if err := p.Interrupt(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v, want exit status 3", err)
	}
	p.WaitLogSince(mark, "bye")
	p.Kill() // of one that has ended does nothing
}

func TestBuildCompilesACommandOnce(t *testing.T) {
	t.Parallel()
	binary := harness.Build(t, "./test/harness/testdata/hello")
	if again := harness.Build(t, "./test/harness/testdata/hello"); again != binary {
		t.Errorf("built twice: %s and %s", binary, again)
	}
	p := harness.Start(t, "hello", binary)
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	if got := p.Stdout(); got != "hello\n" {
		t.Errorf("got %q", got)
	}
}

// TestServersDieWithTheTestProcess kills a test process that uses both servers, and
// expects both to be gone. Without it, a test run that is stopped leaves servers behind.
func TestServersDieWithTheTestProcess(t *testing.T) {
	t.Parallel()
	// The killed process cannot tidy up, so its files go where this test tidies up. The
	// user that Postgres runs as has to get there.
	tmp := t.TempDir()
	if err := os.Chmod(filepath.Dir(tmp), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperHoldsServers$", "-test.v")
	cmd.Env = append(os.Environ(), "HARNESS_HOLD_SERVERS=1", "TEST_POSTGRES_URL=", "TMPDIR="+tmp)
	p := harness.StartCmd(t, "test process", cmd)
	_, list, _ := strings.Cut(p.WaitLog("servers: "), "servers: ")
	p.Kill()
	for addr := range strings.FieldsSeq(list) {
		harness.Eventually(t, 20*time.Second, func() error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return nil
			}
			return errors.Join(fmt.Errorf("a server still listens on %s", addr), conn.Close())
		})
	}
}

// TestHelperHoldsServers is the process that TestServersDieWithTheTestProcess kills.
func TestHelperHoldsServers(t *testing.T) {
	if os.Getenv("HARNESS_HOLD_SERVERS") == "" {
		return
	}
	config, err := pgx.ParseConfig(harness.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("servers: %s %s:%d\n", harness.Redis(t).Addr, config.Host, config.Port)
	<-t.Context().Done() // held until killed
}

// TestMainFailsAPackageThatLeaks runs a test that passes and leaves a goroutine behind.
func TestMainFailsAPackageThatLeaks(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperLeaks$")
	cmd.Env = append(os.Environ(), "HARNESS_LEAK=1")
	p := harness.StartCmd(t, "test process", cmd)
	if err := p.Wait(); err == nil {
		t.Error("a package that leaks a goroutine passed")
	}
	p.WaitLog("goroutines were leaked")
}

// TestHelperLeaks is the test that TestMainFailsAPackageThatLeaks runs.
func TestHelperLeaks(_ *testing.T) {
	if os.Getenv("HARNESS_LEAK") == "" {
		return
	}
	go func() { select {} }()
}
