package multikueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/testbed"
)

// site is a test's own part of the manager and of each worker: a namespace and queues of the same name.
type site struct {
	*testbed.Site
	workers []*testbed.Site
}

// newSite has so many machines in each worker.
func newSite(t *testing.T, machines ...int32) *site {
	t.Helper()
	s := &site{Site: testbed.NewSite(t, manager)}
	s.Within(2*time.Minute, "connections to all workers", func() bool {
		for _, name := range clusterNames() {
			c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if !s.Get(c) || !meta.IsStatusConditionTrue(c.Status.Conditions, kueue.MultiKueueClusterActive) ||
				dispatcher != nil && !strings.Contains(dispatcher.Metrics(), `muster_dispatch_foreseen{cluster="`+name+`"} 1`) {
				return false
			}
		}
		return true
	}, func() string { return "" })
	// The workers come first: a job would leave out one whose queue the manager has not seen yet.
	for i, w := range workers {
		in := testbed.NewSite(t, w)
		s.workers = append(s.workers, in)
		in.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Holds = &machines[i] })
		if *bare {
			queues(in)
			continue
		}
		capacity := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		capacity.Spec.ControllerName = "muster.dev/capacity"
		if *inWorkers == byKueue {
			capacity.Spec.ControllerName = kueue.ProvisioningRequestControllerName
			capacity.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
				Kind: "ProvisioningRequestConfig", Name: s.Name}
			requests := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
			requests.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
			requests.Spec.ManagedResources = []corev1.ResourceName{testbed.GPU}
			in.Create(requests)
		}
		in.Create(capacity)
		queues(in, s.Name)
	}
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	config.Spec.Clusters = clusterNames()
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	check.Spec.ControllerName = kueue.MultiKueueControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "MultiKueueConfig", Name: s.Name}
	s.Create(config, check)
	queues(s.Site, s.Name)
	for _, in := range s.workers {
		in.Eventually("its queue is active", func() bool {
			lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
			return in.Get(lq) && meta.IsStatusConditionTrue(lq.Status.Conditions, kueue.LocalQueueActive)
		}, func() string { return "" })
	}
	s.Eventually("new jobs of the queue are given to other clusters", func() bool {
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
		return s.Get(lq) && meta.IsStatusConditionTrue(lq.Status.Conditions, kueue.LocalQueueActive) &&
			(managedBy == byKueue || meta.IsStatusConditionTrue(lq.Status.Conditions, workload.ConditionDelegated))
	}, func() string { return "" })
	return s
}

// queues creates a queue with the checks, and quota for many machines.
func queues(s *testbed.Site, checks ...string) {
	s.Helper()
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels = map[string]string{testbed.SiteLabel: s.Name}
	flavor.Spec.Tolerations = []corev1.Toleration{{Key: testbed.GPUTaint.Key, Operator: corev1.TolerationOpExists}}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	for _, check := range checks {
		rule := kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check)}
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{rule}}
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", testbed.GPU},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1k")}, {Name: testbed.GPU, NominalQuota: resource.MustParse("1k")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, cq, lq)
}

// job is a Job of so many whole machines that runs elsewhere: its queue has it say so.
func (s *site) job(name string, count int32, changes ...func(*batchv1.Job)) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name,
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}}
	j.Spec.Suspend = new(true)
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "3s"}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "main", Resources: testbed.WholeMachine()}},
	}
	for _, change := range changes {
		change(j)
	}
	s.Create(j)
	return j
}

// complete waits until the job has, and returns the cluster that it ran in.
func (s *site) complete(j *batchv1.Job) string {
	s.Helper()
	cluster := ""
	s.Eventually("completion of job "+j.Name, func() bool {
		if w := s.Workload(j); w != nil && w.Status.ClusterName != nil {
			cluster = *w.Status.ClusterName
		}
		return s.IsComplete(j)
	}, func() string { return s.standing(j) })
	return cluster
}

