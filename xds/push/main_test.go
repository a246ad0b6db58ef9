package push

import (
	"testing"

	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
