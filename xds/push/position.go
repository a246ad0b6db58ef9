package push

import (
	"cmp"
	"strings"

	"github.com/headgate/headgate/xds"
)

// position is what a client holds of a domain.
//
// It is kept as text in the stream's map of resource versions, under the domain's name: "" nothing; "lineage@12" all of
// revision 12; "lineage@12#login" in the middle of a step in parts, all up to rule login of revision 12 and nothing
// committed; "absent" was told that there is no such domain. The client knows and offers only the first two.
type position struct {
	lineage  string
	revision int64
	rule     string // not "": the last rule that was sent, of those that revision touched
	absent   bool
}

const absentText = "absent"

func parsePosition(text string) position {
	if text == absentText {
		return position{absent: true}
	}
	version, rule := text, ""
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		// A lineage may hold a "#", a number cannot.
		if hash := strings.IndexByte(text[at:], '#'); hash >= 0 {
			version, rule = text[:at+hash], text[at+hash+1:]
		}
	}
	lineage, revision, ok := xds.ParseDomainVersion(version)
	if !ok {
		return position{}
	}
	return position{lineage: lineage, revision: revision, rule: rule}
}

func (p position) String() string {
	switch {
	case p.absent:
		return absentText
	case p.revision == 0:
		return ""
	case p.rule != "":
		return xds.DomainVersion(p.lineage, p.revision) + "#" + p.rule
	}
	return xds.DomainVersion(p.lineage, p.revision)
}

// compare orders places in a domain's list: by revision, and by name where one revision touched several rules.
// A committed revision comes after all rules of that revision.
func (p position) compare(revision int64, rule string) int {
	if c := cmp.Compare(p.revision, revision); c != 0 || p.rule == "" {
		if c == 0 {
			return 1
		}
		return c
	}
	return strings.Compare(p.rule, rule)
}
