package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

func TestEveryCauseIsToldInWords(t *testing.T) {
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string
		// never is a phrase that the answer must not have.
		never string
	}{
		"quota is short, and others have it": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("big", "team", 6, priority(10)),
				waiting("train", 4, nil)},
			want: []string{
				"Workload default/train waits for quota.",
				"1st of 1 in the queue, waiting for 60m",
				"- flavor h100: 16 more nvidia.com/gpu needed, 16 of 64 are free; this changes when",
				"flavor h100: the workloads listed below release 16 nvidia.com/gpu, or an administrator raises nominalQuota of ClusterQueue team by that amount",
				"default/big team 10 48 nvidia.com/gpu of h100 -",
			},
		},
		"who has the quota may run for half an hour more": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), waiting("train", 4, nil),
				running("big", "team", 6, func(w *kueue.Workload) {
					w.Spec.MaximumExecutionTimeSeconds = new(int32(3600))
				})},
			want: []string{
				"Expected start",
				"at 2026-11-20T12:30:",
				"(in 30m); most likely from 2026-11-20T12:30:",
				"of 2 workloads, run times are the maximum execution time for 1, unknown for 1; jobs that are still to come are left out",
			},
		},
		"nobody says how long who has the quota runs": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("big", "team", 6, nil), waiting("train", 4, nil)},
			want: []string{"1st of 1 in the queue", "Expected start",
				"when workload/big ends, at an unknown time: neither past jobs nor a maximum execution time tell",
				"the run times of all 2 workloads are unknown"},
		},
		"its quota has been borrowed by another queue": {
			objects: []client.Object{
				flavor("h100"), team("team", func(s *kueue.ClusterQueueSpec) { s.CohortName = "all" }, "h100=32"),
				team("other", func(s *kueue.ClusterQueueSpec) { s.CohortName = "all" }, "h100=32"),
				running("guest", "other", 6, nil), waiting("train", 4, nil),
			},
			want: []string{
				"waits for quota.",
				"16 more nvidia.com/gpu needed, 16 of 64 are free (32 of it borrowed from cohort all)",
				"h100 nvidia.com/gpu 32 16 16 64 32",
				"default/guest other 0 48 nvidia.com/gpu of h100 yes",
			},
		},
		"a workload ahead in a StrictFIFO queue does not fit": {
			objects: []client.Object{
				flavor("h100"), team("team", func(s *kueue.ClusterQueueSpec) { s.QueueingStrategy = kueue.StrictFIFO }, "h100=64"),
				running("small", "team", 1, nil), waiting("huge", 8, priority(5)), waiting("train", 4, nil),
			},
			want: []string{
				"2nd of 2 in the queue",
				"ClusterQueue team is StrictFIFO, and a workload ahead of this one does not fit yet",
				"default/huge (priority 5), the head of the queue, starts or is removed",
			},
		},
		"it runs in another cluster": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("train", "team", 4, func(w *kueue.Workload) {
				w.Status.ClusterName, w.OwnerReferences = new("west"), []metav1.OwnerReference{ownedBy("train")}
				w.Annotations = map[string]string{dispatch.Annotation: `{"in":["west"],"prices":{"west":98320000}}`}
			})},
			want: []string{
				"runs in cluster west since 2026-11-20T11:30:00Z (30m ago).",
				"with a context west for cluster west in your kubeconfig: kubectl --context west -n default describe job/train",
				"its pods: kubectl --context west -n default get pods -l batch.kubernetes.io/job-name=train",
				"its logs: kubectl --context west -n default logs job/train --all-pods",
				"machines that were to be launched for it there: 98.32 USD per hour, when it was given there",
			},
		},
		"another cluster has given it quota and does not start it": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("train", "team", 4, func(w *kueue.Workload) {
				w.Status.ClusterName, w.OwnerReferences = new("west"), []metav1.OwnerReference{ownedBy("train")}
				w.Annotations = map[string]string{dispatch.Annotation: `{"in":["west"],"waits":"cluster west does not start the job: no process ` +
					`there has renewed the Lease muster for 2m0s: its Muster or Kueue may be down; no other cluster can be asked now"}`}
			})},
			want: []string{
				"was given to cluster west since 2026-11-20T11:30:00Z (30m ago).", "cluster west does not start the job: no process there has renewed",
				"kubectl --context west -n default describe job/train",
			},
		},
		"another cluster runs it, and its record cannot be read": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("train", "team", 4, func(w *kueue.Workload) {
				w.Status.ClusterName, w.OwnerReferences = new("west"), []metav1.OwnerReference{ownedBy("train")}
				w.Annotations = map[string]string{dispatch.Annotation: "west"}
			})},
			want: []string{
				"runs in cluster west since 2026-11-20T11:30:00Z (30m ago).", "remove it once no cluster has a copy of the Workload",
				"kubectl --context west -n default describe job/train",
			},
		},
		"another cluster is asked, and one has refused it": {
			objects: []client.Object{flavor("h100"), check("capacity", kueue.MultiKueueControllerName, ""), team("team", checked, "h100=64"),
				reserved("train", "team", 4, func(w *kueue.Workload) {
					w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStatePending}}
					w.Status.NominatedClusterNames = []string{"east"}
					w.Annotations = map[string]string{dispatch.Annotation: `{"in":["east"],"at":"2026-11-20T11:59:00Z","waits":"cluster east cannot be ` +
						`reached, and may run the job",` +
						`"refusals":[{"cluster":"west","reason":"NoCapacity","message":"only 3 of 4 machines","at":"2026-11-20T11:59:30Z","times":1}]}`}
				})},
			want: []string{
				"has quota here and has been given to cluster east 60s ago.", "cluster east cannot be reached, and may run the job",
				"cluster west did not run it 30s ago, NoCapacity: only 3 of 4 machines; it may be asked again",
			},
		},
		"several clusters are asked at once": {
			objects: []client.Object{flavor("h100"), check("capacity", kueue.MultiKueueControllerName, ""), team("team", checked, "h100=64"),
				reserved("train", "team", 4, func(w *kueue.Workload) {
					w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStatePending}}
					w.Status.NominatedClusterNames = []string{"east", "west"}
					w.Annotations = map[string]string{dispatch.Annotation: `{"in":["east","west"],"hedge":2,"at":"2026-11-20T11:59:00Z"}`}
				})},
			want: []string{
				"has been given to cluster east and cluster west: up to 2 are asked at once, each of which may launch machines for it (muster.dev/hedge)",
			},
		},
		"the queue is stopped": {
			objects: []client.Object{flavor("h100"), team("team", func(s *kueue.ClusterQueueSpec) { s.StopPolicy = new(kueue.Hold) }, "h100=64"),
				waiting("train", 4, nil)},
			want: []string{
				"is held: its queue is stopped or inactive.",
				"its stopPolicy is Hold; set it to None to resume",
			},
		},
		"a check of the queue is not active": {
			objects: []client.Object{flavor("h100"), check("capacity", cache.CapacityController, "cheap"), team("team", checked, "h100=64"),
				waiting("train", 4, nil)},
			want: []string{
				"is held: its queue is stopped or inactive.",
				"references inactive AdmissionCheck(s): capacity: CapacityPolicy \"cheap\" does not exist; create it or change parameters.name",
			},
		},
		"the group had a stockout": {
			objects: []client.Object{flavor("h100"), capacity(), team("team", checked, "h100=64"), group("h100", 8, dry), waiting("train", 4, nil)},
			want: []string{
				"waits for machines.",
				"group h100: only 3 of 4 machines; next attempt at 2026-11-20T12:05:00Z",
				"time: the backoff of NodeGroup h100 ends at 2026-11-20T12:05:00Z (in 5m)",
				"h100 h100 OnDemand 10.00 0 of 8 4 95% Stockout, 10m ago 2026-11-20T12:05:00Z",
			},
		},
		"the group is left alone by gangs that need one rack": {
			objects: []client.Object{
				flavor("h100"), check("capacity", cache.CapacityController, "rack"), team("team", checked, "h100=64"), group("h100", 8, func(g *v1alpha1.NodeGroup) {
					dry(g)
					g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rack}}
					g.Status.Backoffs[0].Level = rack
				}),
				&v1alpha1.CapacityPolicy{ObjectMeta: meta("rack"), Spec: v1alpha1.CapacityPolicySpec{RequiredTopology: rack}}, waiting("train", 4, nil),
			},
			want: []string{
				"launches that need not be within one domain of example.com/rack need not wait",
				"h100 h100 OnDemand 10.00 0 of 8 4 95% Stockout, 10m ago 2026-11-20T12:05:00Z",
			},
		},
		"the machines cost more than the policy allows": {
			objects: []client.Object{
				flavor("h100"), check("capacity", cache.CapacityController, "cheap"), team("team", checked, "h100=64"), group("h100", 8, nil),
				&v1alpha1.CapacityPolicy{ObjectMeta: meta("cheap"), Spec: v1alpha1.CapacityPolicySpec{MaxPricePerHour: new(resource.MustParse("25"))}}, waiting("train", 4, nil),
			},
			want: []string{
				"cannot start as specified: its machines cost more than its CapacityPolicy allows.",
				"the cheapest option costs 40.00 USD per hour and the CapacityPolicy allows 25.00: raise its spec.maxPricePerHour or request less",
			},
		},
		"no group can provide its machines": {
			objects: []client.Object{
				flavor("h100"), capacity(), team("team", checked, "h100=64"), group("h100", 2, nil), group("a100", 8, nil), waiting("train", 4, nil),
			},
			want: []string{
				"cannot start as specified: no NodeGroup can provide its machines.",
				"group h100: 4 machines needed, it may have 2 (spec.maxNodes): 2 short; 1 other group cannot run such pods",
				"an administrator raises spec.maxNodes of NodeGroup h100 by 2",
			},
		},
		"the group has no room left for now": {
			objects: []client.Object{
				flavor("h100"), capacity(), team("team", checked, "h100=64"),
				group("h100", 4, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 3 }), waiting("train", 4, nil),
				bookedNode("node-1", "h100", "older"), bookedNode("node-2", "h100", "older"), bookedNode("node-3", "h100", "newer"),
				group("a100", 8, nil), bookedNode("node-4", "a100", "elsewhere"),
			},
			want: []string{
				"waits for machines.",
				"4 machines needed, it has 3 and may have 4 (spec.maxNodes): 3 short",
				"an administrator raises spec.maxNodes of NodeGroup h100 by 3, or some of its 3 machines are removed",
				"MACHINES PODS\nh100 default/newer 0 1 0\nh100 default/older 0 2 0\n",
			},
		},
		"the first flavor is dry and the second has no quota": {
			objects: []client.Object{
				flavor("spot"), flavor("h100"), capacity(), team("team", checked, "spot=64", "h100=32"), group("spot", 8, dry), group("h100", 8, nil),
				running("big", "team", 2, nil), waiting("train", 4, nil),
			},
			want: []string{
				"waits for machines.",
				"flavor spot: no machines: group spot: only 3 of 4 machines",
				"flavor h100: 16 more nvidia.com/gpu needed, 16 of 32 are free",
				"time: the backoff of NodeGroup spot ends at",
				"flavor h100: the workloads listed below release 16 nvidia.com/gpu",
				"h100 h100 OnDemand 10.00 0 of 8 4 95% - -",
			},
		},
		"somebody holds it back by a gate": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), waiting("train", 4, func(w *kueue.Workload) {
				w.Annotations = map[string]string{workload.GatedByAnnotation: "example.com/budget"}
			})},
			want: []string{
				"is held by an admission gate.",
				"Admission is gated by: example.com/budget",
			},
		},
		"it would have to preempt, and its gate is closed": {
			objects: []client.Object{
				flavor("h100"), team("team", func(s *kueue.ClusterQueueSpec) {
					s.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
				}, "h100=32"),
				running("low", "team", 4, nil), waiting("train", 4, func(w *kueue.Workload) {
					w.Spec.Priority = new(int32(10))
					w.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "example.com/wait"}}
				}),
			},
			want: []string{
				"is held by an admission gate.",
				"gated by preemptionGate example.com/wait; it is admitted when the gate is open or quota is free",
				"default/low team 0 32 nvidia.com/gpu of h100 -",
			},
		},
		"it pauses after a failure": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), waiting("train", 4, func(w *kueue.Workload) {
				condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, workload.ReasonWaitingForCapacity,
					"On flavors [h100] capacity could not be obtained: dry")
				w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2)), RequeueAt: new(at(-3))}
			})},
			want: []string{
				"waits for machines.",
				"capacity could not be obtained: dry",
				"time: Muster retries at 2026-11-20T12:03:00Z (in 3m)",
				"h100 nvidia.com/gpu 32 64 0 64 0",
			},
		},
		"it waits for the pods of those that make room": {
			objects: []client.Object{
				flavor("h100"), team("team", func(s *kueue.ClusterQueueSpec) {
					s.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
				}, "h100=32"),
				running("low", "team", 4, func(w *kueue.Workload) {
					w.OwnerReferences = []metav1.OwnerReference{ownedBy("low-job")}
					condition(w, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, "Preempted")
				}), waiting("train", 4, priority(10)),
			},
			want: []string{
				"waits for preempted workloads to stop.",
				"Waiting for the quota of preempted workloads: default/low",
			},
		},
		"it asks for more than there is": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=16"), waiting("train", 4, nil)},
			want: []string{
				"cannot start as specified: it requests more than the maximum quota.",
				"- flavor h100: 32 nvidia.com/gpu requested, 16 at most: request less",
				"request 16 nvidia.com/gpu less, or ask an administrator to raise nominalQuota of ClusterQueue team by that amount",
			},
		},
		"its queue has no quota for a resource": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), waiting("train", 4, func(w *kueue.Workload) {
				w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["example.com/fpga"] = resource.MustParse("1")
			})},
			want: []string{
				"cannot start as specified: no flavor of its ClusterQueue matches it.",
				"resource example.com/fpga unavailable in ClusterQueue team: an administrator can add it to a resource group",
			},
		},
		"no flavor suits its node selector": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), waiting("train", 4, func(w *kueue.Workload) {
				w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"pool": "a100"}
			})},
			want: []string{
				"cannot start as specified: no flavor of its ClusterQueue matches it.",
				"flavor h100 doesn't match node affinity: its node labels do not match the pods' node selector or affinity",
			},
		},
		"a pod set starts after another": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=16"), waiting("train", 4, func(w *kueue.Workload) {
				w.Annotations = map[string]string{workload.OrderAnnotation: "node after the success of dataset"}
			})},
			want: []string{"Order of its pod sets", "node after the success of dataset", "quota and machines are for all of them from the start"},
		},
		"its LocalQueue does not exist": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"),
				waiting("train", 4, func(w *kueue.Workload) { w.Spec.QueueName = "mian" })},
			want: []string{
				"cannot start as specified: Muster cannot queue it.",
				"LocalQueue mian doesn't exist: create it in namespace default, or change the job's label",
			},
		},
		"the queue takes nobody of its namespace": {
			objects: []client.Object{flavor("h100"), team("team", func(s *kueue.ClusterQueueSpec) {
				s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			}, "h100=64"), waiting("train", 4, nil)},
			want: []string{
				"cannot start as specified: Muster cannot queue it.",
				"its namespaceSelector does not match the namespace's labels",
			},
		},
		"it is deactivated": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"),
				waiting("train", 4, func(w *kueue.Workload) { w.Spec.Active = new(false) })},
			want: []string{
				"is held: to queue it again, use `kubectl muster release`, or set spec.active of its Workload to true",
			},
		},
		"the time by which it was to start has passed": {
			objects: []client.Object{
				flavor("h100"), check("capacity", cache.CapacityController, "soon"), team("team", checked, "h100=64"), group("h100", 8, nil),
				&v1alpha1.CapacityPolicy{ObjectMeta: meta("soon"), Spec: v1alpha1.CapacityPolicySpec{StartWithin: &metav1.Duration{Duration: 10 * time.Minute}}}, waiting("train", 4, nil),
			},
			want: []string{
				"cannot start as specified: the time by which it was to start has passed.",
				"It had no machines at 2026-11-20T11:10:00Z",
			},
		},
		"nothing is in its way": {
			objects: []client.Object{flavor("h100"), capacity(), team("team", checked, "h100=64"), group("h100", 8, nil), waiting("train", 4, nil)},
			want: []string{
				"is next: Muster is about to reserve its quota on flavor h100.",
				"machines to launch: 4 of NodeGroup h100, at 40.00 USD per hour, with a 95% chance of success",
				"it starts once AdmissionCheck capacity is Ready",
			},
		},
		"nodes that exist have room for its pods": {
			objects: []client.Object{flavor("h100"), capacity(), team("team", checked, "h100=64"), group("a100", 8, nil), node("node-1", "h100"),
				node("node-2", "h100"), node("node-3", "h100"), waiting("train", 1, func(w *kueue.Workload) {
					// No group and no flavor distinguishes nodes by this label.
					w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"name": "node-3"}
				})},
			want: []string{"is next: Muster is about to reserve its quota on flavor h100.", "its pods fit on existing machines: 1"},
		},
		"it has quota and waits for a person": {
			objects: []client.Object{flavor("h100"), check("approval", "example.com/approval", ""), team("team", func(s *kueue.ClusterQueueSpec) {
				s.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "approval"}}}
			}, "h100=64"), reserved("train", "team", 4, func(w *kueue.Workload) {
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "approval", State: kueue.CheckStatePending}}
			})},
			want: []string{
				"has quota reserved on flavor h100 and waits for its admission checks.",
				"AdmissionCheck approval is Pending: its controller has not answered yet",
			},
		},
		"its machines are there, and its pods have no places": {
			objects: slices.Concat(placeless(), []client.Object{bookedNode("node-1", "h100", "train")}),
			want: []string{
				"has quota reserved on flavor h100 and waits for places for its pods in the topology.",
				"No place on the nodes that are booked: no topology domains at level: example.com/rack",
				"the nodes that are booked for it (kubectl get nodes -l " + state.BookingLabel("train") + "=default --show-labels) get the labels",
			},
			never: "all of its machines are ready and booked",
		},
		"its job was deleted, and its pods run on": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), orphan(), ofOrphan("train-a", "kueue.x-k8s.io/job-uid"),
				ofOrphan("train-b", batchv1.ControllerUidLabel)},
			want: []string{
				"keeps its quota on flavor h100: its job was deleted, and 2 pods of the job still run.",
				"the quota is released when these pods have ended: train-a, train-b",
				"the pods end, or are deleted: kubectl -n default delete pods -l kueue.x-k8s.io/job-uid=gone",
				"kubectl -n default delete pods -l batch.kubernetes.io/controller-uid=gone",
			},
			never: "was admitted",
		},
		"its job was deleted with its pods": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), orphan()},
			want:    []string{"is about to be finished: its job was deleted, and no pod of the job runs."},
		},
		"some of its pods cannot start": {
			objects: append(blocked(), flavor("h100"), team("team", nil, "h100=64"), running("train", "team", 4, nil)),
			want: []string{
				"was admitted at 2026-11-20T11:30:00Z (30m ago) on flavor h100, but some of its pods cannot start.",
				"2 pods of the gang have not started for 3m0s: pod p: container c: ImagePullBackOff: no such image",
				"delete the job and create it again",
			},
		},
		"it runs": {
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("train", "team", 4, nil)},
			want: []string{
				"was admitted at 2026-11-20T11:30:00Z (30m ago) on flavor h100.",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pictureOf(nil, c.objects...)
			w := named(t, p, "train")
			text := printed(t, pending{explanation{p.ExplainWorkload(w)}, p, w.UID})
			lacks(t, text, c.want...)
			if c.never != "" && strings.Contains(text, c.never) {
				t.Errorf("the answer has %q:\n%s", c.never, text)
			}
		})
	}
}

