package rollout

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/rules"
)

// Ledger keeps rules, their history and the audit trail.
type Ledger interface {
	// Commit runs decide in one transaction that holds the revision lock, so that changes come one after the other and
	// the order of their numbers is the order of their commits, without gaps. When decide returns a change, its states,
	// its versions, the revision number and the audit record are stored together, and Commit returns that number.
	// When decide returns nil or an error, nothing is stored; with nil, Commit returns 0.
	// A domain that does not exist yet is created, with a fresh secret, by its first change.
	Commit(ctx context.Context, domain string, decide func(Tx) (*Change, error)) (revision int64, err error)
	// Refuse stores the record of an attempt that was refused, and why. It makes no revision.
	Refuse(ctx context.Context, record Record) error
	// Rules returns the rules of a domain by name, or of all domains when domain is "".
	Rules(ctx context.Context, domain string) ([]rules.Rule, error)
	// Audit returns the newest records first, at most limit; of all domains when domain is "".
	Audit(ctx context.Context, domain string, limit int) ([]Record, error)
}

// Tx is what a transition may read inside Commit.
type Tx interface {
	// Revision is the number the change will have.
	Revision() int64
	// Rules returns the rules of the domain as they stand, by name.
	Rules(ctx context.Context) ([]rules.Rule, error)
	// Rule returns one of them, or [rules.ErrNotFound].
	Rule(ctx context.Context, name string) (rules.Rule, error)
	// History returns what each revision made of a rule, oldest first.
	History(ctx context.Context, uid string) ([]Entry, error)
	// Versions returns how many versions a rule has had: the next one is that number plus one.
	Versions(ctx context.Context, uid string) (int64, error)
}

// Entry is one step of a rule's history.
type Entry struct {
	Action Action
	Rule   rules.Rule // as that revision left it; Rule.Revision is its number
}

// Change is what a transition decided: the new states of the rules it touches. A version that a state holds and the
// ledger does not is new, and stored with it.
type Change struct {
	Record Record
	Rules  []rules.Rule
}

// Action names what a revision did.
type Action string

// The actions.
const (
	ActionApply    Action = "apply"
	ActionPromote  Action = "promote"
	ActionAbort    Action = "abort"
	ActionRollback Action = "rollback"
	// ActionRollbackTo names its version. A rollback after it undoes it, as it does any other step.
	ActionRollbackTo Action = "rollback-to"
)

// Record is one entry of the audit trail: who did what, when and why, and what it made of the rules.
type Record struct {
	Revision int64     // 0: the attempt was refused
	Refused  string    // why; "" for a change that happened
	Domain   string    // "" where a refused attempt named none
	Time     time.Time // UTC, microseconds
	Actor    Actor
	Action   Action
	Target   string // "domain/name", or the domain
	Message  string
	Detail   string          // the change in words, one line for each rule: "v7 stable -> v8 in shadow beside stable v7"
	Before   json.RawMessage // the touched rules before and after, as {"name": {"stable": 7, …}}
	After    json.RawMessage
}

// Actor is who asked for a change.
type Actor struct {
	Name     string
	Verified bool // false: the name is only what the client said
}

// Node is one sidecar as the control plane knows it, for one of the domains it serves.
type Node struct {
	ID      string
	Domain  string
	Program string // name and version of the program
	// Connected is whether its stream was open when the node was Seen.
	Connected bool
	// Departed is whether it said goodbye when it went: it was stopped, and is no longer part of the fleet.
	Departed bool
	Seen     time.Time // UTC, microseconds
	// The revisions of the domain that were last sent, accepted and refused; 0 where there was none.
	Sent, Acked, Nacked int64
	// NackReason is the text of the refusal that still stands; "" when none does.
	NackReason string
}

// Fleet keeps what is known of the nodes.
type Fleet interface {
	// SaveNodes stores the latest state of each node and domain. An older state (by Seen) never replaces a newer one.
	SaveNodes(ctx context.Context, nodes []Node) error
	// Nodes returns the nodes of a domain by ID, or of all domains when domain is "".
	Nodes(ctx context.Context, domain string) ([]Node, error)
}

// Feed is the state that is pushed to the fleet, as steps between revisions.
type Feed interface {
	// Changes returns what differs between the revision since and the head, both read from one snapshot. Since 0
	// returns everything.
	Changes(ctx context.Context, since int64) (Changes, error)
	// Watch sends whenever the head may have moved, until ctx ends. A signal can come late, twice or never (a lost
	// notification): who needs certainty polls Changes beside it. A signal that nobody takes is dropped, not queued.
	Watch(ctx context.Context) <-chan struct{}
}

// Changes is a step from one revision to the head.
type Changes struct {
	Head    int64
	Lineage string // identity of this history; a restored database has another one
	Domains []rules.Domain
	Rules   []rules.Rule
}
