// Package cli is rulectl: a client of the control plane's admin API that says what it changed, waits until the fleet
// has it, and shows where things stand.
//
// Data goes to standard output and everything else to standard error; "-o json" prints a stable shape for programs, and
// --jq what they make of it. What lists things is one listing each: a table, names or JSON, in an order, once or with
// --watch as it changes. Tables are as kubectl has them: text is cut only on a terminal, where that makes a line fit, and
// --watch prints a row again when it has changed, and redraws nothing, so that what was seen can be scrolled back to. The
// exit code says what kind of end it was (see [Run]). The package reads no global state but the configuration and the
// files it is told to read, and the names of the operating system's user and of the host.
//
// Which control plane that is, and how it is spoken with, is said by flags, by the environment and by a context of the
// user's configuration, in this order.
//
// What cannot be overlooked is asked first where somebody sits at a terminal, and needs --yes elsewhere. Some commands do
// without the admin API: watch is a sidecar that enforces nothing, freeze --sidecar and inspect speak with one sidecar
// when there is no control plane, and audit verify seals the records again, so that the control plane need not be
// believed.
package cli