// placeless is a Workload whose check is Ready, with its request, in a flavor with a Topology.
func placeless() []client.Object {
	topology := &kueue.Topology{ObjectMeta: meta("racks")}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rack}}
	racked := flavor("h100")
	racked.Spec.TopologyName = new(kueue.TopologyReference("racks"))
	asked := request()
	of := asked[0].(*provreq.ProvisioningRequest)
	of.UID = "request"
	of.OwnerReferences = []metav1.OwnerReference{{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload", Name: "train", UID: "train",
		Controller: new(true)}}
	of.Status.Conditions = []metav1.Condition{{Type: provreq.Provisioned, Status: metav1.ConditionTrue, Message: "Capacity is booked"}}
	return append(asked, topology, racked, check("capacity", "example.com/checks", ""), team("team", checked, "h100=64"),
		reserved("train", "team", 4, func(w *kueue.Workload) {
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStateReady}}
			w.Status.Admission.PodSetAssignments[0].DelayedTopologyRequest = new(kueue.DelayedTopologyRequestStatePending)
			condition(w, kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests,
				"There are pending delayed topology requests: No place on the nodes that are booked: no topology domains at level: "+rack)
		}))
}

// orphan runs by the quota of a Workload that has lost its job.
func orphan() client.Object {
	return running("train", "team", 4, func(w *kueue.Workload) { w.Labels = map[string]string{"kueue.x-k8s.io/job-uid": "gone"} })
}

