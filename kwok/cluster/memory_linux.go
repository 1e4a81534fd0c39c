package cluster

import (
	"os"
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