func (s *site) standing(j *batchv1.Job) string {
	out := ""
	if w := s.Workload(j); w != nil {
		out = fmt.Sprintf("\nworkload: %+v\nrecord: %s", w.Status, w.Annotations[dispatch.Annotation])
	}
	for i, w := range s.workers {
		var copies kueue.WorkloadList
		w.List(&copies, client.InNamespace(s.Name))
		for _, c := range copies.Items {
			out += fmt.Sprintf("\nin %s: %s of %d pods %v %+v", sandbox.Worker(i+1), c.Name, c.Spec.PodSets[0].Count, c.Annotations, c.Status)
		}
		var jobs batchv1.JobList
		w.List(&jobs, client.InNamespace(s.Name))
		for _, c := range jobs.Items {
			out += fmt.Sprintf("\njob in %s: %s of %d pods, %d at once, %v suspended %v %+v", sandbox.Worker(i+1), c.Name, *c.Spec.Completions,
				*c.Spec.Parallelism, c.Labels, *c.Spec.Suspend, c.Status)
		}
	}
	return out
}

// wantLaunched is about all machines that there ever were.
func (s *site) wantLaunched(want ...int) {
	s.Helper()
	if got := spending.launched(s.Name); !slices.Equal(got, want) {
		s.Errorf("the workers launched %d machines, want %d%s", got, want, s.statuses())
	}
}

// statuses returns the statuses of the workers' objects of the site, with their times.
func (s *site) statuses() (out string) {
	for i, w := range s.workers {
		var list eventsv1.EventList
		w.List(&list)
		for _, e := range list.Items {
			if e.Namespace == s.Name || e.Regarding.Name == s.Name {
				out += fmt.Sprintf("\n%s %s %s %s %s: %s", e.EventTime.Format(time.TimeOnly), sandbox.Worker(i+1), e.Regarding.Kind, e.Regarding.Name,
					e.Reason, e.Note)
			}
		}
	}
	return out
}

// wantEvent is about the manager's Workloads.
func (s *site) wantEvent(reason, part string) {
	s.Helper()
	var list eventsv1.EventList
	s.Eventually("an event "+reason+": "+part, func() bool {
		s.List(&list, client.InNamespace(s.Name))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == reason && strings.Contains(e.Note, part) })
	}, func() (out string) {
		for _, e := range list.Items {
			out += e.Reason + ": " + e.Note + "\n"
		}
		return out
	})
}

func TestTheFirstClusterIsNominatedAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, 8, 8)
	if got := s.complete(s.job("train", 2)); got != "worker-1" {
		t.Errorf("it ran in %q", got)
	}
	s.wantLaunched(2, 0)
}

// TestTheNextClusterIsNominatedAfterAStockout, within seconds, and nothing is left in the first.
func TestTheNextClusterIsNominatedAfterAStockout(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0, 8)
	began := time.Now()
	if got := s.complete(s.job("train", 2)); got != "worker-2" {
		t.Errorf("it ran in %q", got)
	}
	t.Logf("it was complete after %s", time.Since(began).Round(time.Millisecond))
	s.wantLaunched(0, 2)
	var copies kueue.WorkloadList
	s.workers[0].List(&copies, client.InNamespace(s.Name))
	if len(copies.Items) > 0 {
		t.Errorf("the first cluster still has %s", copies.Items[0].Name)
	}
}

// TestTheBestClusterForAJobIsNominatedFirst, whatever the order: the cheaper one of two that would launch, and one that would start
// the job rather than one without quota.
func TestTheBestClusterForAJobIsNominatedFirst(t *testing.T) {
	if *dispatcherName != dispatch.Name {
		t.Skip("Kueue's own dispatchers ask by the order")
	}
	for name, c := range map[string]struct {
		change func(*site)
		want   string
	}{
		"price": {func(s *site) {
			g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
			s.workers[0].Get(g)
			patch := client.MergeFrom(g.DeepCopy())
			g.Spec.PricePerHour = new(resource.MustParse("120"))
			if err := s.workers[0].Kube.Patch(t.Context(), g, patch); err != nil {
				t.Fatal(err)
			}
		}, "would launch machines for it, at "},
		"quota": {func(s *site) {
			cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
			s.workers[0].Get(cq)
			patch := client.MergeFrom(cq.DeepCopy())
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[1].NominalQuota = resource.MustParse("8")
			if err := s.workers[0].Kube.Patch(t.Context(), cq, patch); err != nil {
				t.Fatal(err)
			}
		}, "would launch machines for it, at "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 8, 8)
			c.change(s)
			// A snapshot is used for as long as twenty would take to build, and other tests use it, too: a job of another site takes
			// longer.
			t.Run("before", func(t *testing.T) {
				other := newSite(t, 1, 1)
				other.complete(other.job("train", 1))
			})
			if got := s.complete(s.job("train", 2)); got != "worker-2" {
				t.Errorf("it ran in %q", got)
			}
			s.wantLaunched(0, 2)
			s.wantEvent("ClusterNominated", "cluster worker-2 "+c.want)
		})
	}
}

