package app_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/test/harness"
)

// Two sidecars with one file overwrote what the other had saved, and nobody was told.
func TestLastGoodFileIsOfOneSidecar(t *testing.T) {
	t.Parallel()
	c := config()
	c.ControlPlane, c.LastGood = harness.FreeAddr(t), filepath.Join(t.TempDir(), "last-good")
	_, stop := launch(t, c, slog.New(slog.DiscardHandler))
	_, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler))
	if want := "--last-good " + c.LastGood + ": another sidecar uses it"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the second got %v, want %s", err, want)
	}
	stop()
	_, stop = launch(t, c, slog.New(slog.DiscardHandler)) // it is free again
	stop()

	var log bytes.Buffer
	c.LastGood = filepath.Join(t.TempDir(), "no-such-folder", "last-good")
	_, stop = launch(t, c, slog.New(slog.NewTextHandler(&log, nil)))
	stop()
	if !strings.Contains(log.String(), "nothing keeps another sidecar from the file") {
		t.Errorf("logged %s", log.String())
	}
}
