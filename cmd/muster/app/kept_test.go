package app

import (
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
)

// waiting is a Workload as Muster keeps it for a Job that waits: its template has what users write in theirs.
func waiting(b *testing.B, i int) *kueue.Workload {
	b.Helper()
	w := workload()
	w.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 20, 12, 0, i, 0, time.UTC))
	w.Spec.QueueName, w.Spec.Priority = "main", new(int32(i%10))
	p := pod(b)
	p.Spec.NodeName, p.Spec.Containers[0].Image = "", fmt.Sprint("registry.example.com/team/train:", i%500)
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("4")}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: int32(1 + i%64), Template: corev1.PodTemplateSpec{Spec: p.Spec}}}
	w.Status.Conditions = []metav1.Condition{{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, %d more "+
			"needed", i),
	}}
	return w
}

// queue is one for so many GPUs.
func queue(namespace, gpus string) (*kueue.ResourceFlavor, *kueue.ClusterQueue, *kueue.LocalQueue) {
	flavor, cq, lq := &kueue.ResourceFlavor{}, &kueue.ClusterQueue{}, &kueue.LocalQueue{}
	flavor.Name, cq.Name, lq.Name, lq.Namespace = "h100", "team", "main", namespace
	flavor.UID, cq.UID, lq.UID = "flavor", "cq", "lq"
	flavor.Spec.NodeLabels = map[string]string{"pool": "h100"}
	check := &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	cq.Spec.NamespaceSelector, cq.Spec.AdmissionChecksStrategy = &metav1.LabelSelector{}, check
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"},
		Flavors: []kueue.FlavorQuotas{{
			Name: "h100", Resources: []kueue.ResourceQuota{
				{Name: "cpu", NominalQuota: resource.MustParse("100")}, {Name: "nvidia.com/gpu", NominalQuota: resource.MustParse(gpus)},
			},
		}}}}
	lq.Spec.ClusterQueue = "team"
	return flavor, cq, lq
}

// whole returns the objects in the form of snapshots.
func whole(kept []client.Object) (out []client.Object) {
	for _, o := range kept {
		if p, ok := o.(*snapshots.KeptPod); ok {
			o = p.Whole()
		}
		out = append(out, o)
	}
	return out
}

// TestASnapshotIsTheSameOfWhatIsKept as of the objects themselves: for jobs that fit beside pods, between them, and nowhere.
func TestASnapshotIsTheSameOfWhatIsKept(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	keep := snapshots.Kept(clock, trim)
	var objects, kept []client.Object
	add := func(o client.Object) {
		objects = append(objects, o)
		got, err := keep(o.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, got.(client.Object))
	}
	for i := range 6 {
		n := node()
		n.Name, n.UID = fmt.Sprint("node-", i), types.UID(fmt.Sprint("node-", i))
		n.Labels[corev1.LabelHostname], n.Labels["pool"], n.Labels["rack"] = n.Name, "h100", fmt.Sprint(i/3)
		n.Status.Conditions[0].Status = corev1.ConditionTrue
		if i == 5 {
			n.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoSchedule}}
		}
		add(n)
		for j := range i {
			p := pod(t)
			p.Name, p.UID, p.Spec.NodeName = fmt.Sprintf("pod-%d-%d", i, j), types.UID(fmt.Sprintf("pod-%d-%d", i, j)), n.Name
			p.Labels["app"] = fmt.Sprint("app-", j)
			p.Spec.InitContainers, p.Spec.Containers[0].Ports = nil, nil
			p.Spec.Containers = p.Spec.Containers[:1]
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
			if p.Status.Phase = corev1.PodRunning; j == 2 {
				p.Status.Phase = corev1.PodSucceeded
			}
			add(p)
		}
	}
	flavor, cq, lq := queue("default", "100")
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity", UID: "check"}}
	check.Spec.ControllerName = "muster.dev/capacity"
	for _, o := range []client.Object{flavor, check, cq, lq, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}} {
		add(o)
	}
	snapshot := view.New(clock, view.DefaultSettings(), &view.Reading{Objects: objects}).Prospects()
	ofKept := view.New(clock, view.DefaultSettings(), &view.Reading{Objects: whole(kept)}).Prospects()
	seen := map[dispatch.Outlook]int{}
	for gpus := 1; gpus <= 8; gpus++ {
		for _, count := range []int32{1, 2, 3, 5} {
			for name, change := range map[string]func(*corev1.PodSpec){
				"any":     func(*corev1.PodSpec) {},
				"on node": func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{corev1.LabelHostname: "node-1"} },
				"away": func(s *corev1.PodSpec) {
					away := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
						TopologyKey: corev1.LabelHostname, Namespaces: []string{"team"},
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app-1"}},
					}}}
					s.Affinity = &corev1.Affinity{PodAntiAffinity: away}
				},
			} {
				w := workload()
				w.Name, w.UID, w.Namespace, w.Spec.QueueName = "job", "job", "default", "main"
				spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(fmt.Sprint(gpus))},
				}}}}
				change(&spec)
				w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count, Template: corev1.PodTemplateSpec{Spec: spec}}}
				want, got := snapshot(nil, w), ofKept(nil, w)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%d pods of %d, %s: (-of all +of what is kept)\n%s", count, gpus, name, diff)
				}
				seen[want.Outlook]++
			}
		}
	}
	if seen[dispatch.Fits] < 10 || seen[dispatch.Waits] < 10 {
		t.Errorf("outlooks are %v", seen)
	}
}

