package history

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/workload"
)

const namespace = "muster-system"

// spender returns the costs since its last call.
type spender map[cost.Line]cost.Entry

func (s spender) TakeLines(time.Time) map[cost.Line]cost.Entry {
	out := map[cost.Line]cost.Entry{}
	for line, e := range s {
		out[line] = e
		delete(s, line)
	}
	return out
}

// world is a cluster with Recorders, one after another.
type world struct {
	*testing.T
	kube client.WithWatch
	// writes so far; refused is the error of the next ones.
	writes              int
	refused             error
	workloads, requests *controllertest.FakeInformer
	spent               spender
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), kueue.AddToScheme(scheme), provreq.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, spent: spender{}}
	objects := []client.Object{&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec: v1alpha1.NodeGroupSpec{Provider: "aws", CapacityType: v1alpha1.Spot, Zone: "a"}}}
	for slot := range history.Slots {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: history.Name(slot)}})
	}
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if w.refused != nil {
				return w.refused
			}
			w.writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	return w
}

// lives runs a Recorder while the test does something.
func (w *world) lives(do func()) {
	w.Helper()
	informers := &informertest.FakeInformers{Scheme: w.kube.Scheme()}
	var errs [2]error
	w.workloads, errs[0] = informers.FakeInformerFor(w.Context(), &kueue.Workload{})
	w.requests, errs[1] = informers.FakeInformerFor(w.Context(), &provreq.ProvisioningRequest{})
	if err := errors.Join(errs[:]...); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error)
	r := &Recorder{Client: w.kube, Live: w.kube, Namespace: namespace, Informers: informers, Spender: w.spent, Clock: clock.RealClock{}}
	go func() { ended <- r.Start(ctx) }()
	synctest.Wait()
	do()
	cancel()
	if err := <-ended; err != nil {
		w.Error(err)
	}
}

// recorded are all records.
func (w *world) recorded() []*history.Record {
	w.Helper()
	out, err := Read(w.Context(), w.kube, namespace)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func workloadOf(job string) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "job-" + job, UID: types.UID(job),
		CreationTimestamp: metav1.Now(), OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: job, Controller: new(true)}}}}
	out.Spec.QueueName = "gpus"
	ps := kueue.PodSet{Name: "main", Count: 4}
	ps.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}
	out.Spec.PodSets = []kueue.PodSet{ps}
	return out
}

func become(w *kueue.Workload, condition, reason, message string) *kueue.Workload {
	out := w.DeepCopy()
	out.Status.Conditions = append(out.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason,
		Message: message, LastTransitionTime: metav1.Now()})
	if condition == kueue.WorkloadFinished {
		out.Spec.PodSets = nil // as the cache has it
	}
	return out
}