func ofOrphan(name, label string) client.Object {
	pod := &corev1.Pod{ObjectMeta: meta(name)}
	pod.Labels, pod.Status.Phase = map[string]string{label: "gone"}, corev1.PodRunning
	return pod
}

// blocked is the request of a Workload train whose pods cannot start.
func blocked() []client.Object {
	asked := request()
	of := asked[0].(*provreq.ProvisioningRequest)
	of.UID = "request"
	of.OwnerReferences = []metav1.OwnerReference{{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload", Name: "train", UID: "train",
		Controller: new(true)}}
	of.Status.Conditions = []metav1.Condition{
		{Type: provreq.Provisioned, Status: metav1.ConditionTrue, Message: "Capacity is booked"},
		{Type: transaction.PodsBlocked, Status: metav1.ConditionTrue,
			Message: "2 pods of the gang have not started for 3m0s: pod p: container c: ImagePullBackOff: no such image"},
	}
	return asked
}

func TestProvisioningRequestsAreExplained(t *testing.T) {
	wrongClass := request()
	wrongClass[0].(*provreq.ProvisioningRequest).Spec.ProvisioningClassName = "queued-provisioning.gke.io"
	provisioned := request()
	provisioned[0].(*provreq.ProvisioningRequest).Status.Conditions = []metav1.Condition{{
		Type: provreq.Provisioned, Status: metav1.ConditionTrue, Message: "Capacity is booked for 4 pods until 12:10",
	}}
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"it has its turn": {
			objects: append(request(), group("h100", 8, nil)),
			want:    []string{"is next: Muster is about to launch its machines.", "launches 4 machines of NodeGroup h100 for 40.00 USD per hour"},
		},
		"its group had a stockout": {
			objects: append(request(), group("h100", 8, dry)),
			want: []string{"waits for capacity.", "only 3 of 4 machines",
				"time: the backoff of NodeGroup h100 ends at 2026-11-20T12:05:00Z (in 5m)", "Stockout, 10m ago"},
		},
		"no group could ever serve it": {
			objects: append(request(), group("h100", 2, nil)),
			want: []string{"cannot be served as specified.", "it may have 2 (spec.maxNodes): 2 short",
				"raises spec.maxNodes of NodeGroup h100 by 2"},
		},
		"its PodTemplate is missing": {
			objects: append(request()[:1], group("h100", 8, nil)),
			want:    []string{"cannot be served as specified.", `PodTemplates ["train"] do not exist in namespace default: create them`},
		},
		"somebody else serves its class": {
			objects: wrongClass,
			want:    []string{"is not served by this Muster: its class is queued-provisioning.gke.io", "atomic-scale-up.muster.dev"},
		},
		"its pods cannot start": {
			objects: blocked(),
			want:    []string{"is Provisioned: all of its machines are ready and booked.", "ImagePullBackOff: no such image"},
		},
		"its Workload has no places on its machines": {
			objects: placeless(),
			want: []string{"is Provisioned: all of its machines are ready and booked.", "Workload train does not start yet: ",
				"No place on the nodes that are booked"},
		},
		"all of its machines are there": {
			objects: provisioned,
			want:    []string{"is Provisioned: all of its machines are ready and booked.", "booked for 4 pods until 12:10"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pictureOf(nil, c.objects...)
			lacks(t, toldOf(t, p.ExplainRequest(p.Requests[0])), c.want...)
		})
	}
}

