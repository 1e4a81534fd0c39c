package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/dispatch"
)

func worker(name string, active metav1.ConditionStatus, message string) *kueue.MultiKueueCluster {
	c := &kueue.MultiKueueCluster{ObjectMeta: meta(name)}
	c.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: active, Message: message}}
	return c
}

// multiKueue is the check of jobs that other clusters run, and delegated has a ClusterQueue use it.
func multiKueue() *kueue.AdmissionCheck {
	out := check("elsewhere", kueue.MultiKueueControllerName, "")
	out.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	return out
}

func delegated(spec *kueue.ClusterQueueSpec) {
	spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "elsewhere"}}}
}

func TestClustersAreListedWithTheirJobs(t *testing.T) {
	in := func(name string) func(*kueue.Workload) {
		return func(w *kueue.Workload) { w.Status.ClusterName = &name }
	}
	asked := func(cluster, record string) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.NominatedClusterNames = []string{cluster}
			w.Annotations = map[string]string{dispatch.Annotation: record}
		}
	}
	const older = `{"prices":{"east":1500000,"west":9000000},` +
		`"refusals":[{"cluster":"west","reason":"NoQuota","message":"insufficient","at":"2026-11-20T11:50:00Z","times":3}]}`
	const newer = `{"refusals":[{"cluster":"west","reason":"NoCapacity","message":"only 3 of 4 ` +
		`machines","at":"2026-11-20T11:58:00Z","times":1}]}`
	paid := func(w *kueue.Workload) {
		w.Status.ClusterName = new("west")
		w.Annotations = map[string]string{dispatch.Annotation: `{"in":["west"],"prices":{"west":98320000}}`}
	}
	over := running("over", "team", 8, in("west"))
	condition(over, kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded, "")
	objects := []client.Object{
		worker("west", metav1.ConditionTrue, "Connected"), worker("east", metav1.ConditionTrue, "Connected"),
		worker("north", metav1.ConditionFalse, "dial tcp: connection refused"), &kueue.MultiKueueCluster{ObjectMeta: meta("fresh")},
		running("a", "team", 4, paid), running("b", "team", 2, in("west")), running("c", "team", 1, in("gone")), over,
		reserved("d", "team", 4, asked("east", newer)), reserved("e", "team", 4, asked("east", older)), waiting("f", 4, nil),
	}
	lacks(t, printed(t, clusterLines(view.ClusterLines(noon, objects))),
		"CLUSTER ACTIVE RUNNING USES USD/H ASKED REFUSED LAST REFUSAL PROBLEM MESSAGE OF THE LAST REFUSAL\n"+
			"east yes 0 - 1.50 2 0 - - -\n"+
			"fresh no 0 - - 0 0 - its MultiKueueCluster has no condition Active: is the manager of MultiKueue running? -\n"+
			"gone no 1 8 nvidia.com/gpu - 0 0 - it has no MultiKueueCluster, and jobs that were given to it -\n"+
			"north no 0 - - 0 0 - dial tcp: connection refused -\n"+
			"west yes 2 48 nvidia.com/gpu 98.32 0 2 2m ago, NoCapacity - only 3 of 4 machines")
	lacks(t, printed(t, clusterLines(nil)), "There is no MultiKueueCluster: jobs run in this cluster only.")
}
