package history_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/history"
)

// TestDevicesOfAJobAreThoseOfAdmittedPods: while it waits they are those of all pods.
func TestDevicesOfAJobAreThoseOfAdmittedPods(t *testing.T) {
	w := &kueue.Workload{}
	podSet := kueue.PodSet{Name: "main", Count: 10, MinCount: new(int32(4))}
	podSet.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
	}}}
	w.Spec.PodSets = []kueue.PodSet{podSet}
	check := func(want int64) {
		t.Helper()
		if pods, devices := history.DevicesOf(w); int64(pods) != want || devices["nvidia.com/gpu"] != 8*want {
			t.Errorf("%d pods with %v, want %d with 8 GPUs each", pods, devices, want)
		}
	}
	check(10)
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(6))}}}
	check(6)
}
