// Package enforce turns a request into a decision.
//
// The picture to hold: [Engine.Decide] looks up the rules that match, makes one [Charge] for each limit of each version
// (binding and what-if), has a [Limiter] judge and settle them all in one atomic step ([Settle] is the law it keeps),
// and composes the verdicts into a [Decision]. Which rules are in force is one immutable index behind one atomic
// pointer: a request sees one revision, whole.
//
// By the wall clock, and nothing else depends on it, two things end by themselves: a freeze, during which the version that
// would bind is only judged while what it lets pass is charged as always, and an override, the numbers of a limit for one
// key.
//
// Counters live in the limiter: in Redis (package redislimit), shared by all sidecars, or in the process (package
// memlimit). When the limiter does not answer, each rule's failure mode decides; nothing is retried and nothing waits.
//
// An Engine is safe for concurrent use.
package enforce
