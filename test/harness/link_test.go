package harness_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/test/harness"
)

// ask sends a line and returns the first line of the answer, "" when the connection ends instead.
func ask(t *testing.T, c net.Conn, line string) string {
	t.Helper()
	if _, err := c.Write([]byte(line + "\r\n")); err != nil {
		return ""
	}
	answer, _ := bufio.NewReader(c).ReadString('\n')
	return answer
}

func TestLinkPassesSwallowsAndMends(t *testing.T) {
	t.Parallel()
	l := harness.NewLink(t, harness.RedisAddr(t))
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := dial()
	if got := ask(t, first, "PING"); got != "+PONG\r\n" {
		t.Errorf("a whole link answers %q", got)
	}
	l.Swallow()
	if err := first.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, first, "PING"); got != "" {
		t.Errorf("a link that swallows answers %q", got)
	}
	dial() // new connections are accepted all the same
	l.Mend()
	if got := ask(t, dial(), "PING"); got != "+PONG\r\n" {
		t.Errorf("a mended link answers %q", got)
	}
}

// What a client says arrives, and no answer does.
func TestLinkThatSwallowsAnswersPassesOnWhatIsAsked(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	l := harness.NewLink(t, server.Addr)
	far, err := net.Dial("tcp", l.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	near, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	ask(t, far, "PING")
	l.SwallowAnswers()
	if _, err := far.Write([]byte("SET key 7\r\n")); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 10*time.Second, func() error {
		if got := ask(t, near, "EXISTS key"); got != ":1\r\n" {
			return fmt.Errorf("asked whether the key is there, the server answers %q", got)
		}
		if l.Broken() == 0 { // the answer that is on its way would pass a link that is mended now
			return errors.New("no answer has vanished yet")
		}
		return nil
	})
	l.Mend()
	if err := far.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := far.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a connection that lost its answer has %d bytes more, %v: want that it is broken off", n, err)
	}
}
