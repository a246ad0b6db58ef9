// Package push is the control plane's side of the stream: it brings every sidecar to the head of its domains, and keeps
// what is known of them.
//
// The picture to hold: what a client has of a domain is a [position], mostly a revision. A [Cache] holds each domain as
// one list of marshalled resources in the order of the revisions that last touched them, the domain's own resource at
// the end. The step from any position to the head is then the rest of that list: found by binary search, never
// computed for a client, never copied, and shared by all who stand there. A thousand clients of a domain with ten
// thousand rules cost the same as of one with ten.
//
// A step too large for one message goes in parts, each on the answer to the one before. The position within the parts
// is one more position in the same list, so a head that moves meanwhile needs no restart: what changed stands further
// down and is sent in its newest state. The client applies nothing before the domain's resource, which is last.
//
// Deleted rules stand in a list of their own in the same order, so a step also says which of them to remove. The last
// 5,000 of a domain are remembered; a client from before those is sent a whole set, and told that it is one.
//
// Nothing is ever pushed backwards: a client ahead of this replica's head waits until the replica has caught up. A client
// that holds another history (a database was restored, or is not the one it had) waits until an admin says that this one
// takes its place. Before the database has been read once, and whenever it cannot be read, nothing new is served; rules are
// never taken away.
//
// A [Fleet] follows the same streams and writes down which node was sent, took and refused which revision. An answer
// with an error detail is a refusal, whatever version and nonce it carries. It also keeps which state of which rule was
// taken by nodes of which feature level: a node that refuses the newest state of a rule and holds none is sent that one.
//
// What a client says is checked: what cannot be ends its stream with an error that says why, and is counted. A stream
// subscribes only to the domains that are its opener's (package access); of an opener nobody knows, that is none.
//
// A resource is marshalled when it changes, and sent as these bytes on every stream (see [ServerOptions]).
//
// What it gives up: the state of a client is in its stream, not in the database: a client that reconnects offers its
// revision again.
//
// Cache and Fleet are safe for concurrent use.
package push
