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
	lineage string // of the revisions in Node; those of another history mean nothing
	// refused holds the rules whose newest version the node does not have, by resource name. A refusal stands until the
	// node takes another version of the rule; under the domain's own name stands one of a whole revision.
	refused map[string]refusal
}

type refusal struct {
	revision int64 // that made the refused version
	reason   string
	// unexplained: the node offered something older when it connected. It is sent the rule once more and will say why.
	unexplained bool
}

// offered applies what the node says on its first request that it holds: "domain" at its revision, and "domain/rule" for
// each rule whose newest version it refused. Head is the lineage served here.
func (r *record) offered(versions map[string]string, head string) {
	lineage, revision, ok := xds.ParseDomainVersion(versions[r.Domain])
	if !ok || head != "" && lineage != head {
		// It holds nothing, or revisions of another history. Either way everything will be sent.
		r.forget("")
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
	r.settle()
}

// forget ends what is known of the revisions the node has, since it has none of this lineage.
func (r *record) forget(lineage string) {
	r.lineage = lineage
	r.Sent, r.Acked, r.Nacked, r.NackReason = 0, 0, 0, ""
	clear(r.refused)
}

func (r *record) wasSent(s *sent) {
	if r.lineage != s.lineage {
		r.forget(s.lineage)
	}
	r.Sent = s.revision
}

// acked: all of the revision is in force, and with it other versions of the rules it held.
func (r *record) acked(s *sent) {
	if r.lineage != s.lineage {
		return // sent before the history changed
	}
	r.Acked = s.revision
	if len(r.refused) > 0 {
		r.taken(s.contents())
	}
	r.settle()
}

// nacked: of the revision, all is in force but the rules that the details name; without details, none of it.
// Acked stays, since that revision is not what the node has.
func (r *record) nacked(s *sent, detail *status.Status) {
	if r.lineage != s.lineage {
		return
	}
	contents := s.contents()
	named := map[string]refusal{}
	for _, d := range detail.GetDetails() {
		var rejection xdspb.Rejection
		if d.UnmarshalTo(&rejection) != nil {
			continue // a detail of another kind
		}
		if resource := contents[rejection.GetRule()]; resource != nil {
			named[rejection.GetRule()] = refusal{revision: s.revisionOf(resource), reason: printable(rejection.GetReason())}
		}
	}
	if len(named) == 0 {
		named[r.Domain] = refusal{revision: s.revision, reason: printable(detail.GetMessage())}
	}
	if _, whole := named[r.Domain]; !whole {
		r.taken(contents)
	}
	maps.Copy(r.refused, named)
	r.settle()
}

// taken ends the refusals of whatever was in the step.
func (r *record) taken(contents map[string]*discovery.Resource) {
	maps.DeleteFunc(r.refused, func(name string, _ refusal) bool {
		_, ok := contents[name]
		return ok
	})
}

// settle writes the standing refusals into the node's state.
func (r *record) settle() {
	var reasons []string
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
		if i < maxReasons {
			reasons = append(reasons, printable(name)+": "+why.reason)
		}
	}
	if more := len(r.refused) - maxReasons; more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	r.NackReason = strings.Join(reasons, "; ")
	if newest > 0 {
		r.Nacked = newest
	}
	// A node offers a revision when it has it but for the rules it refused. What it has whole is older.
	for refusedAt[r.Acked] {
		r.Acked--
	}
}
