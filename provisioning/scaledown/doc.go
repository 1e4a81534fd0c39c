// Package scaledown decides which machines are terminated, which pods are evicted from them, and which labels and cordons are removed from
// nodes.
package scaledown
