package redislimit

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer makes connections that are ready for a decision: logged in, in their database, with the script loaded. The
// client library would do that in the time of the first request that is given the connection, and three round trips are
// too many for a budget of 5 ms: on a busy machine that was more than half of the decisions that failed.
type dialer struct {
	tls    *tls.Config
	login  []byte // commands that must succeed
	logins int    // how many
	load   []byte // loads the script; a server that refuses is asked with EVAL
}

func newDialer(o *Options) *dialer {
	d := &dialer{tls: o.TLS, load: command("SCRIPT", "LOAD", decideLua)}
	login := func(args ...string) {
		d.login = append(d.login, command(args...)...)
		d.logins++
	}
	switch {
	case o.Username != "":
		login("AUTH", o.Username, o.Password)
	case o.Password != "":
		login("AUTH", o.Password)
	}
	if o.DB != 0 {
		login("SELECT", strconv.Itoa(o.DB))
	}
	return d
}

// command encodes a command as Redis reads it.
func command(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

func (d *dialer) dial(ctx context.Context, network, addr string) (_ net.Conn, err error) {
	var plain net.Dialer
	conn, err := plain.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if tcp, ok := conn.(*net.TCPConn); ok {
		conn = &patient{TCPConn: tcp}
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if d.tls != nil {
		encrypted := tls.Client(conn, d.serverName(addr))
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = encrypted
	}
	if err := d.setUp(conn); err != nil {
		return nil, fmt.Errorf("set up a connection to redis: %w", err)
	}
	return conn, conn.SetDeadline(time.Time{})
}

func (d *dialer) serverName(addr string) *tls.Config {
	c := d.tls
	if host, _, err := net.SplitHostPort(addr); err == nil && c.ServerName == "" {
		c = c.Clone()
		c.ServerName = host
	}
	return c
}

func (d *dialer) setUp(conn net.Conn) error {
	if _, err := conn.Write(append(d.login[:len(d.login):len(d.login)], d.load...)); err != nil {
		return err
	}
	replies := bufio.NewReader(conn)
	for range d.logins {
		line, err := replies.ReadString('\n')
		if err != nil {
			return err
		}
		if line[0] == '-' {
			return errors.New(strings.TrimSpace(line[1:]))
		}
	}
	line, err := replies.ReadString('\n')
	if err != nil || line[0] != '$' {
		return err
	}
	size, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil {
		return fmt.Errorf("not a reply of redis: %q", line)
	}
	_, err = io.CopyN(io.Discard, replies, int64(size)+2)
	return err
}

// A read is late when it ends this much after its deadline: then this process was kept from running, by others on the
// machine or by itself.
const late = time.Millisecond

// errLate marks a deadline that says more of this process than of the store.
var errLate = errors.New("this process was kept from running")

// patient is a connection that does not take its own pauses for the server's. The first thing that a process finds which
// was kept from running is that its time is over; the answer that came meanwhile is still in the socket, or its server was
// kept from running too. So a read that is late looks again, once, for a moment: the decision has waited its time.
type patient struct {
	*net.TCPConn

	deadline time.Time // of reads; each connection has one user at a time
}

// SetDeadline implements net.Conn.
func (p *patient) SetDeadline(t time.Time) error {
	p.deadline = t
	return p.TCPConn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (p *patient) SetReadDeadline(t time.Time) error {
	p.deadline = t
	return p.TCPConn.SetReadDeadline(t)
}

func (p *patient) Read(b []byte) (int, error) {
	n, err := p.TCPConn.Read(b)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(p.deadline) < late {
		return n, err
	}
	if err := p.SetReadDeadline(time.Now().Add(late)); err != nil {
		return 0, err
	}
	n, err = p.TCPConn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && time.Since(p.deadline) >= late {
		err = fmt.Errorf("%w: %w", errLate, err)
	}
	return n, err
}

// greeted answers the client library's greeting: the dialer has set the connection up.
type greeted struct{}

func (greeted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (greeted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (greeted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" {
			return nil
		}
		return next(ctx, cmd)
	}
}