// TestCommandsNameTheContext of the caller's kubeconfig, where it has another name than the cluster.
func TestCommandsNameTheContext(t *testing.T) {
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=64"), running("train", "team", 4, func(w *kueue.Workload) {
		w.Status.ClusterName, w.OwnerReferences = new("west"), []metav1.OwnerReference{ownedBy("train")}
	}))
	p.Contexts = map[string]string{"west": "gke_project_us-west1_gpus"}
	lacks(t, toldOf(t, p.ExplainWorkload(named(t, p, "train"))),
		"with a context gke_project_us-west1_gpus for cluster west in your kubeconfig:",
		"its logs: kubectl --context gke_project_us-west1_gpus -n default logs job/train --all-pods")
}

func TestAJobIsExplainedByItsWorkload(t *testing.T) {
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=16"), waiting("job-train-1a2b3", 4, func(w *kueue.Workload) {
		w.OwnerReferences = []metav1.OwnerReference{ownedBy("train")}
	}))
	lacks(t, toldOf(t, p.ExplainJob(job("train", nil))), "Job default/train (Workload job-train-1a2b3) cannot start as specified")
	lacks(t, toldOf(t, p.ExplainJob(job("other", map[string]string{"kueue.x-k8s.io/queue-name": "main"}))),
		"Job default/other has no Workload yet.", "it names LocalQueue main", "kubectl get pods -A -l app.kubernetes.io/name=muster")
	lacks(t,
		toldOf(t, p.ExplainJob(job("named", map[string]string{"kueue.x-k8s.io/queue-name": "main",
			"kueue.x-k8s.io/prebuilt-workload-name": "mine"}))),
		"Job default/named waits for its Workload.", "kueue.x-k8s.io/prebuilt-workload-name names Workload mine",
		"create a Workload with that name")
	lacks(t, toldOf(t, p.ExplainJob(job("plain", nil))), "is not in a queue, so Muster ignores it.",
		"it has no label kueue.x-k8s.io/queue-name")
}

