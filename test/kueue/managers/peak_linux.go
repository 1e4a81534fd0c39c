package managers

import (
	"fmt"
	"os"
	"strings"
)

// peakMemory is the most memory that was resident of a process that runs, in
// bytes. What it is said to have used once it has ended would include that of the
// process that started it.
func peakMemory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
