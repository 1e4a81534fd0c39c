package queueing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// randomTree returns four queues in a tree of cohorts with random lending, borrowing and preemption, and flavors with small quotas. Some
// of them have machines launched.
func randomTree(t *testing.T, r *rand.Rand) *queues.World {
	var c config.Config
	if r.IntN(2) == 0 {
		c.FairSharing = &kueueconfig.FairSharing{}
	}
	if r.IntN(2) == 0 {
		c.AdmissionFairSharing = &kueueconfig.AdmissionFairSharing{UsageHalfLifeTime: metav1.Duration{Duration: 10 * time.Minute}}
	}
	w := queues.NewWith(c)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	quotas := func() string {
		var out strings.Builder
		for _, name := range []string{"spot", "ondemand"} {
			fmt.Fprintf(&out, "%s", name)
			for _, resource := range []string{"cpu", "gpu"} {
				fmt.Fprintf(&out, " %s=%d/%s/%s", resource, r.IntN(7), pick("-", "0", "2", "5"), pick("-", "0", "1", "4"))
			}
			fmt.Fprintln(&out)
		}
		return out.String()
	}
	for _, name := range []string{"spot", "ondemand"} {
		w.Set(queues.Flavor(name, nil))
	}
	ac := &kueue.AdmissionCheck{}
	ac.Name, ac.Spec.ControllerName = "capacity", cache.CapacityController
	w.Set(ac)
	w.Set(queues.Cohort(t, "root", map[string]string{"weight": pick("0", "1", "3")}, quotas()))
	for _, name := range []string{"left", "right"} {
		w.Set(queues.Cohort(t, name, map[string]string{"parent": "root", "weight": pick("0", "1", "3")}, pick("", quotas())))
	}
	for i := range 4 {
		name := fmt.Sprintf("queue-%d", i)
		args := map[string]string{
			"cohort": pick("left", "right", "root"), "weight": pick("0", "1", "2"),
			"within": pick("Never", "LowerPriority", "LowerOrNewerEqualPriority"), "reclaim": pick("Never", "LowerPriority", "Any"),
			"whenCanBorrow": pick(string(kueue.MayStopSearch), string(kueue.TryNextFlavor)), "whenCanPreempt": pick(string(kueue.MayStopSearch), string(kueue.TryNextFlavor)),
		}
		for _, sometimes := range []string{"strict", "backfill", "byusage"} {
			if r.IntN(3) == 0 {
				args[sometimes] = ""
			}
		}
		if r.IntN(2) == 0 {
			args["check"] = "capacity"
		}
		cq := queues.ClusterQueue(t, name, args, quotas())
		if r.IntN(2) == 0 {
			cq.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{
				Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: new(r.Int32N(3)),
			}
		}
		w.Set(cq)
		for _, of := range []string{"lq-%d", "lq-%d-more"} {
			w.Set(queues.LocalQueue(fmt.Sprintf(of, i), name, ""))
		}
	}
	return w
}

