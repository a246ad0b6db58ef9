// Package xdstest holds what the tests of both ends of the stream share: a [Ledger] in memory in place of a database, a
// control plane on real gRPC streams ([Start]), and a client in the raw protocol ([Dial]) that answers what a test tells
// it to.
package xdstest
