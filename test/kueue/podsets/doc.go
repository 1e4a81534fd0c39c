// Package podsets compares the pod sets that Muster gives jobs of each kind with those of Kueue's own
// integrations: a program of Kueue's packages answers for the same objects.
package podsets
