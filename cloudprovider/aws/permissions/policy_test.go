package permissions

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The policy grants each permission once, and what Muster may change or end only where the
// cluster's tag is.
func TestPolicy(t *testing.T) {
	var granted []string
	for _, st := range Policy() {
		for _, action := range st.Action {
			if st.Effect != "Allow" || st.Sid != "MusterTagsWhatItLaunches" && slices.Contains(granted, action) {
				t.Errorf("%s is granted by statement %+v, and elsewhere", action, st)
			}
			granted = append(granted, action)
			_, verb, _ := strings.Cut(action, ":")
			if strings.HasPrefix(verb, "Terminate") || strings.HasPrefix(verb, "Cancel") || strings.HasPrefix(verb, "Delete") {
				if st.Condition["StringEquals"]["aws:ResourceTag/kubernetes.io/cluster/CLUSTER"] != "owned" {
					t.Errorf("%s is granted for everything: %+v", action, st)
				}
			}
		}
	}
	slices.Sort(granted)
	if diff := cmp.Diff(Names(), slices.Compact(granted)); diff != "" {
		t.Errorf("granted (-needed +granted):\n%s", diff)
	}
}
