// Package rpcstatus carries errors across gRPC. A server's interceptor turns an error of package rules into a status,
// a client's turns the status back, so that errors.Is and errors.As find on one side what the other side returned: the
// kinds ([rules.ErrNotFound] and its like), a [rules.ValidationError] with every problem, a [rules.ConflictError] or a
// [rules.GuardError] with its facts, and the errors of a context.
//
// An error of no known kind says nothing outside: its text may hold a query or an address. The client gets
// "internal error", the cause goes to the server's log. An [rules.ErrUnavailable] and the errors of a context keep their
// kind and have a fixed text, since the text of a database's driver may be in them.
//
// No other package imports gRPC's codes. Everything here is stateless and safe for concurrent use.
package rpcstatus
