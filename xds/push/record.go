package push

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

const (
	// maxReasons is how many refused rules the text of a record names.
	maxReasons = 20
	// maxOffered is how many refused rules are believed of a node that connects.
	maxOffered = 1000
)

// record is one node in one domain: what is stored, and what stands behind it.
type record struct {
	rollout.Node
	holds   int64  // the revision the node has, of Node.Lineage
	lineage string // of the other revisions in Node; those of another history mean nothing
	// alien: what the node holds is of a history that the one served here may not take the place of.
	alien bool
	// refused holds the rules whose newest version the node does not have, by resource name. A refusal stands until the
	// node takes another version of the rule; under the domain's own name stands one of a whole revision.
	refused map[string]refusal
	// reported are the break-glass freezes that were handed on.
	reported map[string]struct{}
}

type refusal struct {
	revision int64  // that made the refused version
	what     string // tells the refused content from another
	reason   string
	// unexplained: the node offered something older when it connected. It is sent the rule once more and will say why.
	unexplained bool
}

// offered applies what the node says on its first request that it holds: "domain" at its revision, and "domain/rule" for
// each rule whose newest version it refused. S is what is served here; nil before the database has been read.
func (r *record) offered(versions map[string]string, s *state) {
	lineage, revision, ok := xds.ParseDomainVersion(versions[r.Domain])
	r.Lineage, r.holds = lineage, revision
	if !ok || s != nil && lineage != s.lineage {
		// It holds nothing, or revisions of another history. Either way everything will be sent, or nothing.
		r.forget("")
		r.judge(s)
		return
	}
	if lineage != r.lineage {
		r.forget(lineage)
	}
	r.Sent, r.Acked = max(r.Sent, revision), revision
	was := r.refused
	r.refused = map[string]refusal{}
	for name := range versions {
		domain, rule := xds.SplitName(name)
		if domain != r.Domain || rule == "" || len(r.refused) == maxOffered {
			continue
		}
		known, ok := was[name]
		if !ok {
			known = refusal{revision: revision, unexplained: true}
		}
		r.refused[name] = known
	}
	r.judge(s)
}

// judge says whether the node may follow the history that is served, which may have become another one, and writes that
// and the standing refusals into the node's state.
func (r *record) judge(s *state) {
	if s != nil {
		r.alien = s.foreign(position{lineage: r.Lineage})
		if r.lineage != "" && r.lineage != s.lineage {
			r.forget("")
		}
		if r.lineage == "" && r.Lineage == s.lineage { // the history is the one it had again
			r.lineage, r.Sent, r.Acked = r.Lineage, r.holds, r.holds
		}
	}
	r.settle()
}

// forget ends what is known of the revisions the node was sent and took, since they are of no lineage that counts.
func (r *record) forget(lineage string) {
	r.lineage = lineage
	r.Sent, r.Acked, r.Nacked = 0, 0, 0
	clear(r.refused)
}

// wasSent reports whether more changed than what was sent.
func (r *record) wasSent(s *sent) bool {
	other := r.lineage != s.lineage
	if other {
		r.forget(s.lineage)
		r.settle()
	}
	r.Sent = max(s.revision, r.Acked) // lower than what it has, where a database was restored
	return other
}

// acked: all of the revision is in force, and with it other versions of the rules it held.
func (r *record) acked(s *sent) {
	r.Lineage, r.holds = s.lineage, s.revision
	if r.lineage != s.lineage {
		r.forget("") // sent before the history changed: it holds that now, and no revision of this one
		return
	}
	r.has(s.revision)
	if len(r.refused) > 0 {
		r.taken(s.contents())
	}
}

