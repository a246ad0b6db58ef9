package browser

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/test/harness"
)

const install = "no Chromium is installed. Install it with\n  sudo apt-get install -y chromium\n" +
	"and on Ubuntu, which has it as a snap, as test/tools/deps.sh says"

// shared is the browser of this test process, once a test has asked for it.
var shared struct {
	mu  sync.Mutex
	ctx context.Context
}

// chromium returns the context of the browser, of which tabs are made.
func chromium(tb testing.TB) context.Context {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ctx != nil {
		return shared.ctx
	}
	binary, err := find()
	if err != nil {
		tb.Fatal(err)
	}
	// The library takes care of what is easily forgotten: no sandbox where the test runs as root, no /dev/shm, which is small
	// in containers, and a process that the kernel kills with this one.
	allocator, stopped := chromedp.NewExecAllocator(context.Background(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary), chromedp.WindowSize(width, height))...)
	ctx, stop := chromedp.NewContext(allocator)
	harness.AtEnd(tb, func() { stop(); stopped() })
	if err := chromedp.Do(ctx); err != nil {
		tb.Fatalf("start %s: %v", binary, err)
	}
	shared.ctx = ctx
	return ctx
}

func find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New(install)
}
