package storage

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"

	"github.com/headgate/headgate/rules/rollout"
)

// Append returns the record as the next one of the trail, and moves the head behind it. What is sealed is what both
// databases give back, byte for byte: texts as [Text] leaves them. A seal covers times in microseconds anyway.
func Append(head *rollout.Head, r rollout.Record) rollout.Record {
	r.Number = head.Records + 1
	for _, s := range []*string{&r.Refused, &r.Domain, &r.Actor.Name, &r.Target, &r.Message, &r.Detail} {
		*s = Text(*s)
	}
	r.Before, r.After = json.RawMessage(Text(string(r.Before))), json.RawMessage(Text(string(r.After)))
	r.Seal = r.SealAfter(head.Seal)
	head.Records, head.Seal = r.Number, r.Seal
	return r
}

// NewLineage returns a fresh identity for a history.
func NewLineage() string {
	secret := NewSecret()
	return hex.EncodeToString(secret[:])
}

// NewSecret returns a fresh secret for a domain.
func NewSecret() (secret [16]byte) {
	_, _ = rand.Read(secret[:]) // never fails since Go 1.24
	return secret
}

// AboutLineage lets a record that names nothing else speak of the lineage, which nobody knew when it was written.
func AboutLineage(r rollout.Record, lineage string) rollout.Record {
	r.Target = cmp.Or(r.Target, lineage)
	return r
}
