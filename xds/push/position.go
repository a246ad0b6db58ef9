package push

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/headgate/headgate/xds"
)

// position is what a client holds of a domain.
//
// It is kept as text in the stream's map of resource versions, under the domain's name: "" nothing; "lineage@12" all of
// revision 12; "lineage@12#login.7.lineage" in the middle of a step in parts, all up to rule login of revision 12 and
// nothing committed; "absent" was told that there is no such domain. The client knows and offers only the first two.
type position struct {
	lineage  string
	revision int64
	rule     string // not "": the last rule that was sent, of those that revision touched
	// began is, in the middle of a step, the revision whose deletions the client needs not be told: the one it has, or for
	// a client that is sent everything the head at the beginning.
	began int64
	// from is, in the middle of a step, the lineage of what the client has in force; "" for nothing.
	from   string
	absent bool
}

// has is the lineage of what the client has in force; "" for nothing.
func (p position) has() string {
	if p.rule != "" {
		return p.from
	}
	return p.lineage
}

const absentText = "absent"

func parsePosition(text string) position {
	if text == absentText {
		return position{absent: true}
	}
	version, rule, from, began := text, "", "", int64(0)
	if hash := strings.IndexByte(text, '#'); hash >= 0 {
		var number string
		version = text[:hash]
		rule, number, _ = strings.Cut(text[hash+1:], ".")
		number, from, _ = strings.Cut(number, ".")
		var err error
		if began, err = strconv.ParseInt(number, 10, 64); err != nil {
			return position{}
		}
	}
	lineage, revision, ok := xds.ParseDomainVersion(version)
	if !ok {
		return position{}
	}
	return position{lineage: lineage, revision: revision, rule: rule, began: began, from: from}
}

func (p position) String() string {
	switch {
	case p.absent:
		return absentText
	case p.revision == 0:
		return ""
	case p.rule != "":
		return xds.DomainVersion(p.lineage, p.revision) + "#" + p.rule + "." + strconv.FormatInt(p.began, 10) + "." + p.from
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
