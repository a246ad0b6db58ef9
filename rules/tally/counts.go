package tally

import (
	"fmt"

	"github.com/headgate/headgate/rules"
)

// Cell is one count of a rule version: an outcome, with what tells cases of it apart. Its number is part of what nodes
// send, and never changes.
type Cell uint8

// The cells of a binding version. A refusal names the limit that refuses, by its position in the spec; CellRefused is one
// without: of a value that is missing or given twice. What-if cells follow, see [WhatIfCell].
const (
	CellAllowed Cell = iota
	CellRefused
	_ // the limits, CellRefused+1 to CellRefused+rules.MaxLimits
	_
	_
	_
	CellRefusedByOther
	CellFailedOpen
	CellFailedClosed
	CellLocalAllowed
	CellLocalRefused
	firstWhatIf

	besides     = 3
	whatIfKinds = 3

	// Cells is how many there are.
	Cells = firstWhatIf + whatIfKinds*besides*2
)

// NoLimit is the position of a refusal that no limit made.
const NoLimit = -1

// BindingCell is the cell of a binding outcome. Limit is the position of the limit that refused, for [Refused] only.
func BindingCell(o Outcome, limit int) Cell {
	switch o {
	case Refused:
		return CellRefused + Cell(1+limit) //nolint:gosec // from NoLimit to rules.MaxLimits-1
	case RefusedByOther:
		return CellRefusedByOther
	case FailedOpen:
		return CellFailedOpen
	case FailedClosed:
		return CellFailedClosed
	case LocalAllowed:
		return CellLocalAllowed
	case LocalRefused:
		return CellLocalRefused
	}
	return CellAllowed
}

// WhatIfCell is the cell of a what-if outcome: beside what the rule's binding version said, and whether a binding version
// of another rule refused.
func WhatIfCell(o Outcome, beside Beside, otherRefused bool) Cell {
	c := firstWhatIf + Cell(o-WouldAllow)*besides*2 + Cell(beside)*2
	if otherRefused {
		c++
	}
	return c
}

// Outcome returns the outcome that the cell counts.
func (c Cell) Outcome() Outcome {
	switch {
	case c == CellAllowed:
		return Allowed
	case c < CellRefusedByOther:
		return Refused
	case c < firstWhatIf:
		return RefusedByOther + Outcome(c-CellRefusedByOther)
	}
	return WouldAllow + Outcome((c-firstWhatIf)/(besides*2))
}

// Limit returns the position of the limit that refused; NoLimit for cells that name none.
func (c Cell) Limit() int {
	if c > CellRefused && c < CellRefusedByOther {
		return int(c-CellRefused) - 1
	}
	return NoLimit
}

// Beside returns what the rule's binding version said, of a what-if cell.
func (c Cell) Beside() Beside {
	if c < firstWhatIf {
		return BesideNone
	}
	return Beside((c - firstWhatIf) / 2 % besides)
}

// OtherRefused reports, of a what-if cell, whether another rule refused.
func (c Cell) OtherRefused() bool { return c >= firstWhatIf && (c-firstWhatIf)%2 == 1 }

// String is the cell's name, in lower case and underscores: "refused_2" is by the second limit,
// "would_refuse_allowed_other" of a request that the binding version allowed and another rule refused.
func (c Cell) String() string {
	name := c.Outcome().String()
	if l := c.Limit(); l != NoLimit {
		return fmt.Sprintf("%s_%d", name, l+1)
	}
	if c < firstWhatIf {
		return name
	}
	name += [...]string{"_none", "_allowed", "_refused"}[c.Beside()]
	if c.OtherRefused() {
		name += "_other"
	}
	return name
}

// Counts are the requests of one rule version by cell.
type Counts [Cells]int64

// Add adds other to c.
func (c *Counts) Add(other *Counts) {
	for i := range c {
		c[i] += other[i]
	}
}

// Sum adds up the cells that are asked for.
func (c *Counts) Sum(counts func(Cell) bool) int64 {
	var n int64
	for i := range c {
		if counts(Cell(i)) {
			n += c[i]
		}
	}
	return n
}

// Of returns how often the outcome was.
func (c *Counts) Of(o Outcome) int64 {
	return c.Sum(func(cell Cell) bool { return cell.Outcome() == o })
}

// Matched is how many pairs of request and key the version met: the sum of all cells.
func (c *Counts) Matched() int64 {
	return c.Sum(func(Cell) bool { return true })
}

// Bound is how many of them the version decided.
func (c *Counts) Bound() int64 {
	return c.Sum(func(cell Cell) bool { return cell < firstWhatIf })
}

// Refusals is how many of them the version refused by itself.
func (c *Counts) Refusals() int64 {
	return c.Sum(func(cell Cell) bool { return cell.Outcome().Refuses() })
}

// Judged is how many of them the version judged without deciding.
func (c *Counts) Judged() int64 {
	return c.Sum(func(cell Cell) bool { o := cell.Outcome(); return o == WouldAllow || o == WouldRefuse })
}

// WouldRefuse is how many it judged and would have refused. Alone are those of them that no other rule refused, for which
// the judgement is what would have been.
func (c *Counts) WouldRefuse() (all, alone int64) {
	all = c.Of(WouldRefuse)
	return all, all - c.Sum(func(cell Cell) bool { return cell.Outcome() == WouldRefuse && cell.OtherRefused() })
}

// Shared is how many that it judged another rule refused, and how many that it decided and allowed. With any, what it would
// refuse is an estimate, whatever it said of these: enforced, it may leave the other rule more room or less.
func (c *Counts) Shared() (judged, allowed int64) {
	judged = c.Sum(func(cell Cell) bool { return cell.OtherRefused() && cell.Outcome() != Unknown })
	return judged, c.Of(RefusedByOther)
}

// Turned is how many the version would have refused that the rule did not refuse as it stands, and how many it would have
// allowed that the rule's binding version refused. Where no version binds, the rule refuses nothing.
func (c *Counts) Turned() (refused, allowed int64) {
	refused = c.Sum(func(cell Cell) bool { return cell.Outcome() == WouldRefuse && cell.Beside() != BesideRefused })
	allowed = c.Sum(func(cell Cell) bool { return cell.Outcome() == WouldAllow && cell.Beside() == BesideRefused })
	return refused, allowed
}

// DomainCell is one count of a domain. A request is in exactly one of those before [RequestsWouldRefuse].
type DomainCell uint8

// The cells of a domain. Their numbers are part of what nodes send.
const (
	RequestsAllowed DomainCell = iota
	RequestsRefused
	RequestsExempt
	RequestsUnmatched
	RequestsMalformed
	// RequestsWouldRefuse are those of RequestsAllowed that some candidate would have refused. One that is counted while a
	// window closes may be in the next one here.
	RequestsWouldRefuse

	// DomainCells is how many there are.
	DomainCells
)

func (c DomainCell) String() string {
	return [...]string{"allowed", "refused", "exempt", "unmatched", "malformed", "would_refuse"}[c]
}

// DomainCounts are the requests of one domain by cell.
type DomainCounts [DomainCells]int64

// Add adds other to c.
func (c *DomainCounts) Add(other *DomainCounts) {
	for i := range c {
		c[i] += other[i]
	}
}

// Total is how many requests there were.
func (c *DomainCounts) Total() int64 {
	var n int64
	for _, v := range c[:RequestsWouldRefuse] {
		n += v
	}
	return n
}

// The cells of the limits have the place for as many as a rule may have.
var _ = [1]struct{}{}[CellRefusedByOther-CellRefused-1-rules.MaxLimits]
