package harness

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreeAddr returns a loopback address, host and port, on which nothing listens and which
// no other test is given.
//
// The ports lie below the range from which the kernel takes the ports of outgoing
// connections. So an address whose server is down for a while is not taken by somebody's
// connection, nor can a client that keeps dialling it end up connected to itself.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, ok := freeAddr()
	if !ok {
		tb.Fatal("found no free port on 127.0.0.1 between 20000 and 32000")
	}
	return addr
}

func freeAddr() (string, bool) {
	for range 1000 {
		port := 20_000 + rand.IntN(12_000)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = listener.Close()
		if reservePort(port) {
			return addr, true
		}
	}
	return "", false
}