// TestTheTreeKeepsItsPromises runs random jobs through random trees of cohorts. Usage
// never exceeds quota, and no Workload waits for victims that are gone. Once everything
// that runs has ended, again and again, no Workload is pending that could ever fit. Some
// jobs ran before Muster came, grow, have a maximum execution time, or have preemption
// gates. Where machines are launched, no Workload is preempted for one whose machines are
// not provisioned. In half of the trees, cycles have small budgets.
func TestTheTreeKeepsItsPromises(t *testing.T) {
	preempted, borrowed, ahead, seeds, leastAhead := 0, 0, 0, queues.Cases(1000), 100
	if testing.Short() {
		leastAhead = 15
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		w := randomTree(t, r)
		if seed%2 == 1 {
			w.State.SetBudget(1 + r.IntN(100))
		}
		w.Sees = func(v *lifecycle.Verdict) {
			if v.PreemptedFor == "" || len(cache.CheckRules(w.State.Queues[v.PreemptedFor].Object)) == 0 {
				return
			}
			ahead++
			if by := preemptor(w, t, v); !provisioned(w, by) {
				t.Errorf("seed %d: %s leaves for %s, which has no machines", seed, v.Workload.Object.Name, by.Object.Name)
			}
		}
		for range 30 {
			w.Machines["spot"], w.Machines["ondemand"] = 100*r.IntN(4), 100
			shakeMore(w, t, r)
			shakeRequests(w, t, r)
			w.Cycles(t)
			checkVictims(w, t)
			checkRequests(w, t)
			w.Now = w.Now.Add(time.Duration(r.IntN(100)) * time.Second)
			for _, x := range w.State.Workloads {
				if workload.IsEvicted(x.Object) && workload.HasQuota(x.Object) {
					preempted++
				}
			}
			for _, q := range w.State.Order {
				for _, fr := range q.Node.Keys() {
					if q.Node.Borrows(fr, 0) {
						borrowed++
					}
				}
			}
		}
		w.Machines["spot"], w.Machines[""] = 100, 100
		w.Now = w.Now.Add(time.Hour)
		w.State.SetCapacity(w.State.Capacity())
		w.Cycles(t)
		for idle := false; !idle; {
			idle = true
			for _, x := range cache.ByName(w.State.Workloads) {
				switch name := x.Object.Name; {
				case !workload.HasQuota(x.Object):
				case workload.IsEvicted(x.Object):
					w.Change(t, "stopped", name)
					idle = false
				default:
					w.Change(t, "finish", name)
					idle = false
				}
			}
			w.Cycles(t)
		}
		for _, x := range cache.ByName(w.State.Workloads) {
			hopeless := x.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota ||
				x.Queue != nil && x.Queue.Object.Spec.QueueingStrategy == kueue.StrictFIFO && strings.Contains(x.Message, "StrictFIFO")
			// What runs without quota does not wait for it, and counts beyond nominal quota only by an administrator's word.
			if x.Phase == cache.Pending && !hopeless && !workload.IsAdopted(x.Object) {
				t.Errorf("seed %d: %s waits in an empty tree: %s: %s", seed, x.Object.Name, x.Reason, x.Message)
			}
		}
		for _, tr := range w.State.Trees {
			for _, q := range tr.Queues {
				for _, at := range q.Node.Path() {
					for _, fr := range at.Keys() {
						if at.Usage(fr) != 0 {
							t.Errorf("seed %d: %d of %v is used in the empty %s", seed, at.Usage(fr), fr, at.Name)
						}
					}
				}
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if preempted < int(seeds) || borrowed < int(seeds) || ahead < leastAhead {
		t.Errorf("%d preemptions, %d of them for launched machines, and %d borrowings seen: too few to prove anything",
			preempted, ahead, borrowed)
	}
}

// shakeRequests has requests come to something, to good ends for the most part.
func shakeRequests(w *queues.World, t *testing.T, r *rand.Rand) {
	for _, x := range cache.ByName(w.State.Workloads) {
		if len(w.State.Requests[x.Object.UID]) != 1 || workload.IsAdmitted(x.Object) || r.IntN(3) > 0 {
			continue
		}
		ends := []map[string]string{{"Provisioned": "True"}, {"Provisioned": "True"}, {"Provisioned": "True"}, {"Provisioned": "False"},
			{"BookingExpired": "True"}}
		w.Condition(t, x.Object.Name, ends[r.IntN(len(ends))], "so it went")
	}
}

// preemptor is the Workload for which another one has to leave.
func preemptor(w *queues.World, t *testing.T, v *lifecycle.Verdict) *cache.Workload {
	by := w.State.Workloads[v.PreemptedBy]
	if by == nil {
		t.Fatalf("no Workload has the UID %q: %s", v.PreemptedBy, v.Message)
	}
	return by
}

func provisioned(w *queues.World, x *cache.Workload) bool {
	return slices.ContainsFunc(w.State.Requests[x.Object.UID], func(r *autoscaling.ProvisioningRequest) bool {
		return apimeta.IsStatusConditionTrue(r.Status.Conditions, autoscaling.Provisioned)
	})
}

// checkRequests checks that no Workload has two requests, and that a pending Workload
// with a request says that it waits for the request or for its victims.
func checkRequests(w *queues.World, t *testing.T) {
	for _, x := range cache.ByName(w.State.Workloads) {
		requests := w.State.Requests[x.Object.UID]
		switch {
		case len(requests) > 1:
			t.Errorf("%s has %d requests", x.Object.Name, len(requests))
		case len(requests) == 0 || x.Phase != cache.Pending:
		case w.State.ReplacedBy(x.Queue, x) == nil && workload.ReplacedKey(x.Object).Name != "":
			// The slice that it replaces is being changed.
		case x.Reason != workload.ReasonWaitingForCapacity && x.Reason != kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads:
			t.Errorf("%s has %s while it waits for something else: %s: %s", x.Object.Name, requests[0].Name, x.Reason, x.Message)
		}
	}
}

// shakeMore is shake in a tree, with whatever else Workloads may be.
func shakeMore(w *queues.World, t *testing.T, r *rand.Rand) {
	all := cache.ByName(w.State.Workloads)
	if len(all) == 0 || r.IntN(4) > 0 {
		shakeIn(w, t, r, 4)
		return
	}
	name := fmt.Sprintf("w-%d", w.Created)
	object := w.Workload(t, name, map[string]string{
		"lq": fmt.Sprintf("lq-%d-more", r.IntN(4)), "priority": fmt.Sprint(r.IntN(3)), "count": fmt.Sprint(1 + r.IntN(3)), "cpu": "1", "gpu": fmt.Sprint(r.IntN(2)),
	})
	switch r.IntN(5) {
	case 0:
		object.Status = *workload.Adopted(object, workload.RanBefore, w.Now)
	case 1:
		object.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "gate"}}
	case 2, 3:
		object.Spec.MaximumExecutionTimeSeconds = new(1 + r.Int32N(300))
	case 4:
		old := all[r.IntN(len(all))].Object
		object.Spec = *old.Spec.DeepCopy()
		object.Spec.PodSets[0].Count++
		object.OwnerReferences = old.OwnerReferences
		object.Annotations = map[string]string{workload.ReplacementAnnotation: old.Namespace + "/" + old.Name, workload.ElasticAnnotation: "true"}
	}
	w.Set(object)
}

// checkVictims checks that a Workload that waits for preempted Workloads waits for at
// least one that is being evicted.
func checkVictims(w *queues.World, t *testing.T) {
	for _, x := range cache.ByName(w.State.Workloads) {
		if x.Phase != cache.Pending || x.Reason != kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads {
			continue
		}
		_, names, _ := strings.Cut(x.Message, "workloads: ")
		names, _, _ = strings.Cut(names, ";")
		leaving := false
		for _, v := range w.State.Workloads {
			named := names == "" || slices.Contains(strings.Split(names, ", "), v.Object.Namespace+"/"+v.Object.Name)
			leaving = leaving || named && workload.HasQuota(v.Object) && workload.IsEvicted(v.Object)
		}
		if !leaving {
			t.Errorf("%s waits for victims that are gone: %s", x.Object.Name, x.Message)
		}
	}
}

// randomWorld is two queues over two flavors with small quotas, so that most
// things happen often.
func randomWorld(t *testing.T, r *rand.Rand) *queues.World {
	w := queues.New()
	for _, name := range []string{"spot", "ondemand"} {
		w.Set(queues.Flavor(name, nil))
	}
	ac := &kueue.AdmissionCheck{}
	ac.Name, ac.Spec.ControllerName = "capacity", cache.CapacityController
	w.Set(ac)
	for i, args := range []map[string]string{{"check": "capacity"}, {"strict": ""}} {
		name := fmt.Sprintf("queue-%d", i)
		quotas := fmt.Sprintf("spot cpu=%d gpu=%d\nondemand cpu=%d gpu=%d", r.IntN(9), r.IntN(9), r.IntN(9), r.IntN(9))
		w.Set(queues.ClusterQueue(t, name, args, quotas))
		w.Set(queues.LocalQueue(fmt.Sprintf("lq-%d", i), name, ""))
	}
	return w
}

// TestUsageStaysWithinQuota runs random jobs, ends their attempts at random, and verifies after each write that no quota is exceeded and
// that no Workload has two requests.
func TestUsageStaysWithinQuota(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(t, r)
		for range 30 {
			w.Machines["spot"], w.Machines["ondemand"] = r.IntN(5), r.IntN(5)
			shake(w, t, r)
			w.Cycles(t)
			queues.CheckQuota(t, w.State)
			for uid, requests := range w.State.Requests {
				if len(requests) > 1 {
					t.Errorf("seed %d: workload %s has %d requests", seed, uid, len(requests))
				}
			}
			w.Now = w.Now.Add(time.Duration(r.IntN(100)) * time.Second)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// shake makes something happen: a new workload, or an end of one or its request.
func shake(w *queues.World, t *testing.T, r *rand.Rand) { shakeIn(w, t, r, 2) }

func shakeIn(w *queues.World, t *testing.T, r *rand.Rand, queues int) {
	w.State.SetCapacity(w.State.Capacity())
	if len(w.State.Workloads) == 0 || r.IntN(2) == 0 {
		name := fmt.Sprintf("w-%d", w.Created)
		w.Set(w.Workload(t, name, map[string]string{
			"lq": fmt.Sprintf("lq-%d", r.IntN(queues)), "priority": fmt.Sprint(r.IntN(3)), "count": fmt.Sprint(1 + r.IntN(3)),
			"cpu": fmt.Sprintf("%d00m", r.IntN(20)), "gpu": fmt.Sprint(r.IntN(3)),
		}))
		return
	}
	object := cache.ByName(w.State.Workloads)[r.IntN(len(w.State.Workloads))].Object
	name := object.Name
	switch waits := len(w.State.Requests[object.UID]) == 1 && !workload.IsAdmitted(object); {
	case waits:
		outcomes := []map[string]string{{"Provisioned": "True"}, {"Provisioned": "False"}, {"BookingExpired": "True"}, {"Failed": "True"}}
		w.Condition(t, name, outcomes[r.IntN(len(outcomes))], "so it went")
	case workload.IsAdmitted(object) && workload.IsEvicted(object):
		w.Change(t, "stopped", name)
	case workload.IsAdmitted(object):
		w.Change(t, []string{"finish", "deactivate", "delete"}[r.IntN(3)], name)
	default:
		w.Change(t, []string{"activate", "delete"}[r.IntN(2)], name)
	}
}

// TestJudgingOnceIsJudgingEach compares a cycle with one in which no two
// workloads are taken to be alike.
func TestJudgingOnceIsJudgingEach(t *testing.T) {
	for seed := range uint64(200) {
		judged := func(alike bool) map[string]lifecycle.Action {
			r := rand.New(rand.NewPCG(seed, 2))
			w := randomWorld(t, r)
			w.Machines["spot"], w.Machines["ondemand"] = r.IntN(5), r.IntN(5)
			for len(w.State.Workloads) < 20 {
				shake(w, t, r)
			}
			for i, x := range cache.ByName(w.State.Workloads) {
				if !alike {
					x.Shape = uint64(i)
				}
			}
			return queues.Outcomes(w.State.Cycle(w.Now))
		}
		together, each := judged(true), judged(false)
		// The reasons may differ in the amounts that were free when they were
		// worked out. The Workloads that get quota may not.
		if diff := cmp.Diff(each, together); diff != "" {
			t.Fatalf("seed %d (-each +together):\n%s", seed, diff)
		}
	}
}

func TestNamesStayWithinTheLimit(t *testing.T) {
	if got, want := checks.RequestName("job-a-12345", "capacity", 2), "job-a-12345-capacity-2"; got != want {
		t.Errorf("RequestName = %q, want %q", got, want)
	}
	long := strings.Repeat("x", 250)
	first, second := checks.RequestName(long, "capacity", 1), checks.RequestName(long, "capacity", 2)
	if len(first) != 253 || first == second {
		t.Errorf("long names: %q and %q", first, second)
	}
}
