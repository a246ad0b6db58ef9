// Package certs holds what two programs prove themselves with, and follows the files it is in: certificates for TLS, at
// both ends, and a client's token.
//
// The files may be replaced while the program runs, by a rename or, as Kubernetes does, by moving a symbolic link. They
// are looked at when a connection is made, at most once a second, and compared by content. A set of files that cannot
// be used (half written, a key of another certificate, expired) changes nothing: the one before stays, and the failure
// is logged and counted once. Connections that stand keep what they were made with, but for one thing: a server closes
// a gRPC connection when the certificate that the client showed expires, so that the client comes back with its next.
//
// Everything here is safe for concurrent use, and no handshake waits for another one's look at the files.
package certs
