package util

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// worded returns the conditions with messages that end where Kueue's do: Muster goes on with the name and the priority of the
// Workload that a preemption was for.
func worded(conditions []metav1.Condition) []metav1.Condition {
	out := slices.Clone(conditions)
	for i := range out {
		out[i].Message, _, _ = strings.Cut(out[i].Message, "; the preemptor is ")
	}
	return out
}
