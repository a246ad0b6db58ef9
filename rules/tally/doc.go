// Package tally says what is counted of requests, how counts are put together, and what can be concluded from them.
//
// The picture to hold: a node makes one [Outcome] of each version and key that a request matched, and counts it in a
// [Cell] of the version's [Counts]. The differences between two instants are a [Window], ten seconds long, numbered within
// the node's [Source], which lives as long as its process. The control plane stores each window once ([Store]), so that what is
// summed there is what was counted: exactly. Beside the counts travel what cannot be exact in bounded memory: the keys
// that are hit most ([TopKeys]), how many there are ([Distinct]), how often keys call ([Rates], of which a [Curve] says what a
// limit would meet), and the last refusals ([Refusal]).
//
// Keys are known by a keyed hash ([KeyID]); no value that identifies a caller leaves the node but masked.
package tally
