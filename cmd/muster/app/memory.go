package app

import (
	"io/fs"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent is how much the heap grows, in percent of what is alive in it, until the
// collector runs. Most of what is alive are the objects of the caches, which stay: the
// default of 100 would hold their memory twice, and to collect twice as often costs a
// few percent of what the process computes.
const gcPercent = 50

// limitMemory has the collector spare memory, and most of all where the limit of the
// container is near: a process that goes beyond is killed. What the environment says by
// Go's own variables GOGC and GOMEMLIMIT comes first.
func limitMemory(cgroup fs.FS, getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit := containerMemory(cgroup); limit > 0 && getenv("GOMEMLIMIT") == "" {
		// The rest is for what the runtime does not count, such as the program itself.
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// containerMemory is the limit of the control group in bytes; 0 where there is none, or
// none that can be read.
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
