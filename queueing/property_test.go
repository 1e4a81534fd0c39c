package queueing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// randomWorld is two queues over two flavors with small quotas, so that most
// things happen often.
func randomWorld(t *testing.T, r *rand.Rand) *world {
	w := newWorld()
	for _, name := range []string{"spot", "ondemand"} {
		w.s.Flavors = append(w.s.Flavors, flavor(name, nil))
	}
	ac := &kueue.AdmissionCheck{}
	ac.Name, ac.Spec.ControllerName = "capacity", CapacityController
	w.s.Checks = append(w.s.Checks, ac)
	for i, args := range []map[string]string{{"check": "capacity"}, {"strict": ""}} {
		name := fmt.Sprintf("queue-%d", i)
		quotas := fmt.Sprintf("spot cpu=%d gpu=%d\nondemand cpu=%d gpu=%d", r.IntN(9), r.IntN(9), r.IntN(9), r.IntN(9))
		w.s.ClusterQueues = append(w.s.ClusterQueues, clusterQueue(t, name, args, quotas))
		w.s.LocalQueues = append(w.s.LocalQueues, localQueue(fmt.Sprintf("lq-%d", i), name, ""))
	}
	return w
}

// TestUsageStaysWithinQuota runs random jobs through random ends of their
// attempts, and looks after each write that no quota is exceeded and that no
// Workload has two requests.
func TestUsageStaysWithinQuota(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(t, r)
		for range 30 {
			w.machines["spot"], w.machines["ondemand"] = r.IntN(5), r.IntN(5)
			w.shake(t, r)
			w.cycles(t)
			checkQuota(t, w.s)
			for uid, requests := range w.s.Requests {
				if len(requests) > 1 {
					t.Errorf("seed %d: workload %s has %d requests", seed, uid, len(requests))
				}
			}
			w.s.Now = w.s.Now.Add(time.Duration(r.IntN(100)) * time.Second)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// shake makes something happen: a new workload, or an end of one or its request.
func (w *world) shake(t *testing.T, r *rand.Rand) {
	if len(w.s.Workloads) == 0 || r.IntN(2) == 0 {
		w.created++
		name := fmt.Sprintf("w-%d", w.created)
		w.s.Workloads = append(w.s.Workloads, NewWorkload(w.workload(t, name, map[string]string{
			"lq": fmt.Sprintf("lq-%d", r.IntN(2)), "priority": fmt.Sprint(r.IntN(3)), "count": fmt.Sprint(1 + r.IntN(3)),
			"cpu": fmt.Sprintf("%d00m", r.IntN(20)), "gpu": fmt.Sprint(r.IntN(3)),
		}), nil))
		return
	}
	object := w.s.Workloads[r.IntN(len(w.s.Workloads))].Object
	name := object.Name
	switch waits := len(w.s.Requests[object.UID]) == 1 && !IsAdmitted(object); {
	case waits:
		outcomes := []map[string]string{{"Provisioned": "True"}, {"Provisioned": "False"}, {"BookingExpired": "True"}, {"Failed": "True"}}
		w.condition(t, name, outcomes[r.IntN(len(outcomes))], "so it went")
	case IsAdmitted(object) && IsEvicted(object):
		w.change(t, "stopped", name)
	case IsAdmitted(object):
		w.change(t, []string{"finish", "deactivate", "delete"}[r.IntN(3)], name)
	default:
		w.change(t, []string{"activate", "delete"}[r.IntN(2)], name)
	}
}

// TestJudgingOnceIsJudgingEach compares a cycle with one in which no two
// workloads are taken to be alike.
func TestJudgingOnceIsJudgingEach(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(t, r)
		w.machines["spot"], w.machines["ondemand"] = r.IntN(5), r.IntN(5)
		for len(w.s.Workloads) < 20 {
			w.shake(t, r)
		}
		together := outcomes(Cycle(w.s))
		for i, x := range w.s.Workloads {
			x.shape = uint64(i)
		}
		each := outcomes(Cycle(w.s))
		// The reasons may differ in the amounts that were free when they were
		// worked out; who gets quota may not.
		if diff := cmp.Diff(each, together); diff != "" {
			t.Fatalf("seed %d (-each +together):\n%s", seed, diff)
		}
	}
}

func outcomes(verdicts []Verdict) map[string]Action {
	out := map[string]Action{}
	for i := range verdicts {
		out[verdicts[i].Workload.Object.Name] = max(out[verdicts[i].Workload.Object.Name], verdicts[i].Action)
	}
	return out
}

func TestSubUndoesAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	random := func() Usage {
		u := Usage{}
		for range r.IntN(4) {
			u[FlavorResource{kueue.ResourceFlavorReference(fmt.Sprint(r.IntN(3))), "cpu"}] = 1 + r.Int64N(1e15)
		}
		return u
	}
	for range 1000 {
		u, o := random(), random()
		before := maps.Clone(u)
		u.Add(o)
		u.Sub(o)
		if diff := cmp.Diff(before, u); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
	}
}

func TestNamesStayWithinTheLimit(t *testing.T) {
	if got, want := RequestName("job-a-12345", "capacity", 2), "job-a-12345-capacity-2"; got != want {
		t.Errorf("RequestName = %q, want %q", got, want)
	}
	long := strings.Repeat("x", 250)
	first, second := RequestName(long, "capacity", 1), RequestName(long, "capacity", 2)
	if len(first) != 253 || first == second {
		t.Errorf("long names: %q and %q", first, second)
	}
}
