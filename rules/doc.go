// Package rules says what a rate-limit rule means.
//
// The picture to hold: a [Rule] is a name in a domain with at most two versions, the stable one in force and a
// candidate tried beside it. A version's [Spec] says which requests it meets ([Match]), which counter each of them uses
// ([KeySource]) and how much fits ([Limit]). An [Index] finds the rules of one domain that match a [Request], and
// [Rule.InCohort] says which of the two versions binds for it.
//
// The package computes and compares; it reads no file, clock or network, so that the control plane, the sidecars and
// the command line all share one meaning. Values are plain data: safe to read from many goroutines, never changed after
// they have been handed over.
package rules
