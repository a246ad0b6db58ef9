// Package backtest replays an access log through rule files, and counts what they would have refused.
//
// All rules are judged together, as if all were enforced: a request that one rule refuses spends nothing of another. The
// rules of several domains count as one set (an exemption holds for its own domain). A rule's refusals are its own: of
// two rules that refuse the same request both count it; what only another rule refused, it does not.
//
// Memory follows the traffic of one sort window and the number of different keys, not the length of the log: keys are
// counted exactly, by a set of 128-bit hashes for each rule (about 40 bytes a key), and those with a refusal are kept as
// they are shown.
package backtest