// TestHistoryOutlivesTheProcess: jobs that finish, fail or are deleted are recorded once, even if no process ran at that time. Costs are
// recorded by the job that pays. A slice that another one replaced is not the end of its job.
func TestHistoryOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		train, flaky, dropped := workloadOf("train"), workloadOf("flaky"), workloadOf("dropped")
		train.Annotations = map[string]string{workload.SubmittedByAnnotation: "alice"}
		var done *kueue.Workload
		w.lives(func() {
			for _, o := range []*kueue.Workload{train, flaky, dropped} {
				w.workloads.Add(o)
			}
			request := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "r", UID: "request",
				OwnerReferences: []metav1.OwnerReference{{Kind: "Workload", Name: "job-train", Controller: new(true)}}}}
			w.requests.Add(request)
			<-time.After(10 * time.Minute)
			runs := become(train, kueue.WorkloadAdmitted, "Admitted", "")
			w.workloads.Update(train, runs)
			day := time.Now().UTC().Truncate(24 * time.Hour)
			tenant := state.Tenant{Namespace: "research", Queue: "gpus"}
			w.spent[cost.Line{Day: day, Post: cost.Post{Group: "h100", Purpose: cost.PurposeUsed}, Payer: cost.Payer{Request: "request",
				Tenant: tenant}}] = cost.Entry{Milliseconds: 1000, MicroUSD: 7}
			w.spent[cost.Line{Day: day, Post: cost.Post{Group: "h100", Purpose: cost.PurposeIdle}, Payer: cost.Payer{LeftBy: tenant}}] =
				cost.Entry{Milliseconds: 500, MicroUSD: 3}
			w.requests.Delete(request)
			<-time.After(time.Hour)
			done = become(runs, kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded, "")
			w.workloads.Update(runs, done)
			w.workloads.Update(done, done) // a resync
			w.workloads.Delete(dropped)
			grown := workloadOf("grown")
			w.workloads.Add(grown)
			replaced := become(grown, kueue.WorkloadFinished, kueue.WorkloadSliceReplaced, "Replaced")
			w.workloads.Update(grown, replaced)
			w.workloads.Delete(replaced)
		})
		failed := become(flaky, kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed, "exit code 1")
		w.lives(func() {
			w.workloads.Add(done)
			w.workloads.Add(failed)
			<-time.After(2 * time.Minute)
			w.workloads.Delete(done) // its retention is over
			<-time.After(2 * time.Minute)
		})
		records := w.recorded()
		if len(records) != 1 {
			t.Fatalf("there are %d records, want that of one week", len(records))
		}
		ended := began.Add(70 * time.Minute)
		job := func(name string, outcome history.Outcome, why string) history.Job {
			return history.Job{Namespace: "research", Name: "job/" + name, Workload: "job-" + name, Outcome: outcome, Why: why, Queue: "gpus",
				Created: began, Ended: ended, Pods: 4, Devices: map[string]int64{"nvidia.com/gpu": 32}}
		}
		finished, unseen := job("train", history.Finished, ""), job("flaky", history.Failed, "exit code 1")
		finished.User = "alice"
		finished.Started = began.Add(10 * time.Minute)
		unseen.Pods, unseen.Devices = 0, nil // no process has seen its pod sets
		day := began.UTC().Format(time.DateOnly)
		want := &history.Record{
			Version: 1, Week: history.WeekOf(began).String(),
			Groups: map[string]history.Offering{"h100": {Provider: "aws", Zone: "a", CapacityType: "Spot"}},
			Jobs:   []history.Job{finished, job("dropped", history.Cancelled, "its Workload was deleted"), unseen},
			Costs: []history.Cost{
				{Day: day, Namespace: "research", Queue: "gpus", Group: "h100", Purpose: "idle", Milliseconds: 500, MicroUSD: 3, ListMicroUSD: 3},
				{Day: day, Namespace: "research", Queue: "gpus", Workload: "job-train", User: "alice", Group: "h100", Purpose: "used", Milliseconds: 1000,
					MicroUSD: 7, ListMicroUSD: 7},
			},
		}
		if diff := cmp.Diff(want, records[0], cmp.Comparer(func(a, b time.Time) bool { return a.Unix() == b.Unix() })); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// TestHistoryIsWrittenOnceAMinute at most, not at all if nothing has happened, and again what was refused.
func TestHistoryIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spend := func() {
			w.spent[cost.Line{Day: time.Now().UTC().Truncate(24 * time.Hour), Post: cost.Post{Group: "h100"}}] =
				cost.Entry{Milliseconds: 1, MicroUSD: 1}
		}
		w.lives(func() {
			<-time.After(time.Second) // not as it is written
			for range 59 {
				<-time.After(10 * time.Second)
				spend()
			}
			<-time.After(time.Hour)
			if w.writes > 10 {
				t.Errorf("%d writes in the ten minutes in which something happened", w.writes)
			}
			w.refused = errors.New("etcd is full")
			spend()
			<-time.After(5 * time.Minute)
			w.refused = nil
			<-time.After(2 * time.Minute)
		})
		if r := w.recorded(); len(r) != 1 || r[0].Costs[0].MicroUSD != 11 {
			t.Errorf("the records are %+v", r)
		}
	})
}

// TestOldWeeksAreReplaced: the ConfigMap of a slot gets the week that follows five weeks later.
func TestOldWeeksAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lives(func() {
			for i := range 8 {
				<-time.After(7 * 24 * time.Hour)
				w.spent[cost.Line{Day: time.Now().UTC().Truncate(24 * time.Hour), Post: cost.Post{Group: "h100"}}] =
					cost.Entry{Milliseconds: 1, MicroUSD: int64(i)}
				<-time.After(time.Minute)
			}
		})
		var got []int64
		for _, r := range w.recorded() {
			got = append(got, r.Costs[0].MicroUSD)
		}
		if diff := cmp.Diff([]int64{3, 4, 5, 6, 7}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}
