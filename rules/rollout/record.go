package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Action names what a revision, or a record without one, did.
type Action string

// The actions.
const (
	ActionApply    Action = "apply"
	ActionPromote  Action = "promote"
	ActionAbort    Action = "abort"
	ActionPause    Action = "pause"
	ActionResume   Action = "resume"
	ActionDelete   Action = "delete"
	ActionRollback Action = "rollback"
	// ActionRollbackTo names its version.
	ActionRollbackTo Action = "rollback-to"
	// ActionRollbackDomain restores a domain as it was at a revision.
	ActionRollbackDomain Action = "rollback-domain"
	ActionFreeze         Action = "freeze"
	ActionUnfreeze       Action = "unfreeze"
	ActionOverride       Action = "override"
	ActionDeleteOverride Action = "delete-override"

	// What follows makes no revision.

	// ActionPlanDone: the whole fleet has the last step of a plan.
	ActionPlanDone         Action = "plan-done"
	ActionBreakGlass       Action = "break-glass"
	ActionRenewLineage     Action = "renew-lineage"
	ActionReplaceLineage   Action = "replace-lineage"
	ActionAddCredential    Action = "add-credential"    //nolint:gosec // the name of an action
	ActionRevokeCredential Action = "revoke-credential" //nolint:gosec // the same
	ActionSilence          Action = "silence"
	ActionUnsilence        Action = "unsilence"
	ActionTestAlert        Action = "test-alert"
)

// Record is one entry of the audit trail: who did what, when and why, and what it made of the rules.
type Record struct {
	Number   int64     // 1, 2, …; given by the ledger
	Revision int64     // 0: no revision was made
	Refused  string    // why; "" for what happened
	Domain   string    // "" where it is about none, or a refused attempt named none
	Time     time.Time // UTC, microseconds
	Actor    Actor
	Action   Action
	Target   string // "domain/name", the domain, or what else it is about
	Message  string
	Detail   string          // what happened in words, one line for each rule: "v7 stable -> v8 in shadow beside stable v7"
	Before   json.RawMessage // what was touched before and after, as {"name": {"stable": 7, …}}
	After    json.RawMessage
	Seal     string // hash of this record and, through its seal, of all before it; given by the ledger
}

// Actor is who asked for a change.
type Actor struct {
	Name     string
	Verified bool // false: the name is only what the client said
}

// sealed is what a seal covers, in the order in which it is hashed.
type sealed struct {
	Previous string `json:"previous"` // the seal before; "" for the first record
	Number   int64  `json:"number"`
	Revision int64  `json:"revision"`
	Refused  string `json:"refused"`
	Domain   string `json:"domain"`
	Time     int64  `json:"time"` // microseconds since the Unix epoch
	Actor    string `json:"actor"`
	Verified bool   `json:"verified"`
	Action   Action `json:"action"`
	Target   string `json:"target"`
	Message  string `json:"message"`
	Detail   string `json:"detail"`
	Before   string `json:"before"` // bytes as stored
	After    string `json:"after"`
}

// SealAfter returns the record's seal: hex SHA-256 over the JSON of all its fields and the seal of the record before.
// So a record that is edited, removed, inserted or moved breaks every seal behind it.
func (r *Record) SealAfter(previous string) string {
	b, err := json.Marshal(sealed{
		Previous: previous, Number: r.Number, Revision: r.Revision, Refused: r.Refused, Domain: r.Domain, Time: r.Time.UnixMicro(),
		Actor: r.Actor.Name, Verified: r.Actor.Verified, Action: r.Action, Target: r.Target, Message: r.Message,
		Detail: r.Detail, Before: string(r.Before), After: string(r.After),
	})
	if err != nil {
		return "" // strings, numbers and a bool always encode
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Chain checks records in the order of their numbers, from the first one on. The zero value is ready.
type Chain struct {
	Records int64
	Seal    string // of the last record
}

// Add checks that the record follows, and says what is wrong otherwise.
func (c *Chain) Add(r *Record) error {
	if r.Number != c.Records+1 {
		return fmt.Errorf("record %d follows record %d: one is missing, or was moved", r.Number, c.Records)
	}
	if want := r.SealAfter(c.Seal); r.Seal != want {
		return fmt.Errorf("record %d is not what was written: its seal is %q, and its content and the records before it give %q", r.Number, r.Seal, want)
	}
	c.Records, c.Seal = r.Number, r.Seal
	return nil
}

// RecordLine is a record as an export of the trail has it, a JSON object a line: all that is sealed, so that [Chain] checks
// it anywhere. Before and After are texts, so that they stay byte for byte.
type RecordLine struct {
	Number   int64  `json:"number"`
	Revision int64  `json:"revision"` // 0: none was made
	Refused  string `json:"refused,omitempty"`
	Domain   string `json:"domain,omitempty"`
	Time     string `json:"time"`
	Actor    string `json:"actor"`
	Verified bool   `json:"verified"` // false: the name is only what the client said
	Action   string `json:"action"`
	Target   string `json:"target"`
	Message  string `json:"message,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Before   string `json:"before"`
	After    string `json:"after"`
	Seal     string `json:"seal"`
}

// Line is the record as it is exported.
func (r *Record) Line() RecordLine {
	return RecordLine{
		Number: r.Number, Revision: r.Revision, Refused: r.Refused, Domain: r.Domain, Time: r.Time.UTC().Format(time.RFC3339Nano),
		Actor: r.Actor.Name, Verified: r.Actor.Verified, Action: string(r.Action), Target: r.Target, Message: r.Message, Detail: r.Detail,
		Before: string(r.Before), After: string(r.After), Seal: r.Seal,
	}
}

// Record is the record that was exported.
func (l *RecordLine) Record() (*Record, error) {
	at, err := time.Parse(time.RFC3339Nano, l.Time)
	if err != nil {
		return nil, fmt.Errorf("time of record %d: %w", l.Number, err)
	}
	return &Record{
		Number: l.Number, Revision: l.Revision, Refused: l.Refused, Domain: l.Domain, Time: at,
		Actor:  Actor{Name: l.Actor, Verified: l.Verified},
		Action: Action(l.Action), Target: l.Target, Message: l.Message, Detail: l.Detail,
		Before: json.RawMessage(l.Before), After: json.RawMessage(l.After), Seal: l.Seal,
	}, nil
}
