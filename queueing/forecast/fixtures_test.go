package forecast

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/workload"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// stateOf is a State of the objects with a planner, in a cluster with a namespace.
func stateOf(objects ...metav1.Object) *queueing.State {
	s := queueing.New(config.Config{}, planner.Plan)
	s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for _, o := range objects {
		s.Set(o)
	}
	return s
}

func flavor(name string) *kueue.ResourceFlavor {
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	f.Spec.NodeLabels = map[string]string{"pool": name}
	return f
}

// queue is a ClusterQueue with so many GPUs by flavor, such as "spot=4/2 ondemand=8",
// where the second number may be borrowed, and what else options say.
func queue(name, gpus string, options ...func(*kueue.ClusterQueue)) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.QueueingStrategy = kueue.BestEffortFIFO
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"gpu"}}
	for f := range strings.FieldsSeq(gpus) {
		name, amount, _ := strings.Cut(f, "=")
		nominal, borrowed, limited := strings.Cut(amount, "/")
		q := kueue.ResourceQuota{Name: "gpu", NominalQuota: resource.MustParse(nominal)}
		if limited {
			q.BorrowingLimit = new(resource.MustParse(borrowed))
		}
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{q}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	for _, o := range options {
		o(cq)
	}
	return cq
}

func preempting(within, reclaim kueue.PreemptionPolicy) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) {
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
	}
}

func preemptingWhileBorrowing(cq *kueue.ClusterQueue) {
	cq.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
}

func inCohort(name string) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = kueue.CohortReference(name) }
}

func strict(cq *kueue.ClusterQueue) { cq.Spec.QueueingStrategy = kueue.StrictFIFO }

func checked(name string) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(name)}},
		}
	}
}

func check(name, controller string) *kueue.AdmissionCheck {
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ac.Spec.ControllerName = controller
	ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	return ac
}

func localQueue(name, to string) *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(to)
	return lq
}

// job is the Workload of a Job of that many pods of one GPU, in the LocalQueue main.
func job(name string, pods int32, options ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, Controller: new(true)}},
	}}
	w.Spec.QueueName = "main"
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "train", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"gpu": resource.MustParse("1")},
	}}}}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: pods, Template: corev1.PodTemplateSpec{Spec: spec}}}
	for _, o := range options {
		o(w)
	}
	return w
}

func atMost(d time.Duration) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(d / time.Second)) }
}

func inQueue(name string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Spec.QueueName = kueue.LocalQueueName(name) }
}

func of(image string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.Containers[0].Image = image }
}

func priority(p int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Spec.Priority = &p }
}

func created(at time.Time) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.CreationTimestamp = metav1.NewTime(at) }
}

// running since a time on the flavor spot of the ClusterQueue team.
func running(since time.Time) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		pods := w.Spec.PodSets[0].Count
		w.Status.Admission = &kueue.Admission{ClusterQueue: "team", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpu": "spot"},
			ResourceUsage: corev1.ResourceList{"gpu": *resource.NewQuantity(int64(pods), resource.DecimalSI)},
		}}}
		for _, c := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(since)})
		}
	}
}

// ran is a Workload that is over.
func ran(w *kueue.Workload, took time.Duration) *kueue.Workload {
	end := noon.Add(-time.Minute)
	running(end.Add(-took))(w)
	w.Status = *workload.Finished(w, kueue.WorkloadFinishedReasonSucceeded, "done", end)
	return w
}

// historyOf jobs like the one given that took so many minutes.
func historyOf(like func(name string) *kueue.Workload, minutes ...int) *History {
	h := &History{}
	for i, m := range minutes {
		h.Observe(ran(like(fmt.Sprintf("past-%d", i)), time.Duration(m)*time.Minute))
	}
	return h
}

// group of machines of 8 GPUs for the pool of a flavor.
func group(pool string, most int, backoffs ...v1alpha1.Backoff) nodegroups.Group {
	machine := nodegroups.ResourcesFrom(corev1.ResourceList{"gpu": resource.MustParse("8"), "pods": resource.MustParse("110")})
	return nodegroups.Group{
		Name: pool, Zone: "a", CapacityType: v1alpha1.OnDemand, MicroUSDPerHour: 2_000_000, Max: most,
		Labels:      map[string]string{"pool": pool, corev1.LabelTopologyZone: "a"},
		Allocatable: machine, Promised: machine, Backoffs: backoffs,
	}
}

func groups(list ...nodegroups.Group) *planner.Snapshot {
	return planner.NewSnapshot(noon, nodeset.New("pool"), list, nil)
}

func minutes(t *testing.T, at time.Time) string {
	t.Helper()
	if at.IsZero() {
		return "-"
	}
	return at.Sub(noon).Round(time.Minute).String()
}
