package orphans

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestPodsThatOutliveTheirJobKeepItsQuota until they have ended.
func TestPodsThatOutliveTheirJobKeepItsQuota(t *testing.T) {
	pod := func(label, value string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{label: value}},
			Status: corev1.PodStatus{Phase: phase}}
	}
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		owned bool
		over  bool
	}{
		"none is left":             {over: true},
		"one of a Job runs":        {pod: pod(batchv1.ControllerUidLabel, "u", corev1.PodRunning)},
		"one of another kind runs": {pod: pod(jobs.JobUIDLabel, "u", corev1.PodPending)},
		"it has ended":             {pod: pod(jobs.JobUIDLabel, "u", corev1.PodSucceeded), over: true},
		"one of another job runs":  {pod: pod(jobs.JobUIDLabel, "v", corev1.PodRunning), over: true},
		"its job is there":         {owned: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme} {
				if err := add(s); err != nil {
					t.Fatal(err)
				}
			}
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w", Labels: map[string]string{jobs.JobUIDLabel: "u"}}}
			if tt.owned {
				w.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", UID: "u", Controller: new(true)}}
			}
			w.Status.Admission = &kueue.Admission{ClusterQueue: "q"}
			for _, c := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
				w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Test"})
			}
			objects := []client.Object{w}
			if tt.pod != nil {
				objects = append(objects, tt.pod)
			}
			c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&kueue.Workload{}).Build()
			recorder := events.NewFakeRecorder(10)
			r := &reconciler{client: c, live: c, recorder: recorder, now: time.Now}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
				t.Fatal(err)
			}
			if workload.IsFinished(w) != tt.over {
				t.Errorf("it is over: %v", !tt.over)
			}
			close(recorder.Events)
			told := strings.Contains(<-recorder.Events, "1 of its pods run on")
			if told != (!tt.over && !tt.owned) {
				t.Errorf("that pods run on is told: %v", told)
			}
		})
	}
}
