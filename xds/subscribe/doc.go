// Package subscribe is the sidecar's side of the stream: it keeps the rules of its domains in force, newest first, and
// never takes them away.
//
// The picture to hold: per domain a [Client] holds one committed set. A step from the control plane is collected until
// the domain's own resource arrives, which ends it; then every rule in it is decoded and checked, the set with them goes
// to the [Sink] in one piece, and only then is the answer sent. So an acknowledgement means: in force. The disk comes
// after it, in its own time: an acknowledged set that a crash keeps from the disk is sent again.
//
// A rule that cannot be taken keeps the version that was in force, or stays out when there was none, while the rest of
// the step takes effect; the answer is then a refusal that names rule and reason. A refused version is offered as such
// when the client connects again, and comes once more on that stream. Where none was in force the control plane may send
// a last good version, which another node has: it is put in force, and the newest stays refused. The shard and the
// exemptions of a domain are refused in the same way; its freezes never are.
//
// While the control plane is away, or says that it knows nothing of a domain, the rules stay in force. The last good set
// is on disk, so a sidecar starts without the control plane. What is not for this stream (another type or domain, a
// response that came before, an older revision) is refused and counted, and changes nothing.
//
// What it gives up: the whole set is written after commits (a few megabytes for ten thousand rules), and domains are
// fixed when the client is made. One goroutine, [Client.Run], does everything but write; the methods that tell about the
// client's state, and [Client.ReportBreakGlass], may be called from any.
package subscribe