// TestAPodIsExplainedByTheWorkloadOfItsGang: the pod does not own the Workload, which may belong to another object.
func TestAPodIsExplainedByTheWorkloadOfItsGang(t *testing.T) {
	pod := func(name string, owner *metav1.OwnerReference, labels, annotations map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name)}
		p.APIVersion, p.Kind = "v1", "Pod"
		p.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"}
		maps.Copy(p.Labels, labels)
		p.Annotations = annotations
		if owner != nil {
			p.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return p
	}
	owner := func(apiVersion, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}
	}
	const parent = "kueue.x-k8s.io/pod-suspending-parent"
	ofSet := owner("apps/v1", "StatefulSet", "db")
	db := pod("db-0", &ofSet, nil, map[string]string{parent: "statefulset"})
	ofGroup := owner("apps/v1", "StatefulSet", "llm-1")
	inGroup := map[string]string{"leaderworkerset.sigs.k8s.io/name": "llm", "leaderworkerset.sigs.k8s.io/group-index": "1"}
	llm := pod("llm-1-1", &ofGroup, inGroup, map[string]string{parent: "leaderworkerset.x-k8s.io/leaderworkerset"})
	ring := pod("ring-0", nil, nil, map[string]string{"kueue.x-k8s.io/pod-group-name": "ring"})
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=16"),
		waiting("statefulset-db-1a2b3", 4, func(w *kueue.Workload) { w.OwnerReferences = []metav1.OwnerReference{ofSet} }),
		waiting("leaderworkerset-llm-1-1a2b3", 4, func(w *kueue.Workload) {
			w.OwnerReferences = []metav1.OwnerReference{owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm")}
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, "kueue.x-k8s.io/component-workload-index", "1")
		}),
		waiting("ring", 4, func(w *kueue.Workload) {
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, "kueue.x-k8s.io/is-group-workload", "true")
		}))
	lacks(t, toldOf(t, p.ExplainJob(db)), "Pod default/db-0 (Workload statefulset-db-1a2b3) cannot start as specified")
	lacks(t, toldOf(t, p.ExplainJob(llm)), "Pod default/llm-1-1 (Workload leaderworkerset-llm-1-1a2b3) cannot start as specified")
	lacks(t, toldOf(t, p.ExplainJob(ring)), "Pod default/ring-0 (Workload ring) cannot start as specified")
	p = pictureOf(nil, flavor("h100"), team("team", nil, "h100=16"))
	lacks(t, toldOf(t, p.ExplainJob(db)), "has no Workload yet",
		"it names LocalQueue main, and queues with StatefulSet db, which has no Workload")
	lacks(t, toldOf(t, p.ExplainJob(llm)), "queues with group 1 of LeaderWorkerSet llm, which has no Workload")
	lacks(t, toldOf(t, p.ExplainJob(ring)),
		"queues with pod group ring, which has no Workload: a group has one once all of its pods are there")
}

