package cache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/quota"
)

// workloadIn returns a version of a Workload in a random state. Its LocalQueue does not always exist.
func workloadIn(r *rand.Rand, uid string, version int) *kueue.Workload {
	at := metav1.NewTime(time.Unix(int64(1_800_000_000+version), 0))
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: uid, UID: types.UID(uid), CreationTimestamp: at,
		ResourceVersion: fmt.Sprint(version), Generation: int64(version)}}
	w.Spec.QueueName = []kueue.LocalQueueName{"one", "two", "three"}[r.IntN(3)]
	if job := r.IntN(3); job > 0 {
		w.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: types.UID(fmt.Sprint("job-", job)), Controller: new(true)}}
	}
	cpu, count := *resource.NewQuantity(int64(1+r.IntN(3)), resource.DecimalSI), int32(1+r.IntN(3))
	ps := kueue.PodSet{Name: "main", Count: count}
	ps.Template.Spec.Containers = []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": cpu}}}}
	if r.IntN(3) == 0 {
		ps.Template.Spec.NodeSelector = map[string]string{fmt.Sprint("key-", r.IntN(2)): "x"}
	}
	w.Spec.PodSets = []kueue.PodSet{ps}
	if r.IntN(4) == 0 {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	}
	set := func(condition string, status metav1.ConditionStatus, reason string) {
		w.Status.Conditions = append(w.Status.Conditions,
			metav1.Condition{Type: condition, Status: status, Reason: reason, LastTransitionTime: at})
	}
	if r.IntN(5) == 0 {
		w.DeletionTimestamp = &at
	}
	switch state := r.IntN(7); state {
	case 0:
		w.Spec.Active = new(false)
	case 1:
		set(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded")
	case 2:
		set(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Waiting")
	case 3, 4, 5:
		queue := []kueue.ClusterQueueReference{"left", "right", "gone"}[r.IntN(3)]
		usage := cpu.DeepCopy()
		usage.Mul(int64(count))
		w.Status.Admission = &kueue.Admission{ClusterQueue: queue, PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &count,
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
			ResourceUsage: corev1.ResourceList{"cpu": usage}}}}
		set(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved")
		if state > 3 {
			set(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted")
		}
		if state == 5 {
			set(kueue.WorkloadPodsReady, metav1.ConditionTrue, "PodsReady")
		}
		if r.IntN(3) == 0 {
			w.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: "a"}}
		}
	}
	return w
}

// tally is what a queue counts.
type tally struct {
	Waiting, Reserving, Running, Finished int32
	Reserved, Admitted, Requested, Used   int64
	Unadmitted                            map[Unadmitted]int32
}

func tallyOf(c *counts) tally {
	cpu := quota.FlavorResource{Flavor: "spot", Resource: "cpu"}
	return tally{Waiting: c.Waiting, Reserving: c.Reserving, Running: c.Running, Finished: c.Finished, Reserved: c.Reserved[cpu],
		Admitted: c.Admitted[cpu], Unadmitted: maps.Clone(c.Unadmitted)}
}

// expected counts the Workloads one by one. A Workload with quota counts in the ClusterQueue that has admitted it, any other one in that of
// its LocalQueue.
func expected(objects map[types.UID]*kueue.Workload, locals map[kueue.LocalQueueName]kueue.ClusterQueueReference) (
	queues map[kueue.ClusterQueueReference]*tally, of map[kueue.LocalQueueName]*tally) {
	queues, of = map[kueue.ClusterQueueReference]*tally{}, map[kueue.LocalQueueName]*tally{}
	for _, name := range []kueue.ClusterQueueReference{"left", "right"} {
		queues[name] = &tally{Unadmitted: map[Unadmitted]int32{}}
	}
	for name := range locals {
		of[name] = &tally{Unadmitted: map[Unadmitted]int32{}}
	}
	for _, w := range objects {
		pods := w.Spec.PodSets[0].Count
		if len(w.Status.ReclaimablePods) > 0 {
			pods--
		}
		amount := int64(pods) * w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		has := func(condition string) bool {
			return slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == condition && c.Status == metav1.ConditionTrue
			})
		}
		at := queues[locals[w.Spec.QueueName]]
		if w.Status.Admission != nil {
			at = queues[w.Status.Admission.ClusterQueue]
		}
		inactive := w.Spec.Active != nil
		if inactive {
			continue
		}
		for _, c := range []*tally{at, of[w.Spec.QueueName]} {
			if c == nil {
				continue
			}
			why := Unadmitted{"NoReservation", "PendingEvaluation"}
			switch {
			case has(kueue.WorkloadFinished):
				c.Finished++
				continue
			case has(kueue.WorkloadQuotaReserved):
				why.UnderlyingCause = ""
				c.Reserving++
				c.Reserved += amount
				if has(kueue.WorkloadAdmitted) {
					c.Running++
					c.Admitted += amount
					continue
				}
			case len(w.Status.Conditions) > 0:
				why.UnderlyingCause = "Waiting"
				c.Waiting++
			default:
				c.Waiting++
			}
			if w.DeletionTimestamp == nil {
				c.Unadmitted[why]++
			}
		}
		if at != nil && !has(kueue.WorkloadFinished) {
			if w.Status.Admission != nil {
				at.Used += amount
			} else {
				at.Requested += amount
			}
		}
	}
	return queues, of
}

