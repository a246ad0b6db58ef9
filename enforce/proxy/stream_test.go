package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/rules"
)

// always is a decider with one answer. Unlike decider it keeps nothing, so calls may be concurrent.
type always enforce.Decision

func (a always) Decide(context.Context, *rules.Request) enforce.Decision { return enforce.Decision(a) }

func (a always) Malformed(string, string) enforce.Decision { return enforce.Decision(a) }

// door is a proxy that serves, in front of a service.
type door struct {
	server *proxy.Server
	addr   string
	ended  chan error
}

func open(t *testing.T, decider proxy.Decider, upstream string, change ...func(*proxy.Options)) door {
	t.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	o := proxy.Options{Domain: "d", Upstream: target, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := door{server: proxy.NewServer(proxy.New(decider, o)), addr: l.Addr().String(), ended: make(chan error, 1)}
	go func() { d.ended <- d.server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = d.server.Shutdown(ctx)
	})
	return d
}

// service is an upstream.
func service(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// client has connections of its own, which end with the test.
func client(t *testing.T, protocol func(*http.Protocols, bool)) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	protocol(transport.Protocols, true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

var (
	http1 = (*http.Protocols).SetHTTP1
	h2c   = (*http.Protocols).SetUnencryptedHTTP2
)

// dial opens a bare connection to the door.
func (d door) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewReader(conn)
}

func (d door) request(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.addr+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reply is an answer whose body is closed with the test.
type reply struct{ *http.Response }

func do(t *testing.T, c *http.Client, r *http.Request) reply {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return reply{resp}
}

// receive reads an answer from a bare connection.
func receive(t *testing.T, in *bufio.Reader) reply {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return reply{resp}
}

// shouting upgrades, and then says everything back, louder.
func shouting(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString(strings.ToUpper(line))
		_ = rw.Flush()
	}
}

// upgrade opens a WebSocket-like connection.
func (d door) upgrade(t *testing.T) (net.Conn, *bufio.Reader, reply) {
	t.Helper()
	conn, in := d.dial(t)
	if _, err := io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn, in, receive(t, in)
}

func TestUpgradedConnectionsPassBothWays(t *testing.T) {
	t.Parallel()
	d := open(t, always{Allowed: true}, service(t, shouting))
	conn, in, resp := d.upgrade(t)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d, want 101", resp.StatusCode)
	}
	for range 3 {
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := in.ReadString('\n'); line != "HELLO\n" {
			t.Fatalf("got %q, %v", line, err)
		}
	}
}

func TestUpgradeIsLimitedLikeAnyRequest(t *testing.T) {
	t.Parallel()
	d := open(t, always{Status: http.StatusTooManyRequests}, service(t, shouting))
	if _, _, resp := d.upgrade(t); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", resp.StatusCode)
	}
}

func TestServerSentEventsArriveAtOnce(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1.1": http1, "HTTP/2": h2c} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := make(chan struct{})
			d := open(t, always{Allowed: true}, service(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3 {
					_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
					_ = http.NewResponseController(w).Flush()
					select { // the next one is only sent when this one was read
					case <-read:
					case <-r.Context().Done():
					}
				}
			}))
			in := bufio.NewReader(do(t, client(t, protocol), d.request(t, http.MethodGet, "/events", nil)).Body)
			for i := range 3 {
				line, err := in.ReadString('\n')
				if line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("got %q, %v", line, err)
				}
				_, _ = in.ReadString('\n')
				read <- struct{}{}
			}
		})
	}
}

func TestTrailersPassBothWays(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1.1": http1, "HTTP/2": h2c} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, always{Allowed: true}, service(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Announced")
				_, _ = io.Copy(w, r.Body)
				w.Header().Set("X-Announced", r.Trailer.Get("X-Sum"))
				w.Header().Set(http.TrailerPrefix+"X-Late", "late")
			}))
			r := d.request(t, http.MethodPost, "/", struct{ io.Reader }{strings.NewReader("body")})
			r.Trailer = http.Header{"X-Sum": {"42"}}
			resp := do(t, client(t, protocol), r)
			if body, err := io.ReadAll(resp.Body); string(body) != "body" {
				t.Errorf("body %q, %v", body, err)
			}
			if sum, late := resp.Trailer.Get("X-Announced"), resp.Trailer.Get("X-Late"); sum != "42" || late != "late" {
				t.Errorf("trailers %q and %q, want 42 and late", sum, late)
			}
		})
	}
}

