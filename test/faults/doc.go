// Package faults breaks the system while it works, and looks at what is left: the control plane is killed with kill -9
// again and again while changes are made, starts with an empty database before a full fleet, and loses its database.
//
// What must hold is DESIGN.md [10] 5 and 6: an acknowledged change is there, an unacknowledged one is wholly there or
// wholly absent, and no rule in force changes because something is away.
package faults
