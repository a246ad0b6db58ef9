package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// matching allows everything, and keeps what it was asked last.
type matching struct{ asked *rules.Request }

func (m *matching) Decide(_ context.Context, r *rules.Request) enforce.Decision {
	m.asked = r
	return enforce.Decision{Allowed: true}
}

func (m *matching) Malformed(_, detail string) enforce.Decision {
	return enforce.Decision{Reason: enforce.ReasonMalformed, Status: http.StatusBadRequest, Wait: enforce.Never, Detail: detail}
}

// kept is a service that keeps what reached it last, as it was written: a host is translated only then.
type kept struct{ got *http.Request }

func (k *kept) RoundTrip(r *http.Request) (*http.Response, error) {
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		return nil, err
	}
	var err error
	if k.got, err = http.ReadRequest(bufio.NewReader(&wire)); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, k.got.Body); err != nil { // after which the trailers are there
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// FuzzProxy: whatever is sent, there is an answer; and what reaches the service is what the rules saw.
func FuzzProxy(f *testing.F) {
	for _, seed := range []string{
		"GET /v1//./%6cogin?a=%2f HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST http://a:b@H.:80/x/../y HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab",
		"GET /a%2fb HTTP/1.1\r\nHost: h\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, X-Api-Key\r\nUpgrade: h2c\r\nX-Api-Key: k\r\nX-Forwarded-For: ,\r\n\r\n",
		"GET /;/..;/x HTTP/1.0\r\nTe: trailers\r\nX_Plan: p\r\nForwarded: for=x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: sh\u00f6p.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h/x\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: \u00e4\r\n\r\n",
	} {
		f.Add(seed)
	}
	m, service := &matching{}, &kept{}
	p := New(m, Options{
		Domain: "d", Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Log: slog.New(slog.DiscardHandler), TrustedHeaders: []string{"X-Plan"},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	p.upstream.Transport = service
	f.Fuzz(func(t *testing.T, sent string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(sent)))
		if err != nil {
			return
		}
		r.RemoteAddr = "192.0.2.1:1234"
		m.asked, service.got = nil, nil
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest && w.Code != http.StatusBadGateway {
			t.Fatalf("status %d", w.Code)
		}
		if (service.got != nil) != (w.Code == http.StatusOK) {
			t.Fatalf("status %d, and forwarded: %v", w.Code, service.got != nil)
		}
		if service.got == nil {
			return
		}
		if got := service.got.URL.EscapedPath(); got != m.asked.Path {
			t.Errorf("matched %q, forwarded %q", m.asked.Path, got)
		}
		if service.got.Method != m.asked.Method || service.got.URL.RawQuery != m.asked.RawQuery || rules.NormalizeHost(service.got.Host) != m.asked.Host {
			t.Errorf("matched %+v, forwarded %s %s %s", m.asked, service.got.Method, service.got.Host, service.got.URL)
		}
		if service.got.Header.Get("X-Plan") != "" || m.asked.IP.String() != "192.0.2.1" {
			t.Errorf("an untrusted peer was believed: plan %q, client %s", service.got.Header.Get("X-Plan"), m.asked.IP)
		}
	})
}
