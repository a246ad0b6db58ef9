package postgres

import (
	"testing"

	"github.com/headgate/headgate/storage/storagetest"
	"github.com/headgate/headgate/test/harness"
)

func BenchmarkTallies(b *testing.B) {
	s, err := Open(b.Context(), harness.Postgres(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	storagetest.BenchmarkTallies(b, s)
}
