// Package auth finds out who calls, and lets through to each method only who has the role for it.
//
// A caller proves who it is with a token, or else, in a browser, with the session that a token has opened, or else with
// the client certificate of its connection: the first that is shown decides. What was proved travels in the context of the
// call as an [access.Identity]. Here the role is checked, by a table in which every method has its place: one that is not
// in it is refused. Which domains a call is about only its handler knows, which has to ask the identity
// ([access.Identity.May]).
//
// Three doors ask: [Authenticator.UnaryServer] and its like for gRPC, [Authenticator.HTTP] for what machines fetch, and
// [Authenticator.Browser] for people. What is behind the last calls the admin API by [Authenticator.InProcess], through
// the same table.
//
// A credential or a session that is found is believed for five seconds, so that a fleet that comes back does not ask the
// database once for each sidecar that shares a token. A stream ends when its credential expires, and within 35 seconds
// when it is revoked. A database that is away makes a new call unavailable, not unauthenticated, and ends no stream.
//
// Without authentication everybody is [access.Local]: nobody is asked, and the name is what the client says, or in a
// browser [Options].Local.
package auth
