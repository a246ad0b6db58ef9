package tally

// Outcome is what one version of a rule made of one request and key. The zero Outcome is none.
type Outcome uint8

// The outcomes. A binding version has exactly one of the first group, a what-if version exactly one of the second.
const (
	Allowed        Outcome = iota + 1
	Refused                // by this version
	RefusedByOther         // this version allowed, another rule refused
	FailedOpen
	FailedClosed
	LocalAllowed // by the count in the process, while the store does not answer
	LocalRefused

	WouldAllow
	WouldRefuse
	Unknown // the store did not answer
)

var outcomeNames = [...]string{
	Allowed: "allowed", Refused: "refused", RefusedByOther: "refused_by_other", FailedOpen: "failed_open", FailedClosed: "failed_closed",
	LocalAllowed: "local_allowed", LocalRefused: "local_refused",
	WouldAllow: "would_allow", WouldRefuse: "would_refuse", Unknown: "unknown",
}

// Outcomes returns them all, in their order.
func Outcomes() []Outcome {
	all := make([]Outcome, 0, Unknown)
	for o := Allowed; o <= Unknown; o++ {
		all = append(all, o)
	}
	return all
}

func (o Outcome) String() string {
	if o < Allowed || o > Unknown {
		return ""
	}
	return outcomeNames[o]
}

// WhatIf reports whether it is of a version that is only judged.
func (o Outcome) WhatIf() bool { return o >= WouldAllow }

// Refuses reports whether the version itself refused.
func (o Outcome) Refuses() bool {
	return o == Refused || o == FailedClosed || o == LocalRefused
}

// Affects reports whether it goes against the caller's key: the version refused, or would have.
func (o Outcome) Affects() bool { return o.Refuses() || o == WouldRefuse }

// Beside is what, beside a what-if version, the binding version of the same rule said of the same request by itself.
type Beside uint8

// The values.
const (
	BesideNone Beside = iota // no version binds
	BesideAllowed
	BesideRefused
)

// BesideOf tells what a binding outcome says of its own version; BesideNone of none.
func BesideOf(binding Outcome) Beside {
	switch {
	case binding == 0 || binding.WhatIf():
		return BesideNone
	case binding.Refuses():
		return BesideRefused
	}
	return BesideAllowed
}
