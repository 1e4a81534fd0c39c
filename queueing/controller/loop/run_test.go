package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestTheLoopWithItsGoroutines: what is written while the loop runs by itself, and that it ends with its context.
func TestTheLoopWithItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, append(queueOf("2"), workloadOf("a", "1"), workloadOf("b", "1"), workloadOf("c", "1"))...)
		w.loop.now = time.Now
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); w.loop.Run(ctx) }()
		<-time.After(5 * time.Second)
		synctest.Wait()
		for name, want := range map[string]bool{"a": true, "b": true, "c": false} {
			if got := workload.IsAdmitted(w.workload(name)); got != want {
				t.Errorf("%s is admitted: %v, want %v", name, got, want)
			}
		}
		if reason := reasonOf(w.workload("c")); reason != kueue.WorkloadQuotaReservedReasonWaitingForQuota {
			t.Errorf("c waits for %q", reason)
		}
		stop()
		<-over
	})
}

// TestEventsGather: Workloads that come one after the other, each to a full queue, are
// judged together, but the first one at once.
func TestEventsGather(t *testing.T) {
	const workloads = 200
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, queueOf("0")...)
		w.loop.now = time.Now
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); w.loop.Run(ctx) }()
		<-time.After(90 * time.Second)
		judged := func() (times int) {
			for _, line := range linesOf(t, w.loop.metrics) {
				_, _ = fmt.Sscanf(line, `kueue_admission_attempts_total{replica_role="standalone",result="inadmissible"} %d`, &times)
			}
			return times
		}
		for i := range workloads {
			w.loop.inbox.OnAdd(workloadOf(fmt.Sprint(i), "1"), false)
			if synctest.Wait(); i == 0 && judged() != 1 {
				t.Errorf("the first has been judged %d times at once", judged())
			}
			<-time.After(time.Millisecond)
		}
		<-time.After(longestRest)
		synctest.Wait()
		if got, most := judged(), int(workloads*time.Millisecond/shortestRest)+1; got < 2 || got > most {
			t.Errorf("%d Workloads are judged at %d times, want at most %d", workloads, got, most)
		}
		stop()
		<-over
	})
}

func reasonOf(w *kueue.Workload) string {
	for _, c := range w.Status.Conditions {
		if c.Type == kueue.WorkloadQuotaReserved {
			return c.Reason
		}
	}
	return ""
}

// TestAWorkloadThatIsOverComesWithoutItsPods, as the manager's cache keeps it: its
// quota goes to the next all the same.
func TestAWorkloadThatIsOverComesWithoutItsPods(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	w.run(2 * time.Second)
	over := w.workload("a")
	if !workload.IsAdmitted(over) {
		t.Fatal("a is not admitted")
	}
	apimeta.SetStatusCondition(&over.Status.Conditions,
		metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded"})
	if err := w.api.Status().Update(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	over.Spec.PodSets = nil
	w.loop.inbox.OnUpdate(nil, over)
	w.seen[over.UID] = over
	w.run(2 * time.Second)
	if !workload.IsAdmitted(w.workload("b")) {
		t.Error("b is not admitted once a is over")
	}
}

// TestAServerThatIsAway: writes fail for a while. The loop backs off, and continues once the server is back.
func TestAServerThatIsAway(t *testing.T) {
	away, tries := true, 0
	w := newWorld(t, func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				if tries++; away {
					return errors.New("connection refused")
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	}, append(queueOf("1"), workloadOf("a", "1"))...)
	w.run(time.Minute)
	if tries < 5 || tries > 25 {
		t.Errorf("%d tries in a minute", tries)
	}
	away = false
	w.run(lastRetry + time.Second)
	if !workload.IsAdmitted(w.workload("a")) {
		t.Error("a is not admitted once the server is back")
	}
}

// TestNewsOfObjects: the objects of the loop after the events of an object came in some order.
func TestNewsOfObjects(t *testing.T) {
	flavor := func(uid types.UID, version string) *kueue.ResourceFlavor {
		f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "flavor", UID: uid, ResourceVersion: version}}
		f.Spec.NodeLabels = map[string]string{"zone": "a"}
		return f
	}
	for name, tt := range map[string]struct {
		happen func(*inbox)
		// want are the stored versions.
		want []string
	}{
		"the last version counts": {func(i *inbox) { i.OnAdd(flavor("a", "1"), true); i.OnUpdate(flavor("a", "1"), flavor("a", "2")) },
			[]string{"2"}},
		"an old version comes late": {func(i *inbox) { i.OnAdd(flavor("known", "3"), false) }, []string{"5"}},
		"it is gone":                {func(i *inbox) { i.OnDelete(flavor("known", "6")) }, nil},
		"it is gone, and the informer missed when": {func(i *inbox) { i.OnDelete(cache.DeletedFinalStateUnknown{Obj: flavor("known", "5")}) },
			nil},
		"another one has its name": {func(i *inbox) { i.OnDelete(flavor("known", "6")); i.OnAdd(flavor("b", "7"), false) }, []string{"7"}},
		"another one has its name, and the informer missed the end of the first": {
			func(i *inbox) { i.OnUpdate(flavor("known", "5"), flavor("b", "7")) }, []string{"7"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(nil, nil, Config{})
			if name != "the last version counts" {
				l.set(flavor("known", "5"))
			}
			tt.happen(l.inbox)
			changes, _ := l.inbox.take()
			l.receive(changes)
			var got []string
			for _, o := range l.known.objects {
				got = append(got, o.GetResourceVersion())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("known are %v, want %v", got, tt.want)
			}
			// The State must have that flavor, too.
			if keys := len(l.state.SelectedKeys()); keys != len(tt.want) {
				t.Errorf("the State knows %d flavors, want %d", keys, len(tt.want))
			}
			if named := len(l.known.named); named != len(tt.want) {
				t.Errorf("%d are known by name, want %d", named, len(tt.want))
			}
		})
	}
}

