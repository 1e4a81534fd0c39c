package queues

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

// World is a cluster that carries out at once what cycles decide.
type World struct {
	State *queueing.State
	Now   time.Time
	// Machines is how many pods fit on the machines of a pool, for ByMachines.
	Machines map[string]int
	// Plan answers for the provisioner; ByMachines if it is not set.
	Plan scheduler.Planner
	// Sees, if set, is called with each verdict before it is executed.
	Sees func(*lifecycle.Verdict)
	// Created counts the Workloads, and version the writes.
	Created, version int
	// stored are the objects that the API server has.
	stored map[key]metav1.Object
}

// key identifies an object.
type key struct {
	of              reflect.Type
	namespace, name string
}

func keyOf(o metav1.Object) key { return key{reflect.TypeOf(o), o.GetNamespace(), o.GetName()} }

// New returns a World with the namespace default, and without queues.
func New() *World { return NewWith(config.Config{}) }

// NewWith returns a World like New, with a configuration.
func NewWith(c config.Config) *World {
	w := &World{Machines: map[string]int{}, Now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), stored: map[key]metav1.Object{}}
	w.Plan = w.ByMachines
	w.Configure(c)
	w.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "a"}}})
	return w
}

// Configure replaces the State by a new one with that configuration.
func (w *World) Configure(c config.Config) {
	w.State = w.fed(c)
	w.State.SetCapacity(planner.NewSnapshot(time.Time{}, nodeset.New(), nil, nil))
}

// Restart replaces the State as a restart of the process does.
func (w *World) Restart() { w.Configure(w.State.Config) }

// Restarted returns a State as it would be after a restart, except that it has the capacity snapshot already, and remembers which
// Workloads could not get their machines.
func (w *World) Restarted() *queueing.State {
	out := w.fed(w.State.Config)
	for uid, x := range w.State.Workloads {
		out.Workloads[uid].Unobtained = x.Unobtained
	}
	out.SetCapacity(w.State.Capacity())
	return out
}

// fed is a State that got the objects that the API server has.
func (w *World) fed(c config.Config) *queueing.State {
	out := queueing.New(c, func(on *planner.Snapshot, gang state.Gang, policy state.Policy) planner.Verdict {
		return w.Plan(on, gang, policy)
	})
	out.Nodes.Known = true
	objects := slices.SortedFunc(maps.Values(w.stored), func(a, b metav1.Object) int {
		return cmp.Compare(versionOf(a), versionOf(b))
	})
	for _, o := range objects {
		out.Set(o)
	}
	return out
}

func versionOf(o metav1.Object) int {
	n, err := strconv.Atoi(o.GetResourceVersion())
	if err != nil {
		panic(err)
	}
	return n
}

// Set creates an object, or updates it.
func (w *World) Set(object metav1.Object) {
	w.Write(object)
	object.SetGeneration(int64(w.version))
	w.State.Set(object)
}

// Delete deletes an object.
func (w *World) Delete(object metav1.Object) {
	delete(w.stored, keyOf(object))
	w.State.Delete(object)
}

// Write stores a new version of an object, which the State does not get.
func (w *World) Write(object metav1.Object) {
	w.version++
	object.SetResourceVersion(strconv.Itoa(w.version))
	w.stored[keyOf(object)] = object
}

// ByMachines is a planner that has room for as many pods as there are machines of the pool that they select. Those of the pool ondemand
// are launched on demand.
func (w *World) ByMachines(_ *planner.Snapshot, gang state.Gang, policy state.Policy) planner.Verdict {
	pool := gang.PodSets[0].Template.Spec.NodeSelector["pool"]
	if pool == "ondemand" && !slices.Contains(policy.CapacityTypes, v1alpha1.OnDemand) {
		return planner.Verdict{Outcome: planner.Wait, Reasons: []planner.Reason{{
			Code: planner.CodeCapacityType, Group: pool, Message: "the policy does not allow OnDemand",
		}}}
	}
	if have := w.Machines[pool]; gang.PodSets[0].Count > have {
		return planner.Verdict{Outcome: planner.Wait, Until: w.Now.Add(time.Minute), Reasons: []planner.Reason{{
			Code: planner.CodeBackoff, Group: pool, Message: fmt.Sprintf("%d of %d machines", have, gang.PodSets[0].Count),
		}}}
	}
	return planner.Verdict{Outcome: planner.Launch}
}

// Cycles runs cycles until nothing is written any more, and prints each write.
func (w *World) Cycles(t *testing.T) string {
	var out strings.Builder
	for rounds, all := 0, 0; rounds < 20; all++ {
		if all == 10_000 {
			t.Fatal("cycles defer Workloads again and again")
		}
		verdicts := w.State.Cycle(w.Now)
		if w.State.ResumeAt.IsZero() {
			rounds++
		}
		for i := range verdicts {
			if w.Sees != nil {
				w.Sees(&verdicts[i])
			}
			w.Apply(&verdicts[i], &out)
		}
		CheckQuota(t, w.State)
		if len(verdicts) == 0 && w.State.ResumeAt.IsZero() {
			if wake := w.State.WakeAt(); !wake.IsZero() {
				fmt.Fprintf(&out, "wake in %s\n", wake.Sub(w.Now))
			}
			return out.String()
		}
	}
	t.Fatalf("no rest after 20 cycles:\n%s", out.String())
	return ""
}