// TestQueuesCountTheirWorkloads, whatever events came before: the numbers of statuses and metrics, and the usage that decides on admission.
func TestQueuesCountTheirWorkloads(t *testing.T) {
	cpu := quota.FlavorResource{Flavor: "spot", Resource: "cpu"}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := New(config.Config{})
		version := 0
		set := func(o metav1.Object) {
			version++
			o.SetGeneration(int64(version))
			s.Set(o)
		}
		set(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}})
		for _, name := range []string{"left", "right"} {
			cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
			cq.Spec.CohortName = "all"
			cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
				Name: "spot", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("10")}}}}}}
			set(cq)
		}
		locals := map[kueue.LocalQueueName]kueue.ClusterQueueReference{}
		objects := map[types.UID]*kueue.Workload{}
		for step := range 80 {
			switch uid := fmt.Sprint("w-", r.IntN(8)); r.IntN(8) {
			case 0:
				if w := objects[types.UID(uid)]; w != nil {
					s.Delete(w)
					delete(objects, w.UID)
				}
			case 1:
				name := []kueue.LocalQueueName{"one", "two"}[r.IntN(2)]
				lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: string(name)}}
				lq.Spec.ClusterQueue = map[kueue.LocalQueueName]kueue.ClusterQueueReference{"one": "left", "two": "right"}[name]
				if locals[name] == "" {
					locals[name] = lq.Spec.ClusterQueue
					set(lq)
				} else if r.IntN(3) == 0 {
					delete(locals, name)
					s.Delete(lq)
				}
			default:
				version++
				w := workloadIn(r, uid, version)
				objects[w.UID] = w
				s.Set(w)
			}
			if s.Outdated {
				s.Rebuild()
			}
			if r.IntN(20) == 0 {
				s.Rebuild()
			}
			queues, of := expected(objects, locals)
			used := int64(0)
			for name, want := range queues {
				q := s.Queues[name]
				got := tallyOf(&q.counts)
				got.Used, got.Requested = q.Node.Usage(cpu), q.Requested[quota.FlavorResource{Resource: "cpu"}]
				if diff := cmp.Diff(*want, got); diff != "" {
					t.Fatalf("seed %d, step %d: %s (-want +got)\n%s", seed, step, name, diff)
				}
				used += got.Used
			}
			if got := s.CohortNodes["all"].Usage(cpu); got != used {
				t.Fatalf("seed %d, step %d: the cohort uses %d, its queues %d", seed, step, got, used)
			}
			for name, want := range of {
				got := tallyOf(&s.LocalQueues[types.NamespacedName{Namespace: "team", Name: string(name)}].counts)
				if diff := cmp.Diff(*want, got); diff != "" {
					t.Fatalf("seed %d, step %d: LocalQueue %s (-want +got)\n%s", seed, step, name, diff)
				}
			}
			checkIndexes(t, fmt.Sprintf("seed %d, step %d", seed, step), s, objects)
		}
	}
}

// checkIndexes compares the sets of Workloads that the cache keeps with a search through all of them.
func checkIndexes(t *testing.T, when string, s *Cache, objects map[types.UID]*kueue.Workload) {
	t.Helper()
	is := func(w *kueue.Workload, condition string) bool {
		return slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == condition && c.Status == metav1.ConditionTrue
		})
	}
	quota := func(w *kueue.Workload) bool {
		return w.Status.Admission != nil && w.Status.Admission.ClusterQueue != "gone"
	}
	for what, index := range map[string]struct {
		got  map[types.UID]*Workload
		want func(*kueue.Workload) bool
	}{
		"all":        {s.Workloads, func(*kueue.Workload) bool { return true }},
		"unadmitted": {s.Unadmitted, func(w *kueue.Workload) bool { return w.Status.Admission != nil && !is(w, kueue.WorkloadAdmitted) }},
		"unhealthy":  {s.Unhealthy, func(w *kueue.Workload) bool { return len(w.Status.UnhealthyNodes) > 0 }},
		"not ready":  {s.PodsNotReady, func(w *kueue.Workload) bool { return quota(w) && !is(w, kueue.WorkloadPodsReady) }},
	} {
		var want []types.UID
		for _, uid := range slices.Sorted(maps.Keys(objects)) {
			if index.want(objects[uid]) {
				want = append(want, uid)
			}
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(index.got))); diff != "" {
			t.Fatalf("%s: %s (-want +got)\n%s", when, what, diff)
		}
	}
	keys, jobs := map[string]int{}, map[types.UID]int{}
	for _, w := range objects {
		for key := range w.Spec.PodSets[0].Template.Spec.NodeSelector {
			keys[key]++
		}
		for _, owner := range w.OwnerReferences {
			jobs[owner.UID]++
		}
	}
	if diff := cmp.Diff(keys, s.selected); diff != "" {
		t.Fatalf("%s: selected labels (-want +got)\n%s", when, diff)
	}
	ofJob := map[types.UID]int{}
	for job, all := range s.Slices.ofJob {
		ofJob[job] = len(all)
	}
	if diff := cmp.Diff(jobs, ofJob); diff != "" {
		t.Fatalf("%s: Workloads by job (-want +got)\n%s", when, diff)
	}
}
