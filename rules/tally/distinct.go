package tally

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/axiomhq/hyperloglog"

	"github.com/headgate/headgate/rules"
)

// distinctPrecision gives 4096 registers of a byte: a standard error of 1.6 %.
const distinctPrecision = 12

// MaxDistinctBytes bounds what [ParseDistinct] looks at.
const MaxDistinctBytes = 3 << distinctPrecision

// Distinct estimates how many keys there were, in bounded memory: HyperLogLog (Flajolet and others, 2007). The zero value is
// ready. It is not safe for concurrent use.
type Distinct struct {
	sketch *hyperloglog.Sketch
}

// Add notes a key. The id of a key is a keyed hash already.
func (d *Distinct) Add(key KeyID) {
	d.init()
	d.sketch.InsertHash(binary.BigEndian.Uint64(key[:]))
}

func (d *Distinct) init() {
	if d.sketch == nil {
		d.sketch, _ = hyperloglog.NewSketch(distinctPrecision, true) // fails only for another precision
	}
}

// Widen makes it as large as it gets, so that to add a key costs nothing but to set a register.
func (d *Distinct) Widen() {
	was := *d
	d.sketch, _ = hyperloglog.NewSketch(distinctPrecision, false) // fails only for another precision
	_ = d.Merge(&was)                                             // of the same precision
}

// Estimate returns about how many there were.
func (d *Distinct) Estimate() int64 {
	if d.sketch == nil {
		return 0
	}
	return int64(min(d.sketch.Estimate(), math.MaxInt64))
}

// Merge notes all keys of other.
func (d *Distinct) Merge(other *Distinct) error {
	if other.sketch == nil {
		return nil
	}
	d.init()
	if err := d.sketch.Merge(other.sketch); err != nil {
		return fmt.Errorf("%w: merge distinct keys: %w", rules.ErrInvalid, err)
	}
	return nil
}

// Bytes returns what [ParseDistinct] reads; empty where there is none.
func (d *Distinct) Bytes() []byte {
	if d.sketch == nil {
		return nil
	}
	b, _ := d.sketch.MarshalBinary() // never fails
	return b
}

// ParseDistinct reads what Bytes returned; what a node sent is not trusted. The error is a [rules.ErrInvalid].
func ParseDistinct(b []byte) (d Distinct, err error) {
	defer func() { // the library trusts its input
		if r := recover(); r != nil {
			d, err = Distinct{}, fmt.Errorf("%w: distinct keys: unreadable", rules.ErrInvalid)
		}
	}()
	switch {
	case len(b) == 0:
		return Distinct{}, nil
	case len(b) > MaxDistinctBytes:
		return Distinct{}, fmt.Errorf("%w: distinct keys: %d bytes, more than %d", rules.ErrInvalid, len(b), MaxDistinctBytes)
	}
	var read hyperloglog.Sketch
	if err := read.UnmarshalBinary(b); err != nil {
		return Distinct{}, fmt.Errorf("%w: distinct keys: %w", rules.ErrInvalid, err)
	}
	// Into one of our own, so that only one of the same precision is taken, and whole.
	if err := d.Merge(&Distinct{sketch: &read}); err != nil {
		return Distinct{}, err
	}
	d.Estimate()
	return d, nil
}

// Reset forgets all.
func (d *Distinct) Reset() { d.sketch = nil }
