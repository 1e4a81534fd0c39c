//go:build unix && !linux

package cluster

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes puts a child in a process group of its own, so that Ctrl-C in the terminal reaches the supervisor
// only, which stops the children in their order. There is no way here to have the kernel kill it with the supervisor;
// what a killed one leaves is cleared away by the next command that meets its state.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func commandLine(pid int) []string { return strings.Fields(ps(pid, "command=")) }

// residentMemory is in bytes; 0 if the process is gone.
func residentMemory(pid int) int64 {
	kilobytes, err := strconv.ParseInt(ps(pid, "rss="), 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

func ps(pid int, column string) string {
	text, err := exec.Command("ps", "-o", column, "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
