package harness

import (
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it ends. For
// Postgres that is the whole server: its workers notice the loss of the first process.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// reserved keeps the sockets of reservePort: one that nothing refers to would be closed.
var reserved struct {
	mu      sync.Mutex
	sockets []net.Listener
}

// reservePort takes port for the life of this process, among the processes that use this
// package. The abstract socket is a lock that the kernel releases however a process ends.
func reservePort(port int) bool {
	socket, err := net.Listen("unix", "@headgate-test-port-"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	reserved.mu.Lock()
	defer reserved.mu.Unlock()
	reserved.sockets = append(reserved.sockets, socket)
	return true
}
