// Package load measures the push: how long a change takes to reach a fleet, and what a subscriber costs the control plane.
// What a page of the dashboard costs is a benchmark beside it.
//
// The picture to hold: a [Plane] is a control plane put together as cmd/controlplane/app does it, on a real database and a
// real gRPC port, in the process that measures. A [Crowd] is the fleet: subscribers in the raw protocol, each with a
// connection of its own, which read every byte of a response, look for the commit marker and acknowledge; they decode
// nothing, since what is measured is the control plane. The two talk over loopback, and share the machine's cores.
//
// A crowd is driven by calls, so it can stand in a child process: then the heap and the profile of this process are the
// control plane's alone. Both processes read the clock of the machine.
//
// Nothing here asserts a time. The package's test asserts that every subscriber gets every change; the figures are those
// of command fanout, and the last ones are in RESULTS.md.
package load
