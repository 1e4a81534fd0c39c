package cluster

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

const (
	sharedMemory = "/dev/shm"

	// Below this much free memory-backed space (containers often get 64 MiB) etcd's data goes to disk instead: its log
	// alone takes 64 MiB at a time.
	sharedMemoryNeeded = 2 << 30
)

// memoryDir makes a folder in memory, or returns "" where the machine offers none that is large enough.
func memoryDir(prefix string) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(sharedMemory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < sharedMemoryNeeded {
		return ""
	}
	dir, err := os.MkdirTemp(sharedMemory, prefix)
	if err != nil {
		return ""
	}
	return dir
}

// availableMemory returns how many bytes new programs can use without others being swapped out, and whether that could be read.
func availableMemory() (int64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return parseAvailable(text)
}

func parseAvailable(text []byte) (int64, bool) {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte("MemAvailable:")); found {
			kibibytes, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kibibytes << 10, err == nil
		}
	}
	return 0, false
}
