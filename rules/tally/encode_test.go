package tally_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

func someKeys() []tally.KeyCount {
	keys := make([]tally.KeyCount, tally.MaxTopKeys)
	for i := range keys {
		keys[i] = tally.KeyCount{
			Key: tally.KeyID{byte(i), 15: 7}, Label: fmt.Sprintf("203.0.%d.*", i), Refused: int64(i), Would: 1 << i % 63, Over: int64(i % 3),
		}
	}
	return keys
}

func someTotals() *tally.Window {
	w := &tally.Window{
		Versions: []tally.VersionTally{{Domain: "api", UID: "u1", Version: 1}, {Domain: "api", UID: "u2", Version: 1 << 40}},
		Domains:  []tally.DomainTally{{Domain: "api"}, {Domain: ""}},
	}
	for i := range w.Versions[1].Counts {
		w.Versions[1].Counts[i] = 1<<62 - int64(i)
	}
	w.Versions[0].Counts[tally.CellRefused] = 1
	w.Domains[0].Counts = tally.DomainCounts{1, 2, 3, 4, 5, 6}
	return w
}

func TestKeysAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]tally.KeyCount{{}, someKeys()[:1], someKeys()} {
		got, err := tally.DecodeKeys(tally.EncodeKeys(keys))
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if diff := cmp.Diff(keys, got); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
	}
}

func TestRatesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, want := range []tally.Rates{
		{Keys: []tally.KeyRate{}},
		{Level: tally.MaxRateLevel, Keys: []tally.KeyRate{{Key: 1, Calls: 1 << 62}}},
		{Keys: []tally.KeyRate{{Key: 0, Calls: 1}, {Key: 1 << 63, Calls: 300}}},
	} {
		got, err := tally.DecodeRates(tally.EncodeRates(&want))
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rates (-want +got):\n%s", diff)
		}
	}
}

func TestTotalsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	w := someTotals()
	versions, domains, err := tally.DecodeTotals(tally.EncodeTotals(w))
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if diff := cmp.Diff(w.Versions, versions, cmp.AllowUnexported(tally.Distinct{})); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(w.Domains, domains); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
}

// A newer program may count what this one does not know.
func TestUnknownCellsAreLeftOut(t *testing.T) {
	t.Parallel()
	b := []byte{1, 1, 1, 'd', 1, 'u', 3, 2, 0, 9, 120, 5, 0}
	versions, _, err := tally.DecodeTotals(b)
	if err != nil || len(versions) != 1 || versions[0].Version != 3 || versions[0].Counts != (tally.Counts{9}) {
		t.Errorf("decoded %+v, %v, want one version with 9 allowed", versions, err)
	}
}

func TestWhatIsCutOrNewerIsNotRead(t *testing.T) {
	t.Parallel()
	keys, totals := tally.EncodeKeys(someKeys()), tally.EncodeTotals(someTotals())
	wantInvalid := func(what string, b []byte, decode func([]byte) error) {
		t.Helper()
		if err := decode(b); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", what, err)
		}
	}
	decodeKeys := func(b []byte) error { _, err := tally.DecodeKeys(b); return err }
	decodeTotals := func(b []byte) error { _, _, err := tally.DecodeTotals(b); return err }
	for n := range keys {
		wantInvalid(fmt.Sprintf("%d bytes of keys", n), keys[:n], decodeKeys)
	}
	for n := range totals {
		wantInvalid(fmt.Sprintf("%d bytes of totals", n), totals[:n], decodeTotals)
	}
	rates := tally.EncodeRates(&tally.Rates{Level: 3, Keys: []tally.KeyRate{{Key: 5, Calls: 1 << 40}, {Key: 6, Calls: 1}}})
	decodeRates := func(b []byte) error { _, err := tally.DecodeRates(b); return err }
	for n := range rates {
		wantInvalid(fmt.Sprintf("%d bytes of rates", n), rates[:n], decodeRates)
	}
	wantInvalid("rates of no level", []byte{1, tally.MaxRateLevel + 1, 0}, decodeRates)
	wantInvalid("rates of another version", []byte{2, 0, 0}, decodeRates)
	wantInvalid("more than keys", append(keys, 0), decodeKeys)
	wantInvalid("keys of another version", []byte{2, 0}, decodeKeys)
	wantInvalid("totals of another version", []byte{0, 0, 0}, decodeTotals)
	wantInvalid("more keys than bytes", []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}, decodeKeys)
}
