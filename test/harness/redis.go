package harness

import (
	"net"
	"os"
	"os/exec"
	"testing"
)

// RedisServer is a Redis of one test: empty, without persistence, on loopback.
type RedisServer struct {
	Addr string // host and port; the same after Restart

	tb      testing.TB
	binary  string
	dir     string
	process *Process
}

// RedisAddr returns the address of a Redis for a test that does not break it: the one
// named by TEST_REDIS_ADDR, or a fresh one. The former is shared, so the test must use
// keys of its own and leave global settings alone.
func RedisAddr(tb testing.TB) string {
	tb.Helper()
	if addr := os.Getenv("TEST_REDIS_ADDR"); addr != "" {
		return addr
	}
	return Redis(tb).Addr
}

// Redis starts a Redis that belongs to this test alone, ready to be asked.
func Redis(tb testing.TB) *RedisServer {
	tb.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatal("redis-server is not installed. Install it with\n  sudo apt-get install -y redis-server")
	}
	server := &RedisServer{Addr: FreeAddr(tb), tb: tb, binary: binary, dir: tb.TempDir()}
	server.start()
	return server
}

// Kill ends the server as a crash would. Its data is gone.
func (s *RedisServer) Kill() { s.process.Kill() }

// Pause stops the server where it stands: connections stay open and get no answer, and
// new ones are accepted by the kernel but not served. That is how a stuck server looks.
func (s *RedisServer) Pause() { s.tb.Helper(); s.process.Pause() }

// Resume lets a paused server go on, with its data.
func (s *RedisServer) Resume() { s.tb.Helper(); s.process.Resume() }

// Restart starts the server again on the same address, empty, after ending it if it
// still runs.
func (s *RedisServer) Restart() {
	s.tb.Helper()
	s.process.Kill()
	s.start()
}

func (s *RedisServer) start() {
	s.tb.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		s.tb.Fatalf("address of redis: %v", err)
	}
	s.process = Start(s.tb, "redis", s.binary,
		"--bind", host, "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	s.process.WaitLog("Ready to accept connections")
}
