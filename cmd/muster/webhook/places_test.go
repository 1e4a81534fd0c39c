package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/jobs/ranks"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/placement"
)

const indexLabel, groupLabel = "index", "group"

// TestPodsAreBornWhereTheyWouldBeSent: the policy and ranks.Place, which sends pods that were created with the gate, are written
// twice, in CEL and in Go.
func TestPodsAreBornWhereTheyWouldBeSent(t *testing.T) {
	none := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: deploy.Moved}}
	policy := mutations(t, params(t, none))["muster-born-in-place"]
	random := rand.New(rand.NewPCG(1, 2))
	born := 0
	for n := range 150 {
		w, pods := gang(random)
		podSets, err := ranks.Of(w)
		if err != nil {
			t.Fatal(err)
		}
		s := podSets[len(podSets)-1]
		plan := s.Plan(ranks.Start(w))
		want := map[string]map[string]string{}
		for _, target := range s.Place(pods, nil) {
			want[target.Pod.Name] = target.Selector
		}
		for _, pod := range pods {
			if plan == "" {
				t.Fatalf("gang %d has no plan", n)
			}
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, ranks.PlanAnnotation, plan)
			got := create(t, policy, pod)
			if got.Annotations[ranks.PlanAnnotation] != "" {
				t.Fatalf("gang %d: pod %s has its plan still", n, pod.Name)
			}
			if slices.ContainsFunc(got.Spec.SchedulingGates, templates.IsTopologyGate) {
				t.Fatalf("gang %d: pod %s with labels %v is not sent anywhere by the plan %q; it belongs to %v", n, pod.Name,
					pod.Labels, plan, want[pod.Name])
			}
			if born++; !maps.Equal(got.Spec.NodeSelector, want[pod.Name]) {
				t.Fatalf("gang %d: pod %s with labels %v is born at %v by the plan %q, and would be sent to %v",
					n, pod.Name, pod.Labels, got.Spec.NodeSelector, plan, want[pod.Name])
			}
		}
	}
	if born < 1000 {
		t.Errorf("%d pods were born, which shows little", born)
	}
}

// gang is a Workload whose last podSet has places, and the pods of that.
func gang(random *rand.Rand) (*kueue.Workload, []*corev1.Pod) {
	levels := [][]string{{corev1.LabelHostname}, {"block", "rack"}}[random.IntN(2)]
	var domains []placement.Domain
	count := 0
	groups := 1 + random.IntN(3)
	for i := range 1 + random.IntN(6) {
		d := placement.Domain{Values: []string{fmt.Sprint("host-", i)}, Count: int32(groups * (1 + random.IntN(3)))}
		if len(levels) == 2 {
			d.Values = []string{fmt.Sprint("block-", i/2), fmt.Sprint("rack-", i)}
		}
		domains, count = append(domains, d), count+int(d.Count)
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	request := &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel)}
	leaders := 0
	if random.IntN(3) == 0 {
		leaders = 1
		request.PodSetGroupName = new("both")
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: "leader", Count: 1,
			TopologyRequest: &kueue.PodSetTopologyRequest{PodSetGroupName: new("both")}})
		if count == 1 { // the smaller one leads
			domains[0].Count, count = 2, 2
		}
	}
	subGroups := leaders == 0 && random.IntN(2) == 0
	if subGroups {
		request.SubGroupIndexLabel, request.SubGroupCount = new(groupLabel), new(int32(groups))
	}
	w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: "main", Count: int32(count), TopologyRequest: request})
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(count)), TopologyAssignment: placement.Encode(levels, domains),
	}}}
	var pods []*corev1.Pod
	for rank := range count {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", rank), Labels: map[string]string{}}}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		index := rank + leaders
		if subGroups {
			index = rank % (count / groups)
			pod.Labels[groupLabel] = fmt.Sprint(rank / (count / groups))
		}
		pod.Labels[indexLabel] = fmt.Sprint(index)
		pods = append(pods, pod)
	}
	return w, pods
}

// create returns the pod as the policy has it created.
func create(t *testing.T, policy *mutation, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	r := ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "team", Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: object},
	}}
	out := &corev1.Pod{}
	if err := json.Unmarshal(changed(t, policy.Handle(t.Context(), r), object), out); err != nil {
		t.Fatal(err)
	}
	return out
}
