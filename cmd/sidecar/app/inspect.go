package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// maxInquiry bounds the form of an inquiry: eight values of a key, each as long as a header may be.
const maxInquiry = 256 << 10

// inspectDoor is the part of the operations port that says where one key of a rule stands. It changes nothing. The values
// of the key are only read from the body, so that no log of requests has them; nor are they in any answer. No browser may
// ask: it would ask for any page, also for one whose name was made to point here, so that it passes for a page of this site.
type inspectDoor struct {
	engine  *enforce.Engine
	domains []string // that this sidecar serves
}

func (d *inspectDoor) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /inspect", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			answerInspection(w, nil, fmt.Errorf("%w: a page in a browser may not ask; use rulectl inspect", rules.ErrForbidden))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxInquiry)
		a, err := d.inspect(r)
		answerInspection(w, a, err)
	})
}

type inspectAnswer struct {
	Domain   string             `json:"domain"`
	Rule     string             `json:"rule"`
	Revision int64              `json:"revision"` // of the domain
	State    string             `json:"state"`    // in words
	Percent  float64            `json:"percent"`  // of keys for which the candidate binds
	InCohort *bool              `json:"inCohort"` // null: it depends on the client address, which was not given
	Versions []inspectedVersion `json:"versions"` // the stable first
}

type inspectedVersion struct {
	Version     int64            `json:"version"`
	Candidate   bool             `json:"candidate"`
	Part        string           `json:"part"` // binds, what-if, frozen or either
	FrozenUntil *time.Time       `json:"frozenUntil,omitempty"`
	Key         []string         `json:"key"`               // its sources
	Unknown     string           `json:"unknown,omitempty"` // why there are no limits
	Limits      []inspectedLimit `json:"limits"`
}

// inspectedLimit has times in seconds, rounded up; -1 where no waiting helps.
type inspectedLimit struct {
	Name          string     `json:"name,omitempty"`
	Rate          string     `json:"rate"` // for this key
	By            string     `json:"by,omitempty"`
	OverrideUntil *time.Time `json:"overrideUntil,omitempty"`
	Spent         int64      `json:"spent"`
	Left          int64      `json:"left"`
	Wait          int64      `json:"wait"`  // until a call of cost 1 passes; 0: it would now
	Reset         int64      `json:"reset"` // until nothing of what was spent counts any more
}

func (d *inspectDoor) inspect(r *http.Request) (*inspectAnswer, error) {
	if err := r.ParseForm(); err != nil {
		return nil, fmt.Errorf("%w: the form cannot be read", rules.ErrInvalid) // its error may have a value in it
	}
	if r.URL.RawQuery != "" {
		return nil, fmt.Errorf("%w: the parameters belong in the body, where no log has them", rules.ErrInvalid)
	}
	known := []string{"domain", "rule", "key", "ip", "plan"}
	for name, values := range r.PostForm {
		if !slices.Contains(known, name) || len(values) > 1 && name != "key" {
			return nil, fmt.Errorf("%w: a parameter is not known or repeated: use %s; only key more than once", rules.ErrInvalid, strings.Join(known, ", "))
		}
	}
	q := enforce.Inquiry{
		Domain: r.PostForm.Get("domain"), Rule: r.PostForm.Get("rule"), Key: r.PostForm["key"], Plan: r.PostForm.Get("plan"),
	}
	if q.Domain == "" && len(d.domains) == 1 {
		q.Domain = d.domains[0]
	}
	if !slices.Contains(d.domains, q.Domain) {
		return nil, fmt.Errorf("%w: domain %q is not served here: this sidecar has %s", rules.ErrNotFound, q.Domain, strings.Join(d.domains, ", "))
	}
	if ip := r.PostForm.Get("ip"); ip != "" {
		var err error
		if q.IP, err = netip.ParseAddr(ip); err != nil {
			return nil, fmt.Errorf("%w: ip is not an address", rules.ErrInvalid)
		}
	}
	found, err := d.engine.Inspect(r.Context(), q)
	if err != nil {
		return nil, err
	}
	return newInspectAnswer(found), nil
}

func newInspectAnswer(in *enforce.Inspection) *inspectAnswer {
	a := &inspectAnswer{
		Domain: in.Rule.Domain, Rule: in.Rule.Name, Revision: in.Revision, State: in.Rule.State(),
		Percent: float64(in.Rule.Percent) / 100, InCohort: in.InCohort, Versions: []inspectedVersion{},
	}
	for _, v := range in.Versions {
		shown := inspectedVersion{
			Version: v.Version.Number, Candidate: v.Version == in.Rule.Candidate, Part: string(v.Part), FrozenUntil: instant(v.FrozenUntil),
			Key: []string{}, Unknown: v.Unknown, Limits: []inspectedLimit{},
		}
		for _, k := range v.Version.Spec.Key {
			shown.Key = append(shown.Key, k.String())
		}
		for n, l := range v.Limits {
			by := ""
			if source := v.Version.Spec.Limits[n].By; source != nil {
				by = source.String()
			}
			shown.Limits = append(shown.Limits, inspectedLimit{
				Name: l.Name, Rate: l.Rate.String(), By: by, OverrideUntil: instant(l.Override), Spent: l.Spent, Left: l.Left,
				Wait: seconds(l.Wait), Reset: seconds(l.Reset),
			})
		}
		a.Versions = append(a.Versions, shown)
	}
	return a
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func seconds(d time.Duration) int64 {
	if d == enforce.Never {
		return -1
	}
	return int64(math.Ceil(d.Seconds()))
}

func answerInspection(w http.ResponseWriter, a *inspectAnswer, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	var body any = a
	if err != nil {
		body = map[string]string{"error": err.Error()}
		status := http.StatusBadRequest
		switch {
		case errors.Is(err, rules.ErrNotFound):
			status = http.StatusNotFound
		case errors.Is(err, rules.ErrForbidden):
			status = http.StatusForbidden
		case errors.Is(err, rules.ErrUnavailable):
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	}
	_ = json.NewEncoder(w).Encode(body) // whoever asked may be gone
}