// nacked: of the revision, all is in force but the rules that the details name; without details, none of it. It returns
// the rules of which the node holds no version.
//
// Acked stays where it is, since this revision is not what the node has; unless it refuses only what it had refused
// before.
func (r *record) nacked(s *sent, detail *status.Status) []want {
	if r.lineage != s.lineage {
		return nil
	}
	contents := s.contents()
	named, wants, partly := r.named(s, contents, detail)
	if len(named) == 0 && !partly {
		named[r.Domain] = refusal{revision: s.revision, reason: printable(detail.GetMessage())}
	}
	news := false
	for name, why := range named {
		if was, ok := r.refused[name]; ok && !was.unexplained && was.what != "" && was.what == why.what {
			why.revision = was.revision
			named[name] = why
			continue
		}
		news = true
	}
	if _, whole := named[r.Domain]; !whole {
		r.Lineage, r.holds = s.lineage, s.revision
		r.taken(contents)
	}
	maps.Copy(r.refused, named)
	if !news {
		r.has(s.revision)
	}
	return wants
}

// has notes what the node acknowledged. What it was sent since can be lower, as in wasSent.
func (r *record) has(revision int64) {
	r.Acked, r.Sent = revision, max(r.Sent, revision)
}

// named reads the details of a refusal: what is refused of the response, and of which rules the node holds nothing.
// Partly reports that a last good version is among them: the newest one's refusal stands as it is.
func (r *record) named(
	s *sent, contents map[string]*discovery.Resource, detail *status.Status,
) (named map[string]refusal, wants []want, partly bool) {
	named = map[string]refusal{}
	for _, d := range detail.GetDetails() {
		var rejection xdspb.Rejection
		if d.UnmarshalTo(&rejection) != nil {
			continue // a detail of another kind
		}
		name := rejection.GetRule()
		domain, rule := xds.SplitName(name)
		resource := contents[name]
		if domain == r.Domain && rule == xds.Settings {
			resource = contents[domain]
		}
		switch {
		case resource == nil: // not sent
		case xds.IsLastGood(resource):
			partly = true
		default:
			why := s.refused(name, resource, rejection.GetReason())
			named[name] = why
			if !rejection.GetHolds() && rule != "" && rule != xds.Settings {
				wants = append(wants, want{rule: rule, version: resource.GetVersion(), revision: why.revision})
			}
		}
	}
	return named, wants, partly
}

// taken ends the refusals of whatever was in the step, which the domain's settings always are.
func (r *record) taken(contents map[string]*discovery.Resource) {
	_, all := contents[xds.RuleName(r.Domain, xds.Everything)]
	maps.DeleteFunc(r.refused, func(name string, _ refusal) bool {
		resource, sent := contents[name]
		_, rule := xds.SplitName(name)
		return all || rule == xds.Settings || sent && !xds.IsLastGood(resource)
	})
}

// hasAllRules reports that no rule is refused.
func (r *record) hasAllRules() bool {
	_, settings := r.refused[xds.RuleName(r.Domain, xds.Settings)]
	return len(r.refused) == 0 || settings && len(r.refused) == 1
}

// settle writes the standing refusals into the node's state.
func (r *record) settle() {
	var reasons []string
	r.Refused = nil
	newest := int64(0)
	refusedAt := map[int64]bool{}
	for i, name := range slices.Sorted(maps.Keys(r.refused)) {
		why := r.refused[name]
		newest = max(newest, why.revision)
		if why.unexplained {
			why.reason = "refused before it connected here"
		} else {
			refusedAt[why.revision] = true
		}
		_, rule := xds.SplitName(name)
		isRule := rule != "" && rule != xds.Settings
		if isRule && len(r.Refused) < maxReasons {
			r.Refused = append(r.Refused, printable(rule))
		}
		if !isRule {
			name = r.Domain
		}
		if i < maxReasons {
			reasons = append(reasons, printable(name)+": "+why.reason)
		}
	}
	if more := len(r.refused) - maxReasons; more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	r.NackReason = strings.Join(reasons, "; ")
	if r.alien {
		r.NackReason = fmt.Sprintf("holds revision %d of the history %s, which this control plane's database does not continue; "+
			"an admin lets it follow with: rulectl sidecar adopt %s", r.holds, r.Lineage, r.Lineage)
	}
	if newest > 0 {
		r.Nacked = newest
	}
	// A node offers a revision when it has it but for the rules it refused. What it has whole is older.
	for refusedAt[r.Acked] {
		r.Acked--
	}
}
