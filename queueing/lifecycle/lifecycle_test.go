package lifecycle_test

import (
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestAWorkloadWhoseJobIsGone without it, as a deletion with --cascade=orphan leaves it,
// is over at once where no pods of it may run. Else it keeps its quota until they have ended.
func TestAWorkloadWhoseJobIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		job, owned, waits, group bool
		want                     string
	}{
		"it ran":                           {job: true},
		"it waited":                        {job: true, waits: true, want: kueue.WorkloadFinishedReasonOwnerNotFound},
		"its job is there":                 {job: true, owned: true},
		"Kueue has its StatefulSet own it": {job: true, group: true, owned: true},
		"its group of pods is gone":        {job: true, group: true},
		"it is of no job":                  {},
		"it is of no job and it waited":    {waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.New()
			w.Set(queues.Flavor("spot", nil))
			w.Set(queues.LocalQueue("main", "queue", ""))
			w.Set(queues.ClusterQueue(t, "queue", nil, "spot cpu=1"))
			args := map[string]string{"cpu": "1", "count": "1"}
			if tt.waits {
				args["cpu"] = "2"
			}
			object := w.Workload(t, "one", args)
			if tt.job {
				object.Labels = map[string]string{workload.JobUIDLabel: "1234"}
			}
			w.Set(object)
			w.Cycles(t)
			left := w.Find(t, "one")
			if tt.group {
				left.Annotations = map[string]string{workload.GroupAnnotation: "true"}
				left.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "one", UID: "1234"}}
			}
			if !tt.owned {
				left.OwnerReferences = nil
			}
			w.Set(left)
			w.Set(w.Workload(t, "next", map[string]string{"cpu": "1", "count": "1"}))
			w.Cycles(t)
			got := ""
			if c := apimeta.FindStatusCondition(w.Find(t, "one").Status.Conditions, kueue.WorkloadFinished); c != nil {
				got = c.Reason
			}
			if got != tt.want || workload.HasQuota(w.Find(t, "next")) != (tt.waits || tt.want != "") {
				t.Errorf("it is finished as %q, want %q; the next has quota: %v", got, tt.want, workload.HasQuota(w.Find(t, "next")))
			}
		})
	}
}

// TestFewerPodsThanItsLeastAreLeft: a Workload then requests all of its remaining pods.
func TestFewerPodsThanItsLeastAreLeft(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.LocalQueue("main", "queue", ""))
	w.Set(queues.ClusterQueue(t, "queue", nil, "spot cpu=0"))
	object := w.Workload(t, "one", map[string]string{"cpu": "1", "count": "5", "min": "3"})
	object.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: object.Spec.PodSets[0].Name, Count: 4}}
	w.Set(object)
	w.Cycles(t)
	if got := w.Find(t, "one").Status.Conditions[0].Message; !strings.Contains(got, "current podset request (1)") {
		t.Errorf("it waits for %q", got)
	}
}

// TestOneOfWhichPodsAreOverIsNoneOfItsKind: what is too much for a Workload of the same podSets may be there for it.
func TestOneOfWhichPodsAreOverIsNoneOfItsKind(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.LocalQueue("main", "queue", ""))
	w.Set(queues.ClusterQueue(t, "queue", nil, "spot cpu=2"))
	args := map[string]string{"cpu": "1", "count": "4"}
	w.Set(w.Workload(t, "whole", args))
	over := w.Workload(t, "over", args)
	over.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: over.Spec.PodSets[0].Name, Count: 3}}
	w.Set(over)
	w.Cycles(t)
	if whole, over := workload.HasQuota(w.Find(t, "whole")), workload.HasQuota(w.Find(t, "over")); whole || !over {
		t.Errorf("the whole one has quota: %v, that of which one pod is left: %v", whole, over)
	}
}