// TestFinalizersOfKueue: what is deleted goes when nothing uses it.
func TestFinalizersOfKueue(t *testing.T) {
	objects := append(queueOf("1", kueue.AdmissionCheckStrategyRule{Name: "capacity", OnFlavors: []kueue.ResourceFlavorReference{"other"}}),
		workloadOf("a", "1"), &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks", UID: "topology"}})
	named := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "placed", UID: "placed"}}
	named.Spec.TopologyName = new(kueue.TopologyReference("racks"))
	objects = append(objects, named)
	for _, o := range objects {
		switch o.(type) {
		case *kueue.ClusterQueue, *kueue.ResourceFlavor, *kueue.Topology, *kueue.AdmissionCheck, *kueue.Workload:
			controllerutil.AddFinalizer(o, kueue.ResourceInUseFinalizerName)
		}
	}
	w := newWorld(t, nil, objects...)
	w.run(2 * time.Second)
	exists := func(o client.Object) bool {
		return w.api.Get(context.Background(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)) == nil
	}
	remove := func(o client.Object) {
		if err := w.api.Delete(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		w.run(2 * time.Second)
	}
	queue, check, flavor, workload, topology := objects[0], objects[2], objects[3], objects[5], objects[6]
	remove(topology)
	if !exists(topology) {
		t.Error("the topology is gone while a flavor names it")
	}
	remove(named)
	w.run(2 * time.Second)
	if exists(topology) {
		t.Error("the topology is still there, though no flavor names it")
	}
	remove(flavor)
	remove(check)
	remove(queue)
	if !exists(flavor) || !exists(check) || !exists(queue) {
		t.Error("the flavor, the check or the queue is gone while a workload has its quota")
	}
	remove(workload)
	if exists(workload) || exists(queue) {
		t.Error("the workload or the queue is still there")
	}
	w.run(2 * time.Second)
	if exists(flavor) || exists(check) {
		t.Error("the flavor or the check is still there, though no queue has it")
	}
}

