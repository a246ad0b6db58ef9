package harness

import (
	"bytes"
	"strings"
	"sync"
)

// outputLog keeps what a process wrote and wakes who waits for more. It is safe for
// concurrent use.
type outputLog struct {
	mu      sync.Mutex
	buf     []byte
	ended   bool
	changed chan struct{} // closed and replaced at each change
}

func newOutputLog() *outputLog { return &outputLog{changed: make(chan struct{})} }

func (l *outputLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	close(l.changed)
	l.changed = make(chan struct{})
	return len(b), nil
}

// close says that no more will be written.
func (l *outputLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.changed)
	l.changed = make(chan struct{})
}

// changes returns a channel that is closed at the next change, and whether the log has
// ended. Take it before looking at the text, so that no change is missed between the two.
func (l *outputLog) changes() (next <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, l.ended
}

func (l *outputLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

func (l *outputLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buf)
}

// find returns the first whole line after mark that contains substring. A last line
// without its line feed counts only once the log has ended, since the rest may still come.
func (l *outputLog) find(mark int, substring string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := l.buf[mark:]; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if (whole || l.ended) && bytes.Contains(line, []byte(substring)) {
			return string(line), true
		}
		rest = after
	}
	return "", false
}

// tee writes to both logs. Unlike io.MultiWriter it is comparable and cannot fail.
type tee [2]*outputLog

func (t tee) Write(b []byte) (int, error) {
	_, _ = t[0].Write(b)
	return t[1].Write(b)
}

// tail shortens a long log to its end, where the reason of a failure usually is.
func tail(s string) string {
	const most = 64 << 10
	if len(s) <= most {
		return s
	}
	s = s[len(s)-most:]
	if _, after, ok := strings.Cut(s, "\n"); ok {
		s = after
	}
	return "[...]\n" + s
}
