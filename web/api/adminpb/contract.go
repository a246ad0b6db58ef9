// Package adminpb is the wire form of the admin API. It is generated but for this file: what client and
// server agree on beside the messages.
package adminpb

import "net/url"

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