func TestAClusterThatLacksTheQueueIsPassedOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, 8, 8)
	s.workers[0].Delete(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}})
	if got := s.complete(s.job("train", 1)); got != "worker-2" { // after a try in the first, where the dispatcher has not heard of it yet
		t.Errorf("it ran in %q", got)
	}
	s.wantLaunched(0, 1)
}

// TestAClusterThatLacksAFlavorIsPassedOver without a try, and is nominated once it has it.
func TestAClusterThatLacksAFlavorIsPassedOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, 8, 8)
	flavor := func(name string, active bool) {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
		change := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/name","value":%q}]`, name)
		if err := s.workers[0].Kube.Patch(t.Context(), cq, client.RawPatch(types.JSONPatchType, change)); err != nil {
			t.Fatal(err)
		}
		s.workers[0].Eventually("its queue says so", func() bool {
			return s.workers[0].Get(lq) && meta.IsStatusConditionTrue(lq.Status.Conditions, kueue.LocalQueueActive) == active
		}, func() string { return "" })
	}
	flavor(s.Name+"-missing", false)
	if got := s.complete(s.job("train", 1)); got != "worker-2" {
		t.Errorf("it ran in %q", got)
	}
	s.wantLaunched(0, 1)
	s.Eventually("its machines are gone", func() bool { return spending.idle(s.Name) }, func() string { return "" })
	s.workers[1].Delete(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}})
	j := s.job("later", 1)
	s.Eventually("a record with what is missing", func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		r, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
		return err == nil && strings.Contains(r.Waits, "worker-1 lacks an active LocalQueue") && strings.Contains(r.Waits, s.Name+"-missing")
	}, func() string { return s.standing(j) })
	flavor(s.Name, true)
	if got := s.complete(j); got != "worker-1" {
		t.Errorf("once the first has the flavor, it ran in %q", got)
	}
}

// TestAJobStaysInAClusterThatIsCutOff: Kueue gives its worker up, and evicts the job. The job may still run there, so no other cluster is
// nominated. When the worker is back the job ends, and machines were in one cluster only.
func TestAJobStaysInAClusterThatIsCutOff(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(map[bool]string{false: "cut", true: "deaf"}[deaf], func(t *testing.T) {
			if deaf && testing.Short() && managedBy == byKueue {
				t.Skip("Kueue takes a minute to connect again to a worker whose answers were lost")
			}
			s := newSite(t, 8, 8)
			j := s.job("train", 2, func(j *batchv1.Job) { j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "20s" })
			s.Eventually("start in the first cluster", func() bool {
				w := s.Workload(j)
				return w != nil && w.Status.ClusterName != nil
			}, func() string { return s.standing(j) })
			wires[0].set(!deaf, deaf)
			defer wires[0].set(false, false)
			s.Eventually("the job waits: Kueue has given it up, Muster does not", func() bool {
				w := s.Workload(j)
				r, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
				return err == nil && strings.Contains(r.Waits, "worker-1 cannot be reached")
			}, func() string { return s.standing(j) })
			if w := s.Workload(j); slices.Contains(w.Status.NominatedClusterNames, "worker-2") {
				t.Errorf("clusters %q are nominated", w.Status.NominatedClusterNames)
			}
			wires[0].set(false, false)
			s.complete(j)
			if got := spending.launched(s.Name); got[1] != 0 {
				t.Errorf("the workers launched %d machines", got)
			}
		})
	}
}

// TestAJobThatNoClusterCanRunSaysWhy, and runs in one that has what was missing by then.
func TestAJobThatNoClusterCanRunSaysWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t, 8, 8)
	for _, w := range s.workers {
		w.Delete(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}})
	}
	j := s.job("train", 1)
	want := "worker-1 lacks LocalQueue"
	s.Eventually("a record that says "+want, func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		r, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
		return err == nil && r.Waits != "" && len(r.In) == 0
	}, func() string { return s.standing(j) })
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.workers[1].Create(lq)
	if got := s.complete(j); got != "worker-2" {
		t.Errorf("once the second cluster has the queue, it ran in %q", got)
	}
}
