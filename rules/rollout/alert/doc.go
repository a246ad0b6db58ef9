// Package alert finds the rules that refuse far more than they used to, and says who is hit and which command helps.
//
// The picture to hold: every thirty seconds the leader's [Watcher] makes one [Round]. It reads what all rule versions
// counted in the last five minutes, and what has just become older than ten minutes, gives that to two detectors of each
// version (package spike: one for refusals, one for would-be refusals), and stores detectors and alerts together. A round
// names the round that it follows, so that of two leaders one is refused; nothing is kept in memory between them. So neither the
// death of a leader nor the restart of a sidecar fires an alert twice or hides one.
//
// An [Alert] is a fact that does not change but to be resolved. Who sends it reads it from the [Store], and notes what was
// delivered. What a node could not report for longer than five minutes is part of the tallies, and of no alert.
//
// It stands beside the use cases of package rollout, since it needs rules and their histories as well as tallies, and package
// tally must know nothing of rules that come and go.
package alert
