package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// workload of one podSet, with conditions that are true.
func workload(conditions ...string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	w.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1}}
	for _, c := range conditions {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return w
}

func TestWhatIsKeptOfObjects(t *testing.T) {
	over := workload(kueue.WorkloadAdmitted, kueue.WorkloadFinished)
	over.Spec.PodSets = nil
	for name, tt := range map[string]struct{ object, want any }{
		"a Workload that waits, whole":              {workload(), workload()},
		"a Workload that runs, whole":               {workload(kueue.WorkloadAdmitted), workload(kueue.WorkloadAdmitted)},
		"a Workload that is over, without its pods": {workload(kueue.WorkloadAdmitted, kueue.WorkloadFinished), over},
		"nothing of who wrote what": {
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		},
		"that something is gone": {cache.DeletedFinalStateUnknown{Key: "a"}, cache.DeletedFinalStateUnknown{Key: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trim(tt.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("kept is (-want +got)\n%s", diff)
			}
		})
	}
}
