// Package report brings what sidecars counted to the control plane: each window of counts once, whatever breaks between.
//
// The picture to hold: a [Client] in the sidecar takes a window every ten seconds and keeps it until the control plane says
// that it is stored. Windows are numbered when they are first sent. What was sent is repeated, with its number, on every
// stream until then; a [Server] stores what it has not stored yet (package tally, [tally.Store]), and answers with the number of
// the last window after its transaction is committed. So a stream, a control plane or a database may end at any instant,
// and nothing is lost or counted twice.
//
// While the control plane is away, windows that were never sent are merged: minutes after five minutes, hours after an
// hour, days after two. Counts stay exact; what is less exact is when they were. Keys of the oldest are given up when they
// take too much memory, and the rates of keys with them, which no hour has either.
//
// The server believes a node what it may say: in its own name, of the domains it is for, of versions that it was sent and
// did not refuse. What is not believed is left out, counted and logged, and the rest of the window stored. What could become
// true soon (a version whose sending is not written down yet) waits a few seconds for it. Times are moved by how far the
// node's clock is off, in whole windows.
//
// What it gives up: order between sources, and the totals of the open window, which are sent every second and may be
// lost; the closed window has them all. And the server holds one message of each stream at most: while the database is
// away it stops reading, and clients keep what they have.
//
// Client and Server are safe for concurrent use.
package report
