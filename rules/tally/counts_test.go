package tally_test

import (
	"testing"

	"github.com/headgate/headgate/rules/tally"
)

// Cells are told apart by their outcome, and what a cell counts is what it was made for.
func TestCellsAreWhatTheyWereMadeFor(t *testing.T) {
	t.Parallel()
	seen := map[tally.Cell]string{}
	note := func(c tally.Cell, o tally.Outcome) {
		if was, twice := seen[c]; twice || c.Outcome() != o || c >= tally.Cells {
			t.Errorf("cell %d of %s: it is of %s, and was that of %q", c, o, c.Outcome(), was)
		}
		seen[c] = c.String()
	}
	for _, o := range tally.Outcomes() {
		switch {
		case o == tally.Refused:
			for limit := tally.NoLimit; limit < 4; limit++ {
				note(tally.BindingCell(o, limit), o)
				if got := tally.BindingCell(o, limit).Limit(); got != limit {
					t.Errorf("a refusal by limit %d is by limit %d", limit, got)
				}
			}
		case o.WhatIf():
			for _, beside := range []tally.Beside{tally.BesideNone, tally.BesideAllowed, tally.BesideRefused} {
				for _, other := range []bool{false, true} {
					c := tally.WhatIfCell(o, beside, other)
					note(c, o)
					if c.Beside() != beside || c.OtherRefused() != other {
						t.Errorf("%s: beside %d, other rules %v", c, c.Beside(), c.OtherRefused())
					}
				}
			}
		default:
			note(tally.BindingCell(o, tally.NoLimit), o)
		}
	}
	if len(seen) != int(tally.Cells) {
		t.Errorf("%d cells are used, of %d", len(seen), tally.Cells)
	}
}

func TestWhereNoVersionBindsNothingWasRefusedBefore(t *testing.T) {
	t.Parallel()
	var c tally.Counts
	c[tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false)] = 1
	c[tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, true)] = 2
	c[tally.WhatIfCell(tally.WouldRefuse, tally.BesideRefused, false)] = 4
	c[tally.WhatIfCell(tally.WouldAllow, tally.BesideRefused, false)] = 8
	c[tally.WhatIfCell(tally.WouldAllow, tally.BesideNone, false)] = 16
	c[tally.BindingCell(tally.Refused, 0)] = 32
	if refused, allowed := c.Turned(); refused != 3 || allowed != 8 {
		t.Errorf("newly refused %d, no longer refused %d; want 3 and 8", refused, allowed)
	}
	if all, alone := c.WouldRefuse(); all != 7 || alone != 5 || c.Judged() != 31 || c.Refusals() != 32 || c.Matched() != 63 {
		t.Errorf("would refuse %d, alone %d; judged %d, refused %d, matched %d", all, alone, c.Judged(), c.Refusals(), c.Matched())
	}
}
