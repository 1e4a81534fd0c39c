package promises

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	workloads "github.com/muster-dev/muster/queueing/workload"
)

// TestNoMorePodsOfAPodSetRunThanHaveQuota, whatever kind their job is of.
func TestNoMorePodsOfAPodSetRunThanHaveQuota(t *testing.T) {
	for name, tc := range map[string]struct {
		reclaimable int32
		ended       int
		evicted     bool
		want        string
	}{
		"all of them run":                  {},
		"two have ended and are reclaimed": {reclaimable: 2, ended: 2},
		"reclaimed pods run again":         {reclaimable: 2, ended: 1, want: "3 pods of podSet main run since"},
		"a Workload that is evicted":       {reclaimable: 2, evicted: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourse(t)
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("set", 4, 1)
			w.Labels = map[string]string{workloads.JobUIDLabel: "jobset"}
			c.admit(w, "a", 4)
			podSet := w.Spec.PodSets[0].Name
			if tc.reclaimable > 0 {
				w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: podSet, Count: tc.reclaimable}}
			}
			if tc.evicted {
				condition(&w.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, "for another")
			}
			c.show(w)
			node := newNode("plain")
			c.show(node)
			for i, name := range []string{"one", "two", "three", "four"} {
				p := newPod(name, 1)
				p.Labels = map[string]string{workloads.JobUIDLabel: "jobset", workloads.PodSetLabel: string(podSet)}
				p = c.bind(p, node)
				if i < tc.ended {
					p.Status.Phase = corev1.PodSucceeded
					c.show(p)
				}
			}
			for range 3 {
				c.pass(31 * time.Second)
			}
			if got := c.verdict(); tc.want == "" && strings.Contains(got, "pods of podSet") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
