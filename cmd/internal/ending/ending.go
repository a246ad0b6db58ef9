// Package ending says when a program has to end: at Ctrl-C, when it is told to (SIGTERM), and when its terminal is closed
// (SIGHUP). It ends in all three cases as it should, and not at once: sidecars say goodbye, so that nobody waits for them.
package ending

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context returns a context that ends when the program has to. After stop signals have their usual effect again.
func Context() (ctx context.Context, stop context.CancelFunc) {
	hangup, stopHangup := Hangup()
	ctx, stopSignals := signal.NotifyContext(hangup, os.Interrupt, syscall.SIGTERM)
	return ctx, func() { stopSignals(); stopHangup() }
}

// Hangup returns a context that ends when the terminal is closed. Of a program that was started to survive that, by nohup,
// it does not end.
func Hangup() (ctx context.Context, stop context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(context.Background())
	}
	return signal.NotifyContext(context.Background(), syscall.SIGHUP)
}
