// Package cli is rulectl: a client of the control plane's admin API that says what it changed, waits until the fleet
// has it, and shows where things stand.
//
// Data goes to standard output and everything else to standard error; "-o json" prints a stable shape for programs. The
// exit code says what kind of end it was (see [Run]). The package reads no global state but the files it is told to
// read and the name of the operating system's user.
package cli
