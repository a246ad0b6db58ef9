// Package check is the sidecar's door for proxies that ask before they forward: nginx (auth_request), Caddy
// (forward_auth), Traefik (ForwardAuth), HAProxy (Lua).
//
// The call describes another request in its headers, X-Forwarded-Method, -Uri, -Host and -For or X-Original-Method and
// -URI (or -URL), and carries that request's own headers. It is answered with 200 and the headers to copy, or with the
// refusal to pass on; nothing is forwarded. Where a proxy makes an error of its own of any refusal but one, as nginx does
// of all but 401 and 403, `?deny_status=403` gives every refusal that status, and Headgate-Status says what it would have
// been; Headgate-Reference is the reference of the refusal, for the body that the proxy then writes itself.
//
// A client may send such headers itself, through a proxy that sets the others. So what is said twice must be the same:
// a request that could be this or that is refused. What the proxy sets neither way, a client can choose.
package check

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/enforce/forwarded"
	"github.com/headgate/headgate/rules"
)

// Decider decides requests; [enforce.Engine] is one.
type Decider interface {
	Decide(ctx context.Context, req *rules.Request) enforce.Decision
	Malformed(domain, detail string) enforce.Decision
}

// Options say for whom the door answers.
type Options struct {
	// Domains are those that may be asked for with ?domain=; the first is asked without. There must be one.
	Domains []string
	// TrustedProxies may ask; without them, and without TrustedHops, whoever asks from this machine over loopback.
	TrustedProxies []netip.Prefix
	TrustedHops    int                   // as in [forwarded.Options]
	Registerer     prometheus.Registerer // nil: no metrics
}

// Door is the handler. It answers any method, reads no body, and takes as long as a decision does. It is safe for
// concurrent use.
type Door struct {
	decider Decider
	domains []string
	trust   *forwarded.Trust
}

// New returns the handler.
func New(decider Decider, o Options) *Door {
	if len(o.TrustedProxies) == 0 && o.TrustedHops == 0 {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return &Door{decider: decider, domains: slices.Clone(o.Domains), trust: forwarded.New(forwarded.Options{
		TrustedProxies: o.TrustedProxies, TrustedHops: o.TrustedHops, Registerer: o.Registerer,
	})}
}

// ServeHTTP answers whether the request that is described may pass.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	domain, deny, problem := d.settings(r.URL.RawQuery)
	var decision enforce.Decision
	if problem == "" {
		decision = d.decide(r, domain)
	} else {
		decision = d.decider.Malformed(domain, problem)
	}
	if decision.Allowed {
		w.Header().Set("Cache-Control", "no-store")
		answer.Add(w.Header(), &decision)
		return
	}
	if deny > 0 {
		w.Header().Set("Headgate-Status", strconv.Itoa(decision.Status))
		w.Header().Set("Headgate-Reference", decision.Reference)
		decision.Status = deny
	}
	answer.Refuse(w, &decision)
}

// settings are what the proxy's configuration wrote into the query.
func (d *Door) settings(query string) (domain string, deny int, problem string) {
	domain = d.domains[0]
	values, err := url.ParseQuery(query)
	if err != nil {
		return domain, 0, "The query of the check cannot be read."
	}
	if text := values.Get("deny_status"); text != "" {
		deny, err = strconv.Atoi(text)
		if err != nil || deny < 400 || deny > 599 {
			return domain, 0, "deny_status is not a number from 400 to 599."
		}
	}
	if asked := values.Get("domain"); asked != "" {
		if !slices.Contains(d.domains, asked) {
			return domain, deny, "The domain is none of those that this sidecar serves."
		}
		domain = asked
	}
	return domain, deny, ""
}

func (d *Door) decide(r *http.Request, domain string) enforce.Decision {
	if !d.trust.Believes(r) {
		return d.decider.Malformed(domain, "The check comes from an address that is not among the trusted proxies.")
	}
	o, problem := described(r)
	if problem != "" {
		return d.decider.Malformed(domain, problem)
	}
	return d.decider.Decide(r.Context(), &rules.Request{
		Domain: domain, Method: o.method, Host: o.host, Path: o.path, RawQuery: o.query,
		IP: d.trust.Address(r), Header: r.Header, Hits: 1,
	})
}

// original is the request that a check describes.
type original struct {
	method, host, path, query string
}

// described reads the request that a check is about, or says what keeps it from being known.
func described(r *http.Request) (o original, problem string) {
	methods := slices.Concat(r.Header["X-Forwarded-Method"], r.Header["X-Original-Method"])
	hosts := strings.Split(strings.Join(r.Header["X-Forwarded-Host"], ","), ",")
	var targets []string
	for _, name := range []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"} {
		for _, uri := range r.Header[name] {
			target, host := splitHost(uri)
			targets, hosts = append(targets, target), append(hosts, host)
		}
	}
	for i := range hosts {
		host := strings.TrimSpace(hosts[i])
		problem = cmp.Or(problem, rules.CheckHost(host))
		hosts[i] = rules.NormalizeHost(host)
	}
	methods, hosts, targets = said(methods), said(hosts), said(targets)
	switch {
	case problem != "":
		return o, problem
	case len(targets) == 0:
		return o, "Neither X-Forwarded-Uri nor X-Original-URI says what the check is about."
	case len(methods) > 1, len(hosts) > 1, len(targets) > 1:
		return o, "Headers say the method, the host or the target more than once, and not the same."
	}
	o = original{method: firstOf(methods, r.Method), host: firstOf(hosts, rules.NormalizeHost(r.Host))}
	if problem := rules.CheckMethod(o.method); problem != "" {
		return o, problem
	}
	if strings.ContainsAny(targets[0], "# \t") { // a proxy hands it on as it is, and the service may read what is before it
		return o, "The target has a fragment or a space, which are part of no target."
	}
	o.path, o.query, _ = strings.Cut(targets[0], "?")
	path, err := rules.NormalizePath(o.path)
	if err != nil {
		return o, "Bad target: " + err.Error() + "."
	}
	o.path = path
	return o, ""
}

// splitHost cuts an absolute target into what follows the host, and the host; of others all is the target.
func splitHost(uri string) (target, host string) {
	scheme, rest, absolute := strings.Cut(uri, "://")
	if !absolute || strings.ContainsAny(scheme, "/?") {
		return uri, ""
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		return "/", rest
	}
	if rest[end] == '?' {
		return "/" + rest[end:], rest[:end]
	}
	return rest[end:], rest[:end]
}

// said returns the distinct values, but for empty ones, which say nothing.
func said(values []string) []string {
	slices.Sort(values)
	values = slices.Compact(values)
	return slices.DeleteFunc(values, func(v string) bool { return v == "" })
}

func firstOf(values []string, otherwise string) string {
	if len(values) > 0 {
		return values[0]
	}
	return otherwise
}
