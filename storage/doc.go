// Package storage is where the control plane keeps what must survive it: rules with their history, the audit trail, and
// what is known of the nodes.
//
// The picture to hold: one row, the head, carries the number of the last revision. A change locks that row, reads the
// rules as they stand, writes its versions, states and audit record under the next number, moves the head, and commits.
// So the order of the numbers is the order of the commits, and a number that was not committed is handed out again.
// Versions, states and audit records are only ever added; a rule as it stands is its newest state.
//
// The folders postgres and sqlite are the two databases, and storagetest is the suite both pass. Here is only what they
// share: the contract as a whole, and how a rule is laid out in rows. SQL is not shared: each method has its statement
// beside it, in the same order in both packages, so that the two can be read together.
//
// Errors are of the kinds of package rules: [rules.ErrUnavailable] when the database cannot be asked (try again later),
// [rules.ErrConflict] when it holds something else under that name, [rules.ErrInvalid] for a change that fits no
// database. Drivers translate by error code, and nothing is retried in silence. The error of a context that ended is
// passed on as it is.
package storage
