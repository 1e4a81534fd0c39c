package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ChecksIn are the checks of a Workload that are in a state.
func ChecksIn(w *kueue.Workload, state kueue.CheckState) (out []*kueue.AdmissionCheckState) {
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State == state {
			out = append(out, c)
		}
	}
	return out
}

// DescribeChecks names checks of one state in Kueue's words, with their messages.
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
