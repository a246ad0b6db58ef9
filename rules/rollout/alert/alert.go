package alert

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally/spike"
)

// Kind is what an alert is about.
type Kind string

// The kinds.
const (
	Refused     Kind = "refused"
	WouldRefuse Kind = "would_refuse" // by a version that is only judged: nobody is refused
)

// Severity is whom an alert is for.
type Severity string

// The severities.
const (
	Page Severity = "page" // somebody has to look now
	Info Severity = "info"
)

// Hits is who is hit.
type Hits string

// The answers.
const (
	Many      Hits = "many"
	OneClient Hits = "one_client" // more than four fifths of it is one caller's
	Everybody Hits = "everybody"  // the key tells no callers apart
	Unknown   Hits = "unknown"    // no node has said yet
)

// oneClient is the share of the top key above which one client is being stopped, and not the rule wrong.
const oneClient = 0.8

// maxKeys is how many of the keys an alert shows.
const maxKeys = 5

// Alert says that one version of a rule refuses, or would refuse, far more than it used to.
type Alert struct {
	// ID is the version, the kind and the time: whoever finds the same alert gives it the same one.
	ID       string   `json:"id"`
	Domain   string   `json:"domain"`
	Rule     string   `json:"rule"`
	UID      string   `json:"uid"` // of the rule
	Version  int64    `json:"version"`
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	State    string   `json:"state"` // where the rule stood when it fired, in words

	// Evidence is why it fired, and Hits, Distinct and Keys who was hit then.
	Evidence spike.Evidence `json:"evidence"`
	Hits     Hits           `json:"hits"`
	Distinct int64          `json:"distinct"` // about how many keys
	Keys     []Key          `json:"keys"`     // those that are hit most
	// Estimate: of WouldRefuse, other rules refused as well.
	Estimate bool `json:"estimate,omitempty"`

	Offers []Offer `json:"offers"`

	Since    time.Time `json:"since"`    // UTC
	Resolved time.Time `json:"resolved"` // zero: it fires
	Ending   string    `json:"ending"`   // why it is resolved

	Delivered []Delivery `json:"-"`
}

// Key is one of the keys that are hit most.
type Key struct {
	Label string `json:"label"` // masked or hashed
	Count int64  `json:"count"`
}

// Offer is a command that helps.
type Offer struct {
	Command string `json:"command"`
	Effect  string `json:"effect"`
}

// Delivery is that a target took a status of an alert.
type Delivery struct {
	Alert  string
	Target string // names it without its secrets
	Status Status
}

// Status is what is told of an alert.
type Status string

// The statuses, as Alertmanager calls them.
const (
	Firing   Status = "firing"
	Resolved Status = "resolved"
)

// Told reports whether the target took the status.
func (a *Alert) Told(target string, status Status) bool {
	for _, d := range a.Delivered {
		if d.Target == target && d.Status == status {
			return true
		}
	}
	return false
}

// verb is what the version does, or did when the alert fired.
func (a *Alert) verb() string {
	verb := "refuses"
	switch over := !a.Resolved.IsZero(); {
	case a.Kind == WouldRefuse && over:
		verb = "would have refused"
	case a.Kind == WouldRefuse:
		verb = "would refuse"
	case over:
		verb = "refused"
	}
	if a.Kind == WouldRefuse && a.Estimate {
		verb += ", by estimate,"
	}
	return verb
}

// Summary says it in one line.
func (a *Alert) Summary() string {
	return fmt.Sprintf("%s/%s v%d %s at least %s", a.Domain, a.Rule, a.Version, a.verb(), percent(a.Evidence.Bound))
}

// Description says why it fired, who is hit and what helps, in sentences.
func (a *Alert) Description() string {
	var b strings.Builder
	fmt.Fprintf(&b, "v%d %s %d of %d requests in the five minutes before %s; usual is %s. The rule: %s. ",
		a.Version, a.verb(), a.Evidence.Count.Refused, a.Evidence.Count.Of, a.Since.Format(time.RFC3339), percent(a.Evidence.Baseline), a.State)
	switch a.Hits {
	case OneClient:
		b.WriteString("One client is being stopped")
	case Many:
		fmt.Fprintf(&b, "About %d keys are hit", a.Distinct)
	case Everybody:
		b.WriteString("The key tells no callers apart: all share what is left")
	case Unknown:
		b.WriteString("Who is hit is not known yet")
	}
	for i, k := range a.Keys {
		fmt.Fprintf(&b, "%s %s (%d)", map[bool]string{true: ":", false: ","}[i == 0], k.Label, k.Count)
	}
	b.WriteString(".")
	if a.Kind == WouldRefuse {
		b.WriteString(" Nobody is refused by it: it is only judged.")
	}
	if a.Estimate {
		b.WriteString(" Other rules refuse as well, so that the figure is an estimate.")
	}
	if !a.Resolved.IsZero() {
		return b.String() // there is nothing to undo any more
	}
	for _, o := range a.Offers {
		fmt.Fprintf(&b, " To have %s: %s.", o.Effect, o.Command)
	}
	return b.String()
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f%%", 100*ratio) }

// offers are the commands that help, with what each does to the rule.
func offers(r *rules.Rule) []Offer {
	back := "rulectl rollback " + r.ID() + " --wait"
	switch {
	case r.Candidate == nil:
		return []Offer{{back, "the version in force before it again, or where there is none, this one in shadow"}}
	case r.Stage() == rules.StagePartial && r.Stable == nil:
		return []Offer{{back, "it back in shadow"}}
	case r.Stage() == rules.StagePartial:
		abort := "rulectl abort " + r.ID() + " --wait"
		return []Offer{
			{back, fmt.Sprintf("v%d dropped and stable v%d alone in force", r.Candidate.Number, r.Stable.Number)},
			{abort, fmt.Sprintf("v%d back in shadow", r.Candidate.Number)},
		}
	case r.Stable != nil:
		return []Offer{{back, fmt.Sprintf("v%d dropped from shadow", r.Candidate.Number)}}
	}
	return nil // in shadow alone: there is nothing to go back from
}
