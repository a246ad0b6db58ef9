// Package auth finds out who calls, and lets through to each method only who has the role for it.
//
// A caller proves who it is with a token, or else with the client certificate of its connection; when it sends a token,
// that decides. What was proved travels in the context of the call as an [access.Identity]. Here the role is checked,
// by a table in which every method has its place: one that is not in it is refused. Which domains a call is about only its
// handler knows, which has to ask the identity ([access.Identity.May]).
//
// A credential that is found is believed for five seconds, so that a fleet that comes back does not ask the database
// once for each sidecar that shares a token. A stream ends when its credential expires, and within 35 seconds when it
// is revoked. A database that is away makes a new call unavailable, not unauthenticated, and ends no stream.
//
// Without authentication everybody is [access.Local]: nobody is asked, and the name is what the client says.
package auth
