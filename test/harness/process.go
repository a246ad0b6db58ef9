package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long the harness waits for something that should happen at once. It is
// generous, since a loaded machine under the race detector is slow, and only a failing
// test ever waits that long.
const patience = 60 * time.Second

// Process is a program that a test started. It is killed when the test ends, and its
// output is logged if the test failed.
type Process struct {
	Name string

	tb   testing.TB
	cmd  *exec.Cmd
	log  *outputLog // both streams, as they came
	out  *outputLog // standard output alone
	done chan struct{}
	err  error // of Wait; may be read once done is closed
}

// Start runs the program at path. Name is what the test calls it in failures.
func Start(tb testing.TB, name, path string, args ...string) *Process {
	tb.Helper()
	return StartCmd(tb, name, exec.Command(path, args...))
}

// StartCmd is Start for a command with its own environment or directory. The command's
// output belongs to the Process, so Stdout and Stderr must be unset.
func StartCmd(tb testing.TB, name string, cmd *exec.Cmd) *Process {
	tb.Helper()
	p, err := spawn(name, cmd)
	if err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	p.tb = tb
	tb.Cleanup(func() {
		p.Kill()
		// A data race in a child is as much a failure as one in the test itself, and its
		// exit status is lost when it is killed.
		if strings.Contains(p.Log(), "WARNING: DATA RACE") {
			tb.Errorf("%s: the race detector found a data race", name)
		}
		if tb.Failed() {
			tb.Logf("output of %s (%s):\n%s", name, p.state(), tail(p.Log()))
		}
	})
	return p
}

// spawn starts cmd so that it dies with this process.
//
// Linux sends the parent-death signal when the thread that started the child ends, not
// when the process does. So each child gets a goroutine that is locked to its thread from
// before the start until the child is gone.
func spawn(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, cmd: cmd, log: newOutputLog(), out: newOutputLog(), done: make(chan struct{})}
	cmd.Stdout = tee{p.out, p.log}
	cmd.Stderr = p.log
	// A grandchild that outlives the child keeps the pipes open; do not wait for it.
	cmd.WaitDelay = 5 * time.Second
	dieWithParent(cmd)

	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		p.log.close()
		p.out.close()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Done is closed when the process has ended and all its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns what the process wrote so far to both streams.
func (p *Process) Log() string { return p.log.text() }

// Stdout returns what the process wrote so far to standard output.
func (p *Process) Stdout() string { return p.out.text() }

// PID returns the process id, also after the process has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process as a crash would, with SIGKILL, and waits until it is gone. It
// does nothing to a process that has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the only failure is that it has ended
	<-p.done
}

// Interrupt asks the process to stop, as Ctrl-C does, and waits for it. It returns what
// exec.Cmd.Wait returned: nil for exit status 0. A process that does not stop in time is
// made to print its goroutines, and fails the test.
func (p *Process) Interrupt() error {
	p.tb.Helper()
	p.signal(os.Interrupt)
	return p.Wait()
}

// Wait waits until the process ends by itself, and returns what exec.Cmd.Wait returned.
// One that does not end in time is made to print its goroutines, and fails the test.
func (p *Process) Wait() error {
	p.tb.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
	}
	p.signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		p.Kill()
	}
	p.tb.Fatalf("%s did not end within %v", p.Name, patience)
	return nil
}

// Pause stops the process where it stands: it keeps its connections and answers nothing.
func (p *Process) Pause() { p.tb.Helper(); p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.tb.Helper(); p.signal(syscall.SIGCONT) }

func (p *Process) signal(s os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Fatalf("send %v to %s: %v", s, p.Name, err)
	}
}

// WaitLog waits until the process has written a line that contains substring, to either
// stream, and returns the first such line. Lines written before the call count. It fails
// the test when the process ends without writing one, or none comes in time.
func (p *Process) WaitLog(substring string) string {
	p.tb.Helper()
	return p.WaitLogSince(0, substring)
}

// Mark returns the present end of the log, for WaitLogSince.
func (p *Process) Mark() int { return p.log.len() }

// WaitLogSince is WaitLog for lines written after mark was taken.
func (p *Process) WaitLogSince(mark int, substring string) string {
	p.tb.Helper()
	line, err := p.waitLog(mark, substring)
	if err != nil {
		p.tb.Fatalf("%s: %v", p.Name, err)
	}
	return line
}

func (p *Process) waitLog(mark int, substring string) (string, error) {
	late := time.After(patience)
	for {
		changed, ended := p.log.changes()
		if line, ok := p.log.find(mark, substring); ok {
			return line, nil
		}
		if ended {
			return "", fmt.Errorf("ended (%s) without logging %q", p.state(), substring)
		}
		select {
		case <-changed:
		case <-late:
			return "", fmt.Errorf("did not log %q within %v", substring, patience)
		}
	}
}

// state says how the process ended, for failure texts.
func (p *Process) state() string {
	select {
	case <-p.done:
		return p.cmd.ProcessState.String()
	default:
		return "running"
	}
}
