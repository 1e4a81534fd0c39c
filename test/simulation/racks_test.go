package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestScatteredMachinesAreThoseOfTheirAttempt: booked machines of an earlier attempt may run long after a later attempt of the same
// request was given up for its racks.
func TestScatteredMachinesAreThoseOfTheirAttempt(t *testing.T) {
	const later = 2 * mostScattered
	for _, tc := range []struct {
		name, launch string
		replacements []transaction.Replacement
		want         time.Duration
	}{
		{name: "of the attempt that failed", launch: "provisioningrequest-1-2", want: later},
		{name: "a replacement of that attempt", launch: "provisioningrequest-1-2r1", want: later},
		{name: "of an earlier attempt", launch: "provisioningrequest-1-1"},
		{name: "a replacement of an earlier attempt", launch: "provisioningrequest-1-1r2"},
		{name: "of another request", launch: "provisioningrequest-2-2"},
		{
			name: "replaced since it was elsewhere, whichever attempt has launched it", launch: "provisioningrequest-1-1", want: later,
			replacements: []transaction.Replacement{{
				Level: rackLabel, Lost: []transaction.LostMachine{{Group: "gpu", Name: "machine", Launch: "provisioningrequest-1-1"}},
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulator(0, faults{})
				known := time.Now().Add(-later)
				s.up = known
				for i := range tc.replacements {
					tc.replacements[i].Started = known
				}
				a := transaction.Attempt{
					Number: 2, Phase: transaction.RollingBack, Replacements: tc.replacements,
					Failure: &transaction.AttemptFailure{Class: v1alpha1.Scattered, Time: known},
				}
				r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gang"}}
				r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
				if _, err := s.store.create(r); err != nil {
					t.Fatal(err)
				}
				m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "machine"}}
				m.Spec.Group, m.Spec.Launch = "gpu", tc.launch
				s.noteScattered(m)
				if got := s.scatter.worst; got != tc.want {
					t.Errorf("billed for %s since it was known to be elsewhere, want %s", got, tc.want)
				}
			})
		})
	}
}
