//go:build race

package harness

// raceEnabled says whether the test itself was built with the race detector, so that the
// binaries it starts are built with it as well.
const raceEnabled = true
