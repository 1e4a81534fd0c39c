//go:build !linux

package cluster

// memoryDir says that the machine offers no folder in memory.
func memoryDir(string) string { return "" }
