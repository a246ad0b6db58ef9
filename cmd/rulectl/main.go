// Command rulectl changes rate limits and shows what became of them: see `rulectl help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/cmd/internal/ending"
	"github.com/headgate/headgate/cmd/rulectl/cli"
)

func main() { os.Exit(run()) }

func run() int {
	hangup, stopHangup := ending.Hangup()
	defer stopHangup()
	ctx, stop := signal.NotifyContext(hangup, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, os.Args[1:], cli.Standard())
	if hangup.Err() != nil && code == cli.Interrupted {
		return cli.HungUp
	}
	return code
}
