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

// InstanceField is the field of a node's metadata that tells one run of a program from another: a random text, the same
// for as long as the process lives. Two programs with one node id are found out by it.
const InstanceField = "instance"
