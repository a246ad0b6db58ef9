package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/storage/storagetest"
)

func BenchmarkTallies(b *testing.B) {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "headgate.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	storagetest.BenchmarkTallies(b, s)
}