func TestWithoutRightsWhatMusterWroteIsShown(t *testing.T) {
	p := pictureOf([]view.Right{{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "pods"}}, flavor("h100"),
		team("team", nil, "h100=64"), waiting("train", 4, func(w *kueue.Workload) {
			condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, workload.ReasonWaitingForCapacity,
				"flavor h100: no machines: group h100 is dry")
		}))
	e := p.ExplainWorkload(named(t, p, "train"))
	e.Record(noon, []corev1.Event{
		{LastTimestamp: at(9), Reason: "Older", Message: "before"}, {LastTimestamp: at(1), Reason: "Pending", Message: "still dry"},
	})
	text := toldOf(t, e)
	lacks(t, text, "waits for machines, as recorded 30m ago.", "group h100 is dry", "60s ago, Pending: still dry\n- 9m ago, Older: before",
		"list nodes, list pods in all namespaces", "Ask an administrator for the ClusterRole muster-explain",
		"kubectl create clusterrole muster-explain-some --verb=list --resource=nodes,pods;")
	if strings.Contains(text, "is next") {
		t.Errorf("something was decided without the nodes:\n%s", text)
	}
}

// TestKindsThatAreNoJobs: what is requested is named, and where else to look.
func TestKindsThatAreNoJobs(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), apimeta.RESTScopeRoot)
	for name, want := range map[string]string{
		"namespace": "a Namespace is no job: see `kubectl muster nodes` and `kubectl muster racks` for machines",
		"JobSet":    "does not serve jobsets.jobset.x-k8s.io: the JobSet controller is not installed. Install it first (Muster is tested with v",
		"rayjobs":   "does not serve rayjobs.ray.io: KubeRay is not installed",
		"thing":     `kind "thing" cannot be explained: use job, workload, provisioningrequest, or a kind of jobs that the cluster serves`,
	} {
		if _, err := kindNamed(mapper, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("explain %s/x: %v, want %q", name, err, want)
		}
	}
	for kind, want := range map[schema.GroupResource]string{
		{Group: "kubeflow.org", Resource: "pytorchjobs"}: "does not serve pytorchjobs.kubeflow.org: the Kubeflow training operator is not installed. Install it first " +
			"(Muster is tested with v1.9.3); Muster then queues the jobs that have the label kueue.x-k8s.io/queue-name",
		{Group: "example.com", Resource: "simulations"}:    "the controller of that kind of jobs is not installed",
		{Group: "kueue.x-k8s.io", Resource: "localqueues"}: "Muster is not installed",
	} {
		if err := view.NotServed(kind); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kind, err, want)
		}
	}
}
