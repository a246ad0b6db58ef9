package backtest

// slots is how many parts a timeline has at most.
const slots = 64

// timeline counts events in equal parts of a time whose end is not known: when an event lies beyond the last part, parts
// are joined in pairs and become twice as long. All timelines of a run begin together and hear of the same instants, so
// that their parts are the same.
type timeline struct {
	start int64 // microseconds
	width int64 // microseconds
	count [slots]int
	used  int // parts up to the latest instant
}

func newTimeline(start int64) *timeline { return &timeline{start: start, width: 1_000_000} }

// at adds events at an instant, which is never before the start.
func (t *timeline) at(instant int64, events int) {
	for (instant-t.start)/t.width >= slots {
		for i := range slots / 2 {
			t.count[i] = t.count[2*i] + t.count[2*i+1]
		}
		clear(t.count[slots/2:])
		t.used = (t.used + 1) / 2
		t.width *= 2
	}
	slot := int((instant - t.start) / t.width)
	t.count[slot] += events
	t.used = max(t.used, slot+1)
}

func (t *timeline) counts() []int {
	if t == nil {
		return nil
	}
	return t.count[:t.used]
}
