package tally

import (
	"encoding/binary"
	"fmt"

	"github.com/headgate/headgate/rules"
)

// encoding is the first byte of what is kept as bytes. What begins with another was written by a newer program.
const encoding = 1

// EncodeKeys returns what [DecodeKeys] reads.
func EncodeKeys(keys []KeyCount) []byte {
	b := make([]byte, 0, 2+48*len(keys))
	b = append(b, encoding)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for i := range keys {
		k := &keys[i]
		b = append(b, k.Key[:]...)
		b = appendText(b, k.Label)
		for _, n := range []int64{k.Refused, k.Would, k.Over} {
			b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // the same bits
		}
	}
	return b
}

// DecodeKeys reads what EncodeKeys wrote. The error is a [rules.ErrInvalid].
func DecodeKeys(b []byte) ([]KeyCount, error) {
	r := reader{left: b}
	r.version()
	keys := make([]KeyCount, r.length(len(KeyID{})))
	for i := range keys {
		k := &keys[i]
		copy(k.Key[:], r.take(len(k.Key)))
		k.Label = r.text()
		k.Refused, k.Would, k.Over = r.number(), r.number(), r.number()
	}
	return keys, r.end("keys")
}

// EncodeRates returns what [DecodeRates] reads.
func EncodeRates(rates *Rates) []byte {
	b := append(make([]byte, 0, 8+10*len(rates.Keys)), encoding)
	b = binary.AppendUvarint(b, uint64(rates.Level)) //nolint:gosec // at most MaxRateLevel
	b = binary.AppendUvarint(b, uint64(len(rates.Keys)))
	for _, k := range rates.Keys {
		b = binary.BigEndian.AppendUint64(b, uint64(k.Key))
		b = binary.AppendUvarint(b, uint64(k.Calls)) //nolint:gosec // the same bits
	}
	return b
}

// DecodeRates reads what EncodeRates wrote. The error is a [rules.ErrInvalid].
func DecodeRates(b []byte) (Rates, error) {
	r := reader{left: b}
	r.version()
	level := r.number()
	if level < 0 || level > MaxRateLevel {
		r.fail()
	}
	keys := make([]KeyRate, r.length(9))
	for i := range keys {
		if key := r.take(8); key != nil {
			keys[i] = KeyRate{Key: RateKey(binary.BigEndian.Uint64(key)), Calls: r.number()}
		}
	}
	if err := r.end("rates"); err != nil {
		return Rates{}, err
	}
	return NewRates(int(level), keys), nil
}

// EncodeTotals returns the counts of a window as [DecodeTotals] reads them: without keys, refusals and all else.
func EncodeTotals(w *Window) []byte {
	b := append(make([]byte, 0, 64*(1+len(w.Versions))), encoding)
	b = binary.AppendUvarint(b, uint64(len(w.Versions)))
	for i := range w.Versions {
		v := &w.Versions[i]
		b = appendText(appendText(b, v.Domain), v.UID)
		b = binary.AppendUvarint(b, uint64(v.Version)) //nolint:gosec // the same bits
		b = appendCounts(b, v.Counts[:])
	}
	b = binary.AppendUvarint(b, uint64(len(w.Domains)))
	for i := range w.Domains {
		b = appendCounts(appendText(b, w.Domains[i].Domain), w.Domains[i].Counts[:])
	}
	return b
}

// DecodeTotals reads what EncodeTotals wrote. Cells that this program does not know are left out. The error is a
// [rules.ErrInvalid].
func DecodeTotals(b []byte) ([]VersionTally, []DomainTally, error) {
	r := reader{left: b}
	r.version()
	versions := make([]VersionTally, r.length(1))
	for i := range versions {
		v := &versions[i]
		v.Domain, v.UID, v.Version = r.text(), r.text(), r.number()
		r.counts(v.Counts[:])
	}
	domains := make([]DomainTally, r.length(1))
	for i := range domains {
		domains[i].Domain = r.text()
		r.counts(domains[i].Counts[:])
	}
	return versions, domains, r.end("totals")
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendCounts writes how many counts are not 0, and each with its cell.
func appendCounts(b []byte, counts []int64) []byte {
	n := uint64(0)
	for _, c := range counts {
		if c != 0 {
			n++
		}
	}
	b = binary.AppendUvarint(b, n)
	for cell, c := range counts {
		if c != 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(cell)), uint64(c)) //nolint:gosec // the same bits
		}
	}
	return b
}

// reader reads what was appended. After the first thing that is not there it reads zeros, and knows that it failed.
type reader struct {
	left   []byte
	failed bool
}

func (r *reader) fail() {
	r.left, r.failed = nil, true
}

func (r *reader) take(n int) []byte {
	if n > len(r.left) {
		r.fail()
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) version() {
	if b := r.take(1); len(b) != 1 || b[0] != encoding {
		r.fail()
	}
}

func (r *reader) number() int64 {
	n, size := binary.Uvarint(r.left)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.left = r.left[size:]
	return int64(n) //nolint:gosec // the same bits
}

// length reads how many things follow, of at least so many bytes each: no more than there can be.
func (r *reader) length(each int) int {
	n := r.number()
	if n < 0 || n > int64(len(r.left)/each) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) text() string { return string(r.take(r.length(1))) }

func (r *reader) counts(counts []int64) {
	for range r.length(2) {
		cell, n := r.number(), r.number()
		if cell >= 0 && cell < int64(len(counts)) {
			counts[cell] = n
		}
	}
}

func (r *reader) end(what string) error {
	if r.failed || len(r.left) > 0 {
		return fmt.Errorf("%w: %s: unreadable, or written by a newer program", rules.ErrInvalid, what)
	}
	return nil
}
