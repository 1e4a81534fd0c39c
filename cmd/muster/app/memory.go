package app

import (
	"io/fs"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent is the growth of the heap, in percent of the live heap, until the collector
// runs. Most of the live heap are cached objects, which stay: the default of 100 would
// reserve their memory twice. Collecting twice as often costs a few percent of CPU.
const gcPercent = 50

// limitMemory makes the collector run more often, the more so near the container's limit,
// beyond which the process is killed. Go's own variables GOGC and GOMEMLIMIT take precedence.
func limitMemory(cgroup fs.FS, getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit := containerMemory(cgroup); limit > 0 && getenv("GOMEMLIMIT") == "" {
		// The rest is for memory that the runtime does not count, such as the program itself.
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// containerMemory returns the limit of the control group in bytes; 0 if there is none, or
// it cannot be read.
func containerMemory(cgroup fs.FS) int64 {
	text, err := fs.ReadFile(cgroup, "memory.max")
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // it says max
	}
	return limit
}
