package xds

import (
	"strconv"
	"strings"
)

// TypeURL names the one resource type of the stream.
const TypeURL = "type.googleapis.com/headgate.xds.v1.Resource"

// RuleName is the name of a rule's resource: "domain/name".
func RuleName(domain, rule string) string { return domain + "/" + rule }

// SplitName takes a resource's name apart. The rule is "" for a domain's resource; no rule has an empty name.
func SplitName(resource string) (domain, rule string) {
	domain, rule, _ = strings.Cut(resource, "/")
	return domain, rule
}

// DomainVersion is the version of a domain's resource: "lineage@revision".
//
// A rule's version is a hash of its content. For a domain the revision does the same work: revision numbers are handed
// out once per lineage, the domain's resource is part of every revision that touches the domain, and what a revision
// holds never changes. So the text is the same on every replica and after every restart, and two contents never share
// it. And it says more than a hash: a client that offers it tells exactly which of ten thousand rules it has.
func DomainVersion(lineage string, revision int64) string {
	return lineage + "@" + strconv.FormatInt(revision, 10)
}

// ParseDomainVersion reads what [DomainVersion] wrote; ok is false for anything else.
func ParseDomainVersion(version string) (lineage string, revision int64, ok bool) {
	at := strings.LastIndexByte(version, '@')
	if at < 1 {
		return "", 0, false
	}
	revision, err := strconv.ParseInt(version[at+1:], 10, 64)
	if err != nil || revision < 1 || DomainVersion(version[:at], revision) != version {
		return "", 0, false
	}
	return version[:at], revision, true
}

// Settings stands where a rule's name would, for a domain's shard and exemptions: refused, they are named
// "domain/@settings". No rule is called so.
const Settings = "@settings"

// Everything stands where a rule's name would in the removals of a step that is a whole set: what the client has of the
// domain and is not in the step is no longer there.
const Everything = "*"

// FeatureLevel is the highest level of rules that this program can enforce. It rises with every change in what a spec
// means that an older program would not notice.
const FeatureLevel = 1

// The fields of a node's metadata, in its first request. All are text.
const (
	// InstanceField tells one run of a program from another: a random text, the same for as long as the process lives. Two
	// programs with one node id are found out by it.
	InstanceField = "instance"
	// LevelField is the node's [FeatureLevel]; where it is missing, 1.
	LevelField = "feature_level"
	// StreamField numbers the node's streams, each higher than the one before.
	StreamField = "stream"
	// BreakGlassField is a JSON list of the freezes made at the node itself, the newest first. It comes again, in a request
	// that answers nothing, when it has changed.
	BreakGlassField = "break_glass"
)

// Bounds of BreakGlassField: as many as an outage of hours brings at one sidecar, each of 1.6 kB on average.
const (
	MaxBreakGlass      = 100       // reports
	MaxBreakGlassBytes = 160 << 10 // of JSON
)
