package app_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/cmd/controlplane/app"
)

// A stop that came before the gRPC server had begun to serve was told as an error: the program ended with exit code 1.
func TestStopBeforeItServesIsNoError(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for range 10 { // mostly the stop is first, and sometimes not
		c := app.DefaultConfig()
		c.Database, c.GRPCListen, c.HTTPListen = filepath.Join(t.TempDir(), "headgate.db"), "127.0.0.1:0", "127.0.0.1:0"
		a, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(stopped); err != nil {
			t.Fatal(err)
		}
	}
}