// mustNotBeHollow panics if the status has an object without fields: an apply that takes away all fields which its manager has set makes
// that null, and the API server refuses it, so that the Workload would stay as it is for ever.
func mustNotBeHollow(status *kueue.WorkloadStatus) {
	data, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	if bytes.Contains(data, []byte("{}")) {
		panic(fmt.Sprintf("an object of the status has no fields: %s", data))
	}
}

// Apply carries a verdict out, and prints it if there is somewhere to print to.
func (w *World) Apply(v *lifecycle.Verdict, out *strings.Builder) {
	object := v.Workload.Object
	var written *kueue.Workload
	if v.Action == lifecycle.Prioritize {
		w.prioritize(v, out)
		return
	}
	printf := func(format string, args ...any) {
		if out == nil {
			return
		}
		fmt.Fprintf(out, "%s: ", object.Name)
		fmt.Fprintf(out, format+"\n", args...)
	}
	if v.Action == lifecycle.Deactivate {
		printf("%v (%s)", v.Action, v.Message)
		written = object.DeepCopy()
		written.Spec.Active = new(false)
		written.Generation++
	}
	if v.Status != nil {
		mustNotBeHollow(v.Status)
		written = object.DeepCopy()
		written.Status = *v.Status.DeepCopy()
		switch v.Action {
		case lifecycle.Wait:
			printf("%s: %s", v.Reason, v.Message)
		case lifecycle.Reserve:
			printf("%v on %v%s", v.Action, workload.AssignedFlavors(v.Status.Admission), admittedToo(v.Status))
		default:
			printf("%v %s (%s)", v.Action, v.Reason, v.Message)
		}
	}
	if v.Action == lifecycle.Remove {
		w.remove(v, printf)
	}
	for _, r := range v.Delete {
		printf("delete request %s", r.Name)
		w.Delete(r)
	}
	if v.Create != nil {
		placed := ""
		for _, template := range v.Create.Templates {
			if template.Template.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] != "" {
				placed = ", which a topology places"
			}
		}
		printf("create request %s for %d pods%s", v.Create.Object.Name, v.Create.Object.Spec.PodSets[0].Count, placed)
		v.Create.Object.UID = types.UID(v.Create.Object.Name)
		w.Set(v.Create.Object)
	}
	if written != nil {
		w.Write(written)
	}
	if v.Acts() {
		w.State.Settle(object.UID, written)
	} else if written != nil {
		w.State.Set(written)
	}
}

func (w *World) remove(v *lifecycle.Verdict, printf func(string, ...any)) {
	what := "the workload"
	if v.Job != nil {
		what = "job " + v.Job.Name
	}
	printf("%v %s (%s)", v.Action, what, v.Message)
	w.Delete(v.Workload.Object)
}

func (w *World) prioritize(v *lifecycle.Verdict, out *strings.Builder) {
	written := v.Workload.Object.DeepCopy()
	if out != nil {
		fmt.Fprintf(out, "%s: %v %d instead of %d (%s)\n", written.Name, v.Action, v.Priority, workload.Priority(written), v.Message)
	}
	written.Spec.Priority = &v.Priority
	w.Set(written)
	w.State.Prioritized(written.UID)
}

func admittedToo(s *kueue.WorkloadStatus) string {
	if len(s.AdmissionChecks) == 0 {
		return ", admitted"
	}
	return ""
}

// Find returns a copy of a Workload.
func (w *World) Find(t *testing.T, name string) *kueue.Workload {
	for _, x := range w.State.Workloads {
		if x.Object.Name == name {
			return x.Object.DeepCopy()
		}
	}
	t.Fatalf("no workload %s", name)
	return nil
}

// CheckQuota verifies promise P4: reservations never exceed the quota, except for jobs that ran before Muster was installed.
func CheckQuota(t *testing.T, s *queueing.State) {
	t.Helper()
	for _, w := range s.Workloads {
		// What ran before, or runs again, is counted whether it is free or not.
		if w.Phase == cache.Reserving && w.Queue != nil && (workload.IsTrue(w.Object, workload.ConditionAdopted) || w.QuotaRestored) {
			w.Queue.Node.Sub(w.Usage)
			defer w.Queue.Node.Add(w.Usage)
		}
	}
	for _, q := range s.Order {
		for _, fr := range q.Node.Keys() {
			if v := q.Node.Available(fr); v < 0 {
				t.Errorf("queue %s uses %d of %v more than it may", q.Object.Name, -v, fr)
			}
		}
	}
}

// Outcomes are the greatest actions of verdicts, by the name of the Workload.
func Outcomes(verdicts []lifecycle.Verdict) map[string]lifecycle.Action {
	out := map[string]lifecycle.Action{}
	for i := range verdicts {
		out[verdicts[i].Workload.Object.Name] = max(out[verdicts[i].Workload.Object.Name], verdicts[i].Action)
	}
	return out
}

// Cases is the number of random cases that a test plays: with -short, a quarter.
func Cases(all uint64) uint64 {
	if testing.Short() {
		return all / 4
	}
	return all
}
