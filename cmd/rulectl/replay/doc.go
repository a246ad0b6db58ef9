// Package replay decides requests by rule files on a virtual clock: what `rulectl backtest`, `test` and `simulate` have in
// common. The engine and the limiters are those of a sidecar; only the time is handed in.
//
// Every replay has counters of its own: rules get random identities, and keys in Redis are deleted at the end. A store
// that fails ends the replay, whatever the failure modes of the rules say: a result that the store had no part in would
// look like one that it had.
//
// A replay is for one goroutine.
package replay
