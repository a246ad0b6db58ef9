package cli

import (
	"net"
	"net/url"
	"strings"
)

// withPort adds the port of a control plane to an address that is a host alone.
func withPort(server string) string {
	host := strings.Trim(server, "[]")
	if host == "" || strings.Contains(host, "/") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return server
	}
	return net.JoinHostPort(host, defaultPort)
}

// checkServer refuses what gRPC would take for something else: an address without a port means 443 to it. What has a scheme
// of its own, such as unix:/path, is gRPC's.
func checkServer(server string) error {
	host, given, err := net.SplitHostPort(server)
	scheme, rest, _ := strings.Cut(server, "://")
	switch {
	case server == "":
		return usagef("--server is empty: name the control plane as HOST:PORT")
	case scheme == "http" || scheme == "https":
		return usagef("--server %s: that is a URL: name the gRPC port of the control plane as HOST:PORT, such as %s",
			server, net.JoinHostPort((&url.URL{Host: strings.TrimRight(rest, "/")}).Hostname(), defaultPort))
	case strings.HasPrefix(server, "unix:") || strings.Contains(server, ":///"):
		return nil
	case err != nil || given == "" || host == "":
		return usagef("--server %q is not HOST:PORT, such as %s; a control plane has gRPC at port %s, unless it was told otherwise",
			server, defaultServer, defaultPort)
	}
	return nil
}

// How gRPC's texts of a connection that was never made go on.
const (
	dialing     = "Error while dialing: "
	handshaking = "authentication handshake failed: "
	noHandshake = "first record does not look like a TLS handshake"
	noPreface   = "error reading server preface"
	noFrame     = "frame too large" // which is how the text of HTTP/1 reads as a frame
	noAddress   = "name resolver error"
)

// connectionTrouble says why there is no answer, and the ways out. Only gRPC's texts tell the cases apart; a wording that
// this does not know costs a better hint and nothing else. Known: no request has got there.
func (a *app) connectionTrouble(text string) (what string, ways []string, known bool) {
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has(handshaking) && has(noHandshake):
		return "what answers at " + a.server + " has no TLS",
			[]string{"when it is a control plane without TLS: leave out --tls and its like, or take them out of the context"}, true
	case has(handshaking):
		return "there is no TLS with the control plane at " + a.server + ": " + after(text, handshaking),
			[]string{"its certificate: --tls-ca FILE, --tls-server-name NAME; yours: --tls-cert FILE --tls-key FILE"}, true
	case has(dialing):
		return "no control plane answers at " + a.server + ": " + after(text, dialing),
			[]string{"name another: --server HOST:PORT, or RULECTL_SERVER", "(sidecars go on without it; to try headgate on this machine: controlplane dev)"}, true
	case has(noAddress):
		return "no machine is known by the name in " + a.server, []string{"name the control plane: --server HOST:PORT, or RULECTL_SERVER"}, true
	case has(noPreface) && has(noFrame):
		return "what answers at " + a.server + " is not the gRPC port of a control plane",
			[]string{"name that: --server HOST:PORT, or RULECTL_SERVER (18000, unless it was told otherwise; 7070 is its HTTP port)"}, true
	case has(noPreface) && !a.proof.usesTLS():
		return "what answers at " + a.server + " closes the connection: it serves with TLS, or is no control plane",
			[]string{"with TLS: --tls, or --tls-ca FILE where the authority is one of your own"}, true
	}
	return "the connection to the control plane at " + a.server + " broke before it answered: " + text, nil, false
}

// after is the part of gRPC's text that says why there is no connection.
func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return strings.ReplaceAll(strings.TrimSuffix(rest, `"`), `\"`, `"`)
}
