// Package faults breaks the system while it works, and looks at what is left: the control plane is killed with kill -9
// again and again while changes are made, starts with an empty database before a full fleet, and loses its database. Beside
// it, sidecars under load count on.
//
// What must hold is DESIGN.md [10] 5, 6 and 8: an acknowledged change is there, an unacknowledged one is wholly there or
// wholly absent, no rule in force changes because something is away, and every tally is that of whoever made the calls.
// The database is away for as long as it takes to be missed; for a minute with
//
//	go test ./test/faults -run Tallies -args -outage 1m
package faults
