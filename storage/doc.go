// Package storage is where the control plane keeps what must survive it: rules and domains with their history, the audit
// trail, the credentials and the sessions they opened, what is known of the nodes, and what they counted.
//
// The picture to hold: one row, the head, carries the number of the last revision and the end of the audit trail. A
// change locks that row, reads the rules as they stand, writes its versions, states and audit record under the next
// numbers, moves the head, and commits. So the order of the numbers is the order of the commits, and a number that was
// not committed is handed out again. What has a record but no revision, such as a refused attempt or a new credential,
// takes the same lock.
//
// Versions, states and audit records are only ever added, and both databases refuse to change or remove them; a rule or
// a domain as it stands is its newest state. They are kept for ever on purpose: who asks why a caller was refused last
// year finds the answer. Each audit record carries a seal over its content and the seal before it, and the head has the
// number and the seal of the last one: what is edited, removed, inserted or moved behind the databases' back is found by
// rollout.Chain, and a tail that was cut off by comparing with the head.
//
// What nodes counted is summed up as it comes: a row per rule version and step of time, in steps of ten seconds, a minute
// and an hour at once. The row of a source carries the number of its last stored window, and is locked by whoever stores
// the next: so each window counts once, whichever replica gets it, however often. Of the window that a node has open
// there is one row with its running totals, and readers see it beside the closed ones at one instant. All this is removed
// when its time has come, see tally.Step.Keep.
//
// A newer program may have written what this one cannot read. Lists leave out such a rule, and such a domain with its
// rules, so that it holds up nothing else; whoever asks for it by name, or decides over all rules of its domain, gets an
// error that names rule and version.
//
// The folders postgres and sqlite are the two databases, and storagetest is the suite both pass. Here is only what they
// share: the contract as a whole, and how things are laid out in rows. SQL is not shared: each method has its statement
// beside it, in the same order in both packages, so that the two can be read together. Migrations after the first only
// add, so that programs of two releases can run side by side.
//
// Errors are of the kinds of package rules: [rules.ErrUnavailable] when the database cannot be asked (try again later),
// [rules.ErrConflict] when it holds something else under that name, [rules.ErrInvalid] for a change that fits no
// database. Drivers translate by error code, and nothing is retried in silence. The error of a context that ended is
// passed on as it is.
package storage