var (
	workersKept   = flag.Int("workers", 1, "how many workers BenchmarkWorker keeps")
	snapshotsKept = flag.Int("snapshots", 1, "of how many of them BenchmarkWorker has a snapshot")
)

// BenchmarkWorker is the memory that a manager takes for one worker: what it keeps of 5,000 nodes with 20,000 pods, half of which are of
// DaemonSets, and of 10,000 jobs that wait, and a snapshot of them beside that.
//
//	go test ./cmd/muster/app -run '^$' -bench Worker -benchtime 1x
//	go test ./cmd/muster/app -run '^$' -bench Worker/kept -benchtime 1x -workers 20 -snapshots 8
func BenchmarkWorker(b *testing.B) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	for _, how := range []struct {
		name string
		keep func(any) (any, error)
	}{{"trimmed", trim}, {"kept", snapshots.Kept(clock, trim)}} {
		b.Run(how.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				var workers [][]client.Object
				for range *workersKept {
					workers = append(workers, busyWorker(b, how.keep))
				}
				stored := heap() - before
				b.ReportMetric(float64(stored)/1e6, "MB")
				var made []snapshots.Foresee
				for _, all := range workers[:*snapshotsKept] {
					flavor, cq, lq := queue(all[len(all)-1].GetNamespace(), "0")
					reading := &view.Reading{Objects: append(whole(all), flavor, cq, lq)}
					made = append(made, view.New(clock, view.DefaultSettings(), reading).Prospects())
				}
				b.ReportMetric(float64(heap()-before-stored)/1e6, "snapshot-MB")
				runtime.KeepAlive(made)
				runtime.KeepAlive(workers)
			}
		})
	}
}

// busyWorker returns the objects of a worker in the form in which they are cached.
func busyWorker(b *testing.B, keep func(any) (any, error)) (all []client.Object) {
	b.Helper()
	const nodes, podsEach, jobs = 5000, 4, 10_000
	ofNode, ofPod := encoded(b, node()), encoded(b, pod(b))
	add := func(text []byte, o client.Object, name string, change func()) {
		if err := json.Unmarshal(text, o); err != nil {
			b.Fatal(err)
		}
		o.SetName(name)
		o.SetUID(types.UID(fmt.Sprintf("%08x-0000-0000-0000-%012x", len(all), len(all))))
		change()
		out, err := keep(o)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, out.(client.Object))
	}
	for i := range nodes {
		n := &corev1.Node{}
		add(ofNode, n, fmt.Sprint("node-", i), func() {
			n.Labels[corev1.LabelHostname], n.Labels["pool"], n.Labels[v1alpha1.NodeGroupLabel] = n.Name, "h100", "h100"
		})
		for j := range podsEach {
			p := &corev1.Pod{}
			add(ofPod, p, fmt.Sprintf("pod-%d-%d", i, j), func() {
				p.Spec.NodeName = n.Name
				if p.Labels["app"] = fmt.Sprint("gang-", i%100); j < podsEach/2 {
					p.Labels["app"], p.OwnerReferences[0].Kind = fmt.Sprint("daemon-", j), "DaemonSet"
				}
			})
		}
	}
	for i := range jobs {
		w := &kueue.Workload{}
		add(encoded(b, waiting(b, i)), w, fmt.Sprint("job-", i), func() {})
	}
	return all
}
