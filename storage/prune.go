package storage

import (
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// Pruned says which rows have had their time.
type Pruned struct {
	Table  string
	Column string     // when the row is of
	Step   tally.Step // only rows of this one; 0: the table has none
	Before time.Time
}

// PruneBatch is how many rows are removed in one statement, so that none holds its locks for long.
const PruneBatch = 5_000

// Prunes returns all that is removed at an instant. Of an open window nobody asks after a minute, and of a session
// nobody once it has ended.
func Prunes(now time.Time) (list []Pruned) {
	for _, step := range tally.Steps() {
		for _, table := range []string{"tallies", "domain_tallies"} {
			list = append(list, Pruned{table, "start", step, now.Add(-step.Keep())})
		}
	}
	return append(list,
		Pruned{"tally_keys", "start", tally.StepMinute, now.Add(-tally.StepMinute.Keep())},
		Pruned{"tally_keys", "start", tally.StepHour, now.Add(-tally.StepMinute.Keep())},
		Pruned{"tally_rates", "start", 0, now.Add(-tally.KeepRates)},
		Pruned{"refusals", "at", 0, now.Add(-tally.StepMinute.Keep())},
		Pruned{"open_windows", "until", 0, now.Add(-tally.StepWindow.Keep())},
		Pruned{"missing", "until", 0, now.Add(-tally.StepHour.Keep())},
		Pruned{"sources", "until", 0, now.Add(-tally.StepHour.Keep())},
		Pruned{"sessions", "expires", 0, now},
	)
}
