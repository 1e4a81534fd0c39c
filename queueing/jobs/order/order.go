// Package order is in which order the pods of a job come, where they do not come all at once.
package order

import (
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// After is what the pods of a podSet come after: the podSets that have to be ready, and those that have to succeed. If both are empty,
// they are created at the start. A nil After is undetermined.
type After struct{ Ready, Complete []string }

// IsFirst reports whether the pods come at the start.
func (a *After) IsFirst() bool { return a != nil && len(a.Ready)+len(a.Complete) == 0 }

// Text says which pod sets come after others; empty is none.
func Text(order []*After, podSets []kueue.PodSet) string {
	var out []string
	for i, after := range order {
		if after == nil || after.IsFirst() {
			continue
		}
		var waits []string
		if len(after.Ready) > 0 {
			waits = append(waits, strings.Join(after.Ready, " and ")+" being ready")
		}
		if len(after.Complete) > 0 {
			waits = append(waits, "the success of "+strings.Join(after.Complete, " and "))
		}
		out = append(out, fmt.Sprintf("%s after %s", podSets[i].Name, strings.Join(waits, " and ")))
	}
	return strings.Join(out, "; ")
}

// IsDue reports whether the pods of a pod set should be there. have is how many pods of each
// are ready or have succeeded, and succeeded how many have succeeded.
func (a *After) IsDue(podSets []kueue.PodSet, granted, have, succeeded []int32) bool {
	if a == nil {
		return true
	}
	reached := func(names []string, counts []int32) bool {
		for _, name := range names {
			for i := range podSets {
				if string(podSets[i].Name) == name && counts[i] < granted[i] {
					return false
				}
			}
		}
		return true
	}
	return reached(a.Ready, have) && reached(a.Complete, succeeded)
}
