// Package scaledown decides which machines are given back, which pods are moved off them,
// and which labels and cordons are taken off nodes.
package scaledown
