package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ChecksIn returns the checks of a Workload that are in a state.
func ChecksIn(w *kueue.Workload, state kueue.CheckState) (out []*kueue.AdmissionCheckState) {
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State == state {
			out = append(out, c)
		}
	}
	return out
}

// DescribeChecks returns the names and messages of checks in one state, in Kueue's words.
func DescribeChecks(checks []*kueue.AdmissionCheckState) string {
	names := make([]string, len(checks))
	for i, c := range checks {
		if names[i] = strconv.Quote(string(c.Name)); c.Message != "" {
			names[i] += " (" + c.Message + ")"
		}
	}
	slices.Sort(names)
	noun := "AdmissionCheck"
	if len(names) > 1 {
		noun += "s"
	}
	return fmt.Sprintf("%s in %s state: %s", noun, checks[0].State, strings.Join(names, "; "))
}

func AllReady(states []kueue.AdmissionCheckState) bool {
	for i := range states {
		if states[i].State != kueue.CheckStateReady {
			return false
		}
	}
	return true
}

// Unready returns the first check other than own that is not Ready; empty if all are.
func Unready(checks []kueue.AdmissionCheckState, own kueue.AdmissionCheckReference) kueue.AdmissionCheckReference {
	for i := range checks {
		if c := &checks[i]; c.Name != own && c.State != kueue.CheckStateReady {
			return c.Name
		}
	}
	return ""
}

// RetryAt returns when the Workload may be queued again by all checks in the state Retry; zero is at once.
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
