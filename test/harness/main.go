package harness

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// shared holds what outlives a single test: it is released by Main, last acquired first.
var shared struct {
	mu      sync.Mutex
	inMain  bool
	release []func()
}

// Main runs the tests of a package, stops what they shared, and then fails the package
// if goroutines were left behind. It does not return. A package that failed anyway is not
// checked for leaks, since a failed test may have stopped half way.
func Main(m *testing.M, options ...goleak.Option) {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()

	code := m.Run()
	releaseShared()
	if code != 0 {
		os.Exit(code)
	}
	// The client library's goroutine that looks whether a Redis can be dialed again sleeps for a second before it sees that
	// its pool was closed.
	options = append(options, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
	if err := goleak.Find(options...); err != nil {
		fmt.Fprintf(os.Stderr, "goroutines were leaked by the tests of this package: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// AtEnd has Main call release after the last test of the package, last registered first. It is for what the tests of a
// package share and only the first one starts.
func AtEnd(tb testing.TB, release func()) {
	tb.Helper()
	needMain(tb)
	releaseAtEnd(release)
}

// releaseAtEnd registers what Main has to release.
func releaseAtEnd(release func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.release = append(shared.release, release)
}

func releaseShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for len(shared.release) > 0 {
		last := len(shared.release) - 1
		shared.release[last]()
		shared.release = shared.release[:last]
	}
}

// needMain fails a test whose package would never release what it is about to share.
func needMain(tb testing.TB) {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.inMain {
		tb.Fatal("this package shares a server or binaries among its tests: " +
			"add `func TestMain(m *testing.M) { harness.Main(m) }`, so that they are released at the end")
	}
}
