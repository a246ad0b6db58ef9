// Package rollout holds the control plane's use cases: the life of a rule, of the settings of its domain and of
// credentials, and waiting until the fleet has a change.
//
// Every change takes the same road: the [Ledger] opens a transaction and hands over the rules as they stand, the pure
// function [Transition] says what becomes of each, and the ledger stores the new states, the
// revision number and the audit record together, or nothing. History only grows: a rollback is a new revision that
// restores an earlier state.
//
// A plan promotes a candidate step by step ([Runner]), on what the sidecars counted ([Evidence]): the pure function [Judge] says
// whether it goes on, holds or has tripped, and whoever asks sees the same judgement ([Status]).
//
// The package knows no database and no wire; both sides of it are interfaces declared here. A [Service] is safe for
// concurrent use.
package rollout
