//go:build !linux

package harness

import "os/exec"

// dieWithParent does nothing here: only Linux has a parent-death signal. Children of a
// test process that was killed have to be ended by hand.
func dieWithParent(*exec.Cmd) {}

// reservePort trusts to luck: only Linux has sockets that are locks without a file.
func reservePort(int) bool { return true }
