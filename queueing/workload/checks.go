package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ChecksIn says in Kueue's words which checks of a Workload are in a state, by name
// and with what they say; empty if none is.
func ChecksIn(w *kueue.Workload, state kueue.CheckState) string {
	var names []string
	for i := range w.Status.AdmissionChecks {
		switch c := &w.Status.AdmissionChecks[i]; {
		case c.State != state:
		case c.Message == "":
			names = append(names, strconv.Quote(string(c.Name)))
		default:
			names = append(names, fmt.Sprintf("%q (%s)", c.Name, c.Message))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	noun := "AdmissionCheck"
	if len(names) > 1 {
		noun += "s"
	}
	return fmt.Sprintf("%s in %s state: %s", noun, state, strings.Join(names, "; "))
}

func AllReady(states []kueue.AdmissionCheckState) bool {
	for i := range states {
		if states[i].State != kueue.CheckStateReady {
			return false
		}
	}
	return true
}

// Unready is the first check other than own that is not Ready; empty if all are.
func Unready(checks []kueue.AdmissionCheckState, own kueue.AdmissionCheckReference) kueue.AdmissionCheckReference {
	for i := range checks {
		if c := &checks[i]; c.Name != own && c.State != kueue.CheckStateReady {
			return c.Name
		}
	}
	return ""
}

// RetryAt is when the last of the checks that are in Retry wants the Workload to be
// queued again; zero is at once.
func RetryAt(w *kueue.Workload) (at time.Time) {
	for i := range w.Status.AdmissionChecks {
		c := &w.Status.AdmissionChecks[i]
		if c.State != kueue.CheckStateRetry || c.RequeueAfterSeconds == nil {
			continue
		}
		if t := c.LastTransitionTime.Add(time.Duration(*c.RequeueAfterSeconds) * time.Second); t.After(at) {
			at = t
		}
	}
	return at
}

func FindCheck(states []kueue.AdmissionCheckState, name kueue.AdmissionCheckReference) *kueue.AdmissionCheckState {
	for i := range states {
		if states[i].Name == name {
			return &states[i]
		}
	}
	return nil
}
