package certs_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/certs/certstest"
)

func TestTokenFileIsReadAgainForEachCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := certstest.Write(t, []byte("hg_one\n"), dir, "token")
	var log bytes.Buffer
	f, err := certs.NewTokenFile(path, false, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	want := func(token string) {
		t.Helper()
		got, err := f.GetRequestMetadata(t.Context())
		if err != nil || got["authorization"] != "Bearer "+token {
			t.Errorf("got %v, %v, want %s", got, err, token)
		}
	}
	want("hg_one")
	certstest.Write(t, []byte("  hg_two  "), path)
	want("hg_two")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("hg_two")
	want("hg_two")
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, log.String())
	}
	certstest.Write(t, []byte("hg_three"), path)
	want("hg_three")
	if strings.Contains(log.String(), "hg_") {
		t.Errorf("a token is in the log: %s", log.String())
	}
	if !f.RequireTransportSecurity() {
		t.Error("the token may travel in the clear")
	}
}

func TestTokenFileThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty": " \n", "two": "hg_secret\nhg_secret", "long": strings.Repeat("hg_secret", 1000), "binary": "hg_secret\x00",
	} {
		path := certstest.Write(t, []byte(content), dir, name)
		_, err := certs.NewTokenFile(path, false, nil)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hg_secret") {
			t.Errorf("%s: got %v, want an error that names the file and not its content", name, err)
		}
	}
	if _, err := certs.NewTokenFile(filepath.Join(dir, "none"), false, nil); err == nil {
		t.Error("a missing file was accepted")
	}
}
