package harness_test

import (
	"bufio"
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
