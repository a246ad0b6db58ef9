package app_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// A stop broke forms off, so that nobody knew whether they had been done.
func TestStopEndsStreamsAndLetsFormsEnd(t *testing.T) {
	t.Parallel()
	c := app.DefaultConfig()
	c.Database, c.GRPCListen, c.HTTPListen = filepath.Join(t.TempDir(), "headgate.db"), "127.0.0.1:0", "127.0.0.1:0"
	a, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	// ask sends a request, and reads to the line with the text.
	ask := func(request, until string) *bufio.ReadWriter {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", a.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		both := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
		if err := errors.Join(conn.SetDeadline(time.Now().Add(patience)), send(both, request)); err != nil {
			t.Fatal(err)
		}
		for line := ""; !strings.Contains(line, until); {
			if line, err = both.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return both
	}
	host := "Host: " + a.HTTPAddr().String() + "\r\n"
	stream := ask("GET / HTTP/1.1\r\n"+host+"Accept: text/event-stream\r\n\r\n", "event: live-")
	form := ask("POST /d/api/do/freeze HTTP/1.1\r\n"+host+"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n", "100 Continue")
	stop()
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if err := send(form, "for=15m"); err != nil {
		t.Fatal(err)
	}
	if _, err = form.ReadString('\n'); err != nil { // ends the 100
		t.Fatal(err)
	}
	if line, err := form.ReadString('\n'); !strings.Contains(line, "404") {
		t.Errorf("the form is answered with %q, %v", line, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func send(to *bufio.ReadWriter, text string) error {
	_, err := to.WriteString(text)
	return errors.Join(err, to.Flush())
}
