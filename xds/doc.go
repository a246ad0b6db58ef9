// Package xds is the language of control plane and sidecars: the one resource type that travels between them, its names
// and versions, and the conversion between it and the values of package rules.
//
// The picture to hold: a revision of a domain is a set of resources, one for each rule ("public-api/login") and one for
// the domain itself ("public-api"). They travel as delta xDS over one aggregated stream. The domain's resource comes
// with every revision, and last: what came before it takes effect when it arrives, all at once. Package push sends,
// package subscribe receives.
//
// Decoding is strict. A sidecar that skipped a field it does not know would enforce something other than what was
// asked, so an unknown field anywhere makes the resource invalid, and the rule keeps its last good version. The price is
// that a new field reaches a sidecar only after the sidecar's program knows it. Two things are looser: a rule can say which
// [FeatureLevel] it needs, where its fields alone do not tell; and of a domain the head and the freezes hold whatever else
// it says, since a freeze must get through to a program of any age.
//
// Everything here is a pure function, safe to call from many goroutines.
package xds
