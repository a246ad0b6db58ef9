package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/rules"
)

// freezeDoor is the part of the operations port that freezes this sidecar alone. It asks nobody who they are, so it takes
// a freeze only from this machine, whoever else the port serves: who may log in here, or forward a port to here, may.
// Requests that a browser makes for another site are refused, since the pages that people of this host look at reach
// loopback too.
type freezeDoor struct {
	glass   *breakGlass
	domains []string // that this sidecar serves
}

func (f *freezeDoor) register(mux *http.ServeMux) {
	sameSite := http.NewCrossOriginProtection()
	sameSite.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil, fmt.Errorf("%w: another site's page may not freeze", rules.ErrForbidden))
	}))
	handle := func(pattern string, act func(*http.Request) (*freezesAnswer, error)) {
		mux.Handle(pattern, sameSite.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
			if r.Method == http.MethodPost && (!fromHere(r) || !namedByAddress(r)) {
				answer(w, nil, fmt.Errorf("%w: a freeze is taken from this machine only: log in to it, or forward a port (ssh -L, kubectl port-forward)", rules.ErrForbidden))
				return
			}
			a, err := act(r)
			answer(w, a, err)
		})))
	}
	handle("POST /freeze", f.freeze)
	handle("POST /unfreeze", f.unfreeze)
	handle("GET /freezes", func(*http.Request) (*freezesAnswer, error) { return f.freezes(""), nil })
}

// fromHere reports whether the peer is on this machine.
func fromHere(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// namedByAddress reports whether the caller reached this port by an address, or as localhost. Another name may be one that a
// foreign page has let point to here, so that its requests pass for those of its own site.
func namedByAddress(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// freezesAnswer is what stands after a request.
type freezesAnswer struct {
	Freezes []shownFreeze `json:"freezes"` // in force
	Warning string        `json:"warning,omitempty"`
}

type shownFreeze struct {
	Domain          string    `json:"domain"`
	Rule            string    `json:"rule,omitempty"`
	Until           time.Time `json:"until"`
	IncludingClosed bool      `json:"includingClosed,omitempty"`
	Source          string    `json:"source"`          // "controlplane", or "sidecar" where it was made here
	Actor           string    `json:"actor,omitempty"` // of one that was made here, as the client said
}

func answer(w http.ResponseWriter, a *freezesAnswer, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	var body any = a
	if err != nil {
		body = map[string]string{"error": err.Error()}
		switch {
		case errors.Is(err, rules.ErrNotFound):
			w.WriteHeader(http.StatusNotFound)
		case errors.Is(err, rules.ErrForbidden):
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	_ = json.NewEncoder(w).Encode(body) // whoever asked may be gone
}

func (f *freezeDoor) freeze(r *http.Request) (*freezesAnswer, error) {
	if err := parse(r, "domain", "rule", "for", "including_closed", "actor"); err != nil {
		return nil, err
	}
	domain, rule, err := f.target(r)
	if err != nil {
		return nil, err
	}
	length, err := time.ParseDuration(r.Form.Get("for"))
	if err != nil || length <= 0 || length > rules.MaxFreeze {
		return nil, fmt.Errorf("%w: for=%s: say for how long, as for=15m; at most %v", rules.ErrInvalid, r.Form.Get("for"), rules.MaxFreeze)
	}
	including := false
	if r.Form.Has("including_closed") {
		if including, err = strconv.ParseBool(r.Form.Get("including_closed")); err != nil {
			return nil, fmt.Errorf("%w: including_closed is true or false", rules.ErrInvalid)
		}
	}
	warning, err := f.glass.freeze(domain, rules.Freeze{Rule: rule, IncludingClosed: including}, length, actor(r))
	if err != nil {
		return nil, err
	}
	return f.freezes(warning), nil
}

func (f *freezeDoor) unfreeze(r *http.Request) (*freezesAnswer, error) {
	if err := parse(r, "domain", "rule", "actor"); err != nil {
		return nil, err
	}
	domain, rule := r.Form.Get("domain"), r.Form.Get("rule") // one that is gone meanwhile can be unfrozen too
	if domain == "" && len(f.domains) == 1 {
		domain = f.domains[0]
	}
	warning, err := f.glass.unfreeze(domain, rule, actor(r))
	if err != nil {
		return nil, err
	}
	return f.freezes(warning), nil
}

// parse reads the form. A parameter that is not known is refused: what was meant by it would not happen.
func parse(r *http.Request, known ...string) error {
	if err := r.ParseForm(); err != nil {
		return fmt.Errorf("%w: %w", rules.ErrInvalid, err)
	}
	for name, values := range r.Form {
		if !slices.Contains(known, name) || len(values) > 1 {
			return fmt.Errorf("%w: parameter %q: use %s, each once", rules.ErrInvalid, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// target returns the domain and the rule that a freeze is for. Without a domain it is the only one that is served.
func (f *freezeDoor) target(r *http.Request) (domain, rule string, err error) {
	domain, rule = r.Form.Get("domain"), r.Form.Get("rule")
	if domain == "" && len(f.domains) == 1 {
		domain = f.domains[0]
	}
	if !slices.Contains(f.domains, domain) {
		return "", "", fmt.Errorf("%w: domain %q is not served here: this sidecar has %s", rules.ErrNotFound, domain, strings.Join(f.domains, ", "))
	}
	if rule == "" {
		return domain, "", nil
	}
	x := f.glass.engine.Index(domain)
	if x == nil || !slices.ContainsFunc(x.Rules(), func(r *rules.Rule) bool { return r.Name == rule }) {
		return "", "", fmt.Errorf("%w: rule %q is not in force here; without rule= the whole domain %s is frozen", rules.ErrNotFound, rule, domain)
	}
	return domain, rule, nil
}

// actor is who asks, as the client says, made fit to be logged and stored: a freeze is not refused for its name.
func actor(r *http.Request) string {
	const most = 200 // bytes
	name := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, r.Form.Get("actor"))
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	if name == "" {
		return "unknown"
	}
	return name
}

func (f *freezeDoor) freezes(warning string) *freezesAnswer {
	a := &freezesAnswer{Freezes: []shownFreeze{}, Warning: warning}
	actors := f.glass.actors()
	for _, in := range f.glass.engine.Freezes() {
		shown := shownFreeze{
			Domain: in.Domain, Rule: in.Freeze.Rule, Until: in.Freeze.Until.UTC(), IncludingClosed: in.Freeze.IncludingClosed, Source: "controlplane",
		}
		if in.Here {
			shown.Source, shown.Actor = "sidecar", actors[target(in.Domain, in.Freeze.Rule)]
		}
		a.Freezes = append(a.Freezes, shown)
	}
	return a
}
