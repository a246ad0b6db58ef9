// Command go-service is a plain Go service as it stands behind a headgate sidecar: it knows nothing of limits.
//
// It listens on loopback, so that nobody comes past the sidecar, and learns who the client is from X-Forwarded-For, which
// the sidecar writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	if err := run(*listen); err != nil {
		log.Fatal(err)
	}
}

func run(listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: listen, Handler: http.HandlerFunc(hello), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	log.Printf("listening on %s", listen)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Let requests under way end. The sidecar in front stops taking new ones by itself when it is told to stop.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(drain)
}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "%s %s for %s\n", r.Method, r.URL.Path, r.Header.Get("X-Forwarded-For")) //nolint:gosec // plain text
}
