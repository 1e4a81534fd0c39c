//go:build !linux

package cluster

// memoryDir says that the machine offers no folder in memory.
func memoryDir(string) string { return "" }

// availableMemory is not available here.
func availableMemory() (int64, bool) { return 0, false }
