// Command fanout measures the push, prints the figures as a table in Markdown, and ends: see package load and its
// RESULTS.md. Run it as
//
//	go run ./test/load/fanout
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/headgate/headgate/test/load"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		load.Serve(load.Pipes{ReadCloser: os.Stdin, WriteCloser: os.Stdout})
		return
	}
	var o load.Options
	flag.IntVar(&o.Subscribers, "subscribers", 1000, "how many there are")
	flag.IntVar(&o.Rules, "rules", 10_000, "of the domain that is measured")
	flag.IntVar(&o.Few, "few", 100, "rules of the small domain; 0 leaves it out")
	flag.IntVar(&o.Compared, "compared", 1000, "rules in the comparison with LinearCache; 0 leaves it out")
	flag.IntVar(&o.Changes, "changes", 20, "of one rule, that are measured")
	flag.IntVar(&o.Clients, "clients", 100, "real clients in the rollback; 0 leaves it out")
	flag.BoolVar(&o.Memory, "memory", false, "a ledger in memory in place of SQLite")
	inProcess := flag.Bool("in-process", false, "subscribers in this process: heap is then both halves'")
	profile := flag.String("cpuprofile", "", "write a profile of this process to the file")
	flag.Parse()
	if err := run(o, *inProcess, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
}

const childFlag = "-child"

func run(o load.Options, inProcess bool, profile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if !inProcess {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		o.Program, o.Args = program, []string{childFlag}
	}
	if o.Clients > 0 {
		dir, err := os.MkdirTemp("", "headgate-load-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.Rulectl = filepath.Join(dir, "rulectl")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.Rulectl, "github.com/headgate/headgate/cmd/rulectl")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(build.Args, " "), err, out)
		}
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return load.Run(ctx, o, os.Stdout)
}
