package kinds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

// TestALeaderWorkerSetIsQueuedGroupByGroup: each group has a Workload of its own; an eviction
// deletes the pods of that group alone, and they come back gated.
func TestALeaderWorkerSetIsQueuedGroupByGroup(t *testing.T) {
	t.Parallel()
	testbed.NeedOperators(t, "lws")
	s := &site{testbed.NewSite(t, shared)}
	s.queue()
	x := story{file: "leaderworkerset.yaml", kind: "LeaderWorkerSet"}
	object := x.create(s)
	workloads := func() (out []kueue.Workload) {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		slices.SortFunc(list.Items, func(a, b kueue.Workload) int { return strings.Compare(a.Name, b.Name) })
		return list.Items
	}
	state := func() (out string) {
		var pods corev1.PodList
		s.List(&pods, client.InNamespace(s.Name))
		for _, p := range pods.Items {
			out += fmt.Sprint(p.Name, " ", p.Status.Phase, " ", p.Spec.SchedulingGates, "; ")
		}
		for _, w := range workloads() {
			out += fmt.Sprintf("%s %v; ", w.Name, w.Status.Conditions)
		}
		return out
	}
	until := func(wish string, holds func() bool) { s.Helper(); s.Within(patience, wish, holds, state) }
	until("a Workload a group", func() bool {
		all := workloads()
		return len(all) == 2 && podSets(&all[0]) == "leader×1 worker×1" && strings.HasPrefix(all[0].Name, "leaderworkerset-llm-0-")
	})
	until("all pods run", func() bool { return len(s.pods(corev1.PodRunning)) == 4 })
	first := workloads()[0]
	s.activate(&first, false)
	until("the other group runs on", func() bool {
		pods := s.pods(corev1.PodRunning)
		return len(pods) == 2 && len(s.pods(corev1.PodPending)) >= 1 && workloads()[0].Status.Admission == nil
	})
	s.activate(&first, true)
	until("all pods run again", func() bool { return len(s.pods(corev1.PodRunning)) == 4 })
	if err := unstructured.SetNestedField(object.Object, int64(1), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"replicas":1}}`)
	if err := s.Kube.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	until("one group is left, with its Workload", func() bool { return len(s.pods()) == 2 && len(workloads()) == 1 })
	s.Delete(object)
	until("nothing is left", func() bool { return len(s.pods()) == 0 && len(workloads()) == 0 })
}