// The service answers while the caller still sends.
func TestAnswerMayBeginBeforeTheBodyEnds(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1.1": http1, "HTTP/2": h2c} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, always{Allowed: true}, service(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex()
				in := bufio.NewReader(r.Body)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = io.WriteString(w, line)
					_ = http.NewResponseController(w).Flush()
				}
			}))
			body, send := io.Pipe()
			go func() { _, _ = io.WriteString(send, "one\n") }()
			resp := do(t, client(t, protocol), d.request(t, http.MethodPost, "/", body))
			in := bufio.NewReader(resp.Body)
			for _, want := range []string{"one\n", "two\n", "three\n"} {
				if want != "one\n" {
					_, _ = io.WriteString(send, want)
				}
				if got, err := in.ReadString('\n'); got != want {
					t.Fatalf("got %q, %v; want %q", got, err, want)
				}
			}
			_ = send.Close()
		})
	}
}

// zeros is a body of so many bytes.
func zeros(n int64) io.Reader { return io.LimitReader(nothing{}, n) }

type nothing struct{}

func (nothing) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A body that is held somewhere would show in the heap.
func TestLargeBodiesTakeNoMemory(t *testing.T) {
	size := int64(1 << 30)
	if os.Getenv("CI") != "" {
		size = 128 << 20
	}
	d := open(t, always{Allowed: true}, service(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	resp := do(t, client(t, http1), d.request(t, http.MethodPost, "/", zeros(size)))
	buffer := make([]byte, 1<<20)
	var got int64
	var most uint64
	for step := int64(0); ; {
		n, err := resp.Body.Read(buffer)
		if got += int64(n); got >= step {
			step += size / 16
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(most) - int64(before.HeapAlloc); got != size || grown > 32<<20 {
		t.Errorf("%d of %d bytes came back, and the heap grew by %d KiB, want below 32 MiB", got, size, grown>>10)
	}
}

func TestCallerThatGoesEndsTheRequestBehind(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1.1": http1, "HTTP/2": h2c} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, gone := make(chan struct{}), make(chan struct{})
			d := open(t, always{Allowed: true}, service(t, func(_ http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-r.Context().Done()
				close(gone)
			}))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-arrived
				cancel()
			}()
			resp, err := client(t, protocol).Do(d.request(t, http.MethodGet, "/", nil).WithContext(ctx))
			if err == nil {
				_ = resp.Body.Close()
				t.Fatalf("answered with %d", resp.StatusCode)
			}
			<-gone
		})
	}
}

// echo starts a gRPC server that sends each message back, whatever the method.
func echo(t *testing.T) string {
	t.Helper()
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			var m wrapperspb.StringValue
			if err := stream.RecvMsg(&m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(&m); err != nil {
				return err
			}
		}
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return "http://" + l.Addr().String()
}

func (d door) stream(t *testing.T) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(d.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/shop.v1.Cart/Add")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGRPCStreamsPass(t *testing.T) {
	t.Parallel()
	s := open(t, always{Allowed: true}, echo(t)).stream(t)
	for i := range 3 {
		said, got := wrapperspb.String(fmt.Sprint(i)), &wrapperspb.StringValue{}
		if err := s.SendMsg(said); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(got); err != nil || got.GetValue() != said.GetValue() {
			t.Fatalf("got %q, %v; want %q", got.GetValue(), err, said.GetValue())
		}
	}
	_ = s.CloseSend()
	if err := s.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestRefusedGRPCCallIsToldWhenToRetry(t *testing.T) {
	t.Parallel()
	s := open(t, always{Status: http.StatusTooManyRequests, Reason: enforce.ReasonOverLimit, Wait: 1500 * time.Millisecond}, echo(t)).stream(t)
	_ = s.CloseSend()
	err := s.RecvMsg(&wrapperspb.StringValue{})
	st := status.Convert(err)
	var delay time.Duration
	for _, detail := range st.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			delay = retry.GetRetryDelay().AsDuration()
		}
	}
	if st.Code() != codes.ResourceExhausted || delay != 2*time.Second {
		t.Errorf("got %v with a delay of %v, want RESOURCE_EXHAUSTED and 2 s", err, delay)
	}
}

func TestServiceThatSpeaksOnlyHTTP2(t *testing.T) {
	t.Parallel()
	upstream := service(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	d := open(t, always{Allowed: true}, "h2c"+strings.TrimPrefix(upstream, "http"))
	if body, err := io.ReadAll(do(t, client(t, http1), d.request(t, http.MethodGet, "/", nil)).Body); string(body) != "HTTP/2.0" {
		t.Errorf("the service was asked by %q, %v", body, err)
	}
}