// TestAQueueStaysWhileItsQuotaIsGiven: else a job would run by the quota of a queue that is gone.
func TestAQueueStaysWhileItsQuotaIsGiven(t *testing.T) {
	objects := append(queueOf("1"), workloadOf("a", "1"))
	queue := objects[0]
	controllerutil.AddFinalizer(queue, kueue.ResourceInUseFinalizerName)
	w := newWorld(t, nil, objects...)
	var held []writes.Write
	w.loop.start = func(u writes.Urgency, _ string, write writes.Write) {
		if u == writes.Acting && len(held) == 0 {
			held = append(held, write)
			return
		}
		w.loop.inbox.done(write(context.Background()))
	}
	w.run(2 * time.Second)
	if len(held) == 0 {
		t.Fatal("no quota is given")
	}
	if err := w.api.Delete(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
	exists := func() bool {
		return w.api.Get(context.Background(), client.ObjectKeyFromObject(queue), &kueue.ClusterQueue{}) == nil
	}
	if w.run(2 * time.Second); !exists() {
		t.Error("the queue is gone before the write that gives its quota has ended")
	}
	w.loop.inbox.done(held[0](context.Background()))
	if w.run(2 * time.Second); !exists() {
		t.Error("the queue is gone while a workload has its quota")
	}
}

// machines is a capacity snapshot that counts its reads.
type machines struct {
	asked int
	free  *planner.Snapshot
	keys  []string
	fleet scaledown.Fleet
}

func (m *machines) Distinguish(keys ...string)           { m.keys = keys }
func (m *machines) Changed() <-chan struct{}             { return nil }
func (m *machines) Snapshot(time.Time) *planner.Snapshot { m.asked++; return m.free }
func (m *machines) Fleet(time.Time) scaledown.Fleet      { return m.fleet }

// TestTheProvisionerGetsDeletedNodes before anything is decided.
func TestTheProvisionerGetsDeletedNodes(t *testing.T) {
	w := newWorld(t, nil, &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks", UID: "t"},
		Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "f"},
			Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "gpu"}, TopologyName: new(kueue.TopologyReference("racks"))}})
	m := &machines{fleet: scaledown.Fleet{Snapshot: planner.NewSnapshot(start, nodeset.New(), nil, nil)}}
	w.loop.capacity = &advisor{source: m}
	w.run(time.Second)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelHostname: "a"}}}
	node.Spec.ProviderID = "cloud://a"
	nodes := &w.loop.state.Nodes
	nodes.SetNode(node)
	use := placement.Usage{Flavor: "gpu", Domains: []placement.Domain{{Values: []string{"a"}, Count: 1}}}
	nodes.SetUsage(types.NamespacedName{Name: "train"}, []placement.Usage{use})
	nodes.DeleteNode("a")
	expect := func(what string, want map[string]bool, many bool) {
		t.Helper()
		if w.run(time.Second); !maps.Equal(nodes.Vanished.Machines, want) || nodes.Vanished.Many != many {
			t.Errorf("%s the queues know of %+v", what, nodes.Vanished)
		}
	}
	expect("where its machine has ended", nil, false)
	m.fleet.Nodes.Set(&state.Node{Name: "a", ProviderID: "cloud://a", Machine: &cloudprovider.Machine{ProviderID: "cloud://a"}})
	expect("before the provisioner hears of it", map[string]bool{"cloud://a": false}, false)
	m.fleet.Nodes.Delete("a")
	for _, name := range []string{"a", "b", "c", "d"} {
		m.fleet.Missing = append(m.fleet.Missing, scaledown.Missing{Machine: cloudprovider.Machine{ProviderID: "cloud://" + name}})
	}
	expect("with others", map[string]bool{"cloud://a": true, "cloud://b": true, "cloud://c": true, "cloud://d": true}, true)
}

// TestCapacityIsReadWhenItMatters: not without a check that books machines; with one, the
// Workloads that wait are judged again when the machines change.
func TestCapacityIsReadWhenItMatters(t *testing.T) {
	for name, tt := range map[string]struct {
		check client.Object
		want  int
	}{
		"a queue with a capacity check": {queueOf("4")[2], 2},
		"no capacity check anywhere":    {&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity", UID: "ac"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(queueOf("8", capacityRule), workloadOf("train", "4"))
			objects[2] = tt.check
			w := newWorld(t, nil, objects...)
			m := &machines{free: planner.NewSnapshot(start, nodeset.New(), nil, nil)}
			w.loop.capacity = &advisor{source: m, stale: true}
			w.run(10 * time.Second)
			asked := m.asked
			w.run(time.Minute)
			if m.asked != asked {
				t.Errorf("at rest it was asked for %d times", m.asked-asked)
			}
			w.loop.capacity.stale = true
			w.run(10 * time.Second)
			if got := min(asked, 1) + m.asked - asked; got != tt.want {
				t.Errorf("it was asked for %d times at first and %d times after a change", asked, m.asked-asked)
			}
		})
	}
}
