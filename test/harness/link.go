package harness

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Link is a TCP connection to a server that can go bad: it listens on an address of its own, and passes on what it gets,
// or late, or not at all.
type Link struct {
	Addr string // what clients connect to

	to       string
	listener net.Listener

	mu     sync.Mutex
	delay  time.Duration
	mended chan struct{} // nil while the link is whole; closed when it is whole again
	asks   bool          // while it is not: what clients say is passed on
	broken int           // connections that have lost bytes
	conns  map[net.Conn]struct{}
}

// NewLink returns a link to a server, which passes everything on.
func NewLink(tb testing.TB, to string) *Link {
	tb.Helper()
	l := &Link{Addr: FreeAddr(tb), to: to, conns: map[net.Conn]struct{}{}}
	listener, err := net.Listen("tcp", l.Addr)
	if err != nil {
		tb.Fatalf("listen for a link: %v", err)
	}
	l.listener = listener
	var all sync.WaitGroup
	all.Go(func() { l.accept(&all) })
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Mend()
		l.mu.Lock()
		for c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		all.Wait()
	})
	return l
}

// Swallow lets every byte vanish, of connections that are there and of new ones, which are accepted as ever. Nobody is
// told, as when a firewall drops packets.
func (l *Link) Swallow() { l.swallow(false) }

// SwallowAnswers lets what the server says vanish, and passes on what it is told: so it does what it is asked, and nobody
// learns of it.
func (l *Link) SwallowAnswers() { l.swallow(true) }

func (l *Link) swallow(asks bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks = asks
	if l.mended == nil {
		l.mended = make(chan struct{})
	}
}

// Broken is how many connections have lost bytes, in either direction, and are broken off when the link is mended.
func (l *Link) Broken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Delay makes each answer come that much later.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Mend makes the link whole. Connections that lost bytes are broken off.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = 0
	if l.mended != nil {
		close(l.mended)
		l.mended = nil
	}
}

func (l *Link) accept(all *sync.WaitGroup) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = struct{}{}, struct{}{}
		l.mu.Unlock()
		all.Go(func() { l.pass(client, server, false) })
		all.Go(func() { l.pass(server, client, true) })
	}
}

// pass passes on one direction of a connection, and ends both when one ends.
func (l *Link) pass(from, to net.Conn, answers bool) {
	defer func() {
		_, _ = from.Close(), to.Close()
		l.mu.Lock()
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		delay, mended := l.delay, l.mended
		vanishes := mended != nil && (answers || !l.asks)
		if vanishes {
			l.broken++
		}
		l.mu.Unlock()
		if vanishes {
			<-mended
			return
		}
		if answers && delay > 0 {
			<-time.After(delay)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
