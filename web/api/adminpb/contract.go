// Package adminpb is the wire form of the admin API. It is generated but for this file: what client and
// server agree on beside the messages.
package adminpb

import (
	"encoding/json"
	"net/url"

	"github.com/headgate/headgate/rules/rollout"
)

// ActorKey is the metadata key under which a client says who asks. The server believes it as far as it can verify it:
// without authentication, not at all.
const ActorKey = "headgate-actor"

// MaxRequestBytes is the largest request that a server takes.
const MaxRequestBytes = 16 << 20

// EscapeActor returns the value for a name: metadata is ASCII, and names are not.
func EscapeActor(name string) string { return url.PathEscape(name) }

// UnescapeActor returns the name of a value; a value that is not escaped rightly is the name itself.
func UnescapeActor(value string) string {
	if name, err := url.PathUnescape(value); err == nil {
		return name
	}
	return value
}

// Sealed is the record of the trail that the message carries, whose seal can be checked.
func (x *Record) Sealed() *rollout.Record {
	return &rollout.Record{
		Number: x.GetNumber(), Revision: x.GetRevision(), Refused: x.GetRefused(), Domain: x.GetDomain(), Time: x.GetTime().AsTime(),
		Actor:  rollout.Actor{Name: x.GetActor(), Verified: x.GetVerified()},
		Action: rollout.Action(x.GetAction()), Target: x.GetTarget(), Message: x.GetMessage(), Detail: x.GetDetail(),
		Before: json.RawMessage(x.GetBefore()), After: json.RawMessage(x.GetAfter()), Seal: x.GetSeal(),
	}
}
