package rollout

import (
	"context"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Ledger keeps rules, their history, the audit trail and the credentials.
type Ledger interface {
	// Commit runs decide in one transaction that holds the revision lock, so that changes come one after the other and
	// the order of their numbers is the order of their commits, without gaps. When decide returns a change, its states,
	// its versions, the revision number and the audit record are stored together, and Commit returns that number.
	// When decide returns nil or an error, nothing is stored; with nil, Commit returns 0.
	// A domain that does not exist yet is created, with a fresh secret, by its first change.
	Commit(ctx context.Context, domain string, decide func(Tx) (*Change, error)) (revision int64, err error)
	// Note stores a record of what makes no revision, such as an attempt that was refused. With a key, a second record
	// with the same key is not stored: a report may be repeated.
	Note(ctx context.Context, record Record, key string) error
	// Rules returns the rules of a domain by name, or of all domains when domain is "". Deleted ones are not among them.
	Rules(ctx context.Context, domain string) ([]rules.Rule, error)
	// Domains returns the domains as they stand, by name; all when domain is "".
	Domains(ctx context.Context, domain string) ([]rules.Domain, error)
	// History returns what each revision made of a rule, oldest first, or [rules.ErrNotFound].
	History(ctx context.Context, domain, name string) ([]Entry, error)
	// Audit returns the newest records first.
	Audit(ctx context.Context, query AuditQuery) ([]Record, error)
	// Head returns where the history and the audit trail end.
	Head(ctx context.Context) (Head, error)

	// RenewLineage gives the history another identity, since the database was restored or copied: what the fleet holds
	// of the old one is no longer what the database says. It returns the new identity, which record speaks of.
	RenewLineage(ctx context.Context, record Record) (lineage string, err error)
	// ReplaceLineage lets the fleet follow this history in place of the other one.
	ReplaceLineage(ctx context.Context, lineage string, record Record) error

	// AddCredential stores a credential; [rules.ErrConflict] when one with its ID or hash is there.
	AddCredential(ctx context.Context, c access.Credential, record Record) error
	// RevokeCredential ends one, or returns [rules.ErrNotFound]. Of one that was revoked before, the time stays.
	RevokeCredential(ctx context.Context, id string, at time.Time, record Record) error
	// Credentials returns all credentials in the order of their creation, then of their IDs.
	Credentials(ctx context.Context) ([]access.Credential, error)
	// Credential returns the one with the hash, or [rules.ErrNotFound].
	Credential(ctx context.Context, hash string) (access.Credential, error)

	// SaveSilence stores a silence, in place of the one that its rule has.
	SaveSilence(ctx context.Context, silence Silence, record Record) error
	// DeleteSilence removes the one of a rule, or returns [rules.ErrNotFound].
	DeleteSilence(ctx context.Context, domain, name string, record Record) error
	// Silences returns those of a domain, or of all when domain is "", by domain and rule; ended ones too.
	Silences(ctx context.Context, domain string) ([]Silence, error)
}

// Tx is what a transition may read inside Commit.
type Tx interface {
	// Revision is the number the change will have.
	Revision() int64
	// Domain returns the domain as it stands; of one that does not exist yet only the name and the secret it will have.
	Domain(ctx context.Context) (rules.Domain, error)
	// SettingsAt returns the settings of the domain as they were at a revision.
	SettingsAt(ctx context.Context, revision int64) (rules.Settings, error)
	// Rules returns the rules of the domain as they stand, deleted ones too, by name.
	Rules(ctx context.Context) ([]rules.Rule, error)
	// Rule returns one of them, or [rules.ErrNotFound] for a name that never was.
	Rule(ctx context.Context, name string) (rules.Rule, error)
	// RulesAt returns the rules of the domain that there were at a revision, as they were then, deleted ones too, by name.
	RulesAt(ctx context.Context, revision int64) ([]rules.Rule, error)
	// Pasts returns, by uid, what can be known of all rules of the domain without reading their histories.
	Pasts(ctx context.Context) (map[string]Past, error)
	// Histories returns, by uid, what each revision made of the named rules, oldest first.
	Histories(ctx context.Context, uids ...string) (map[string][]Entry, error)
	// Ahead returns a connected node that has acknowledged a revision of this history which the history does not have, and
	// that revision; "" when there is none.
	Ahead(ctx context.Context) (node string, revision int64, err error)
}

// Entry is one step of a rule's history.
type Entry struct {
	Action Action
	Rule   rules.Rule // as that revision left it; Rule.Revision is its number

	// Of its audit record.
	Time    time.Time // UTC, microseconds
	Actor   Actor
	Message string
}

// Past sums a rule's history up.
type Past struct {
	Versions   int64 // how many it has had: the number of the last one
	RolledBack bool  // some revision was a rollback
}

// Change is what a transition decided: the new states of what it touches. A version that a state holds and the ledger
// does not is new, and stored with it.
type Change struct {
	Record   Record
	Rules    []rules.Rule
	Settings *rules.Settings // nil: the domain's stay as they are
}

// AuditQuery says which records to return.
type AuditQuery struct {
	Domain string // "": all domains
	// Target is "domain/name" for the records about one rule: those that name it as their target, and those whose detail
	// has a line about it, since an apply or the rollback of a domain is about many. "": all.
	Target string
	Actor  string    // by the whole name; "": whoever it was
	Action Action    // "": whatever it was
	From   time.Time // only records of this time or later; zero: from the first on
	To     time.Time // only records before this time; zero: up to now
	Before int64     // only records with a smaller number; 0: from the newest
	Limit  int       // at most that many
}

// Head is the end of a ledger.
type Head struct {
	Revision int64
	Lineage  string
	Records  int64  // how many the audit trail has, and so the number of its last one; 0: none
	Seal     string // of the last one; "" when there is none
}

// Node is one sidecar as the control plane knows it, for one of the domains it serves.
type Node struct {
	ID      string
	Domain  string
	Program string // name and version of the program
	// Identity is who opened its stream: the name that was proved (package access). What is said in the node's name
	// elsewhere is believed of the same only.
	Identity string
	Level    int // the highest feature level of rules it can take
	// Connected is whether its stream was open when the node was Seen.
	Connected bool
	// Departed is whether it said goodbye when it went: it was stopped, and is no longer part of the fleet.
	Departed bool
	// Stream orders what is known of a node, whichever replica it comes from: a node numbers its streams, each higher
	// than the one before.
	Stream int64
	Seen   time.Time // UTC, microseconds
	// Lineage is the history whose revisions the node holds; "" when it holds nothing, or of nobody knows what.
	Lineage string
	// The revisions of the domain that were last sent, accepted and refused; 0 where there was none.
	Sent, Acked, Nacked int64
	// NackReason is the text of the refusal that still stands; "" when none does.
	NackReason string
	// Refused are the names of the rules whose newest version the node does not have, at most 20.
	Refused []string
	// BreakGlass are freezes that were made at the node itself, the newest first, at most 100.
	BreakGlass []BreakGlass
}

// BreakGlass is a freeze that somebody made, or ended, at a node's operations port.
type BreakGlass struct {
	ID     string       `json:"id"` // random: a report may be repeated
	At     time.Time    `json:"at"` // UTC, by the node's clock
	Actor  string       `json:"actor"`
	Domain string       `json:"domain"`
	Freeze rules.Freeze `json:"freeze"` // Until not after At: it ended one
}

// Taken is the newest state of a rule that some node of a feature level has in force.
type Taken struct {
	Domain   string
	Rule     string // its name; "": every rule of the domain, as it stood at Revision
	Level    int
	Revision int64
}

// Fleet keeps what is known of the nodes.
type Fleet interface {
	// SaveNodes stores the latest state of each node and domain. A state of an earlier stream never replaces one of a
	// later stream, nor an older state (by Seen) a newer one of the same stream. What was not seen for a minute is replaced
	// in any case: a node whose clock was set back numbers its streams lower.
	SaveNodes(ctx context.Context, nodes []Node) error
	// Nodes returns the nodes of a domain by ID, or of all domains when domain is "".
	Nodes(ctx context.Context, domain string) ([]Node, error)
	// ForgetNodes removes the nodes that were last seen before the time, and returns how many rows that were.
	ForgetNodes(ctx context.Context, seenBefore time.Time) (int64, error)
	// SaveTaken stores what was taken, where it is newer than what is stored.
	SaveTaken(ctx context.Context, taken []Taken) error
	// Taken returns what is stored for the domain.
	Taken(ctx context.Context, domain string) ([]Taken, error)
}

// Feed is the state that is pushed to the fleet, as steps between revisions.
type Feed interface {
	// Changes returns what differs between the revision since and the head, both read from one snapshot. Since 0
	// returns everything.
	Changes(ctx context.Context, since int64) (Changes, error)
	// RuleAt returns a rule as it was at a revision, or [rules.ErrNotFound] when it was not there then.
	RuleAt(ctx context.Context, domain, name string, revision int64) (rules.Rule, error)
	// Watch sends whenever the head may have moved, until ctx ends. A signal can come late, twice or never (a lost
	// notification): who needs certainty polls Changes beside it. A signal that nobody takes is dropped, not queued.
	Watch(ctx context.Context) <-chan struct{}
}

// Changes is a step from one revision to the head.
type Changes struct {
	Head    int64
	Lineage string // identity of this history; a restored database has another one
	// Replaces are the histories that this one may take the place of, as an admin said. They are always all there.
	Replaces []string
	Domains  []rules.Domain
	Rules    []rules.Rule // among them those that were deleted, unless since was 0
}
