// Package harness starts the real things that tests run against: throwaway Postgres and
// Redis servers, and headgate's own binaries as separate processes.
//
// Everything listens on a free loopback port and dies with the test: at the test's end,
// and, on Linux, also when the test process is killed or panics. Nothing here is skipped
// when a server is not installed; the test fails and names the command that installs it.
//
// A package whose tests call [Postgres] or [Build] shares one server and one set of
// binaries among its tests, so it needs
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// which stops them and then looks for leaked goroutines. Any package that starts
// goroutines may use it for the second half alone.
//
// Waiting is done on events: a line in a log ([Process.WaitLog]), the end of a process
// ([Process.Done]). What gives no event is polled under a deadline with [Eventually].
//
// The functions may be called from parallel tests. They end the test with Fatal, so they
// must be called from its goroutine.
package harness
