package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/testbed"
)

const (
	// Each time that muster is killed, so many more Workloads have come, that borrow, are
	// preempted and end.
	workloadsEach = 36
	jobsEach      = 6
	// writers is how many Workloads are created at once.
	writers = 8
)

// mix is what comes, by the weight of its kind.
var mix = []struct {
	weight   int
	class    string
	priority int32
	cpu      int32
	runs     time.Duration
}{
	{6, "low", 50, 1, 400 * time.Millisecond},
	{3, "middle", 100, 4, 700 * time.Millisecond},
	// These request more than the nominal quota of a queue, so that it has to borrow.
	{1, "high", 200, 10, time.Second},
}

// killedAdmitting: nine queues in three trees of cohorts, whose members borrow from each other and reclaim what they have lent.
func killedAdmitting(s *site) {
	random := rand.New(rand.NewPCG(seed, seed))
	queues := s.trees()
	before, known := s.Watcher.Stats().Judged, len(s.Watcher.Violations())
	r := &runner{site: s, runs: map[string]time.Duration{}, began: map[types.UID]time.Time{}}
	for _, m := range mix {
		r.runs[m.class] = m.runs
	}
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.follow(ctx)
	}()
	s.Cleanup(func() {
		cancel()
		<-done
	})
	var jobs []*batchv1.Job
	restarts := s.restarts(cluster.Muster)
	for i := range *kills {
		jobs = append(jobs, s.submit(random, queues, i)...)
		after := time.Duration(random.Int64N(int64(2500 * time.Millisecond)))
		s.kill(after)
		s.Logf("killed muster %s after the last Workload came", after)
		if len(s.unfinished()) == 0 {
			s.Errorf("kill %d came when all was over", i)
		}
		s.Eventually("muster is killed", func() bool { return s.restarts(cluster.Muster) > restarts+i }, func() string { return "it lives" })
		s.back()
	}
	s.Within(3*testbed.Patience, "all Workloads are finished", func() bool { return len(s.unfinished()) == 0 },
		func() string { return "left: " + strings.Join(s.unfinished(), ", ") })
	for _, j := range jobs {
		s.complete(j)
	}
	s.nothingHeld(queues)
	// The watcher reports its observations a moment later.
	for _, check := range []promises.Check{promises.Borrowings, promises.Preemptions} {
		s.Eventually(fmt.Sprintf("%s are seen", check), func() bool { return s.Watcher.Stats().Judged[check] > before[check] },
			func() string { return s.Watcher.Stats().String() })
	}
	after := s.Watcher.Stats().Judged
	s.Logf("%d reservations, %d of them borrowed; %d evictions, %d of them preemptions",
		after[promises.Reservations]-before[promises.Reservations],
		after[promises.Borrowings]-before[promises.Borrowings], after[promises.Evictions]-before[promises.Evictions],
		after[promises.Preemptions]-before[promises.Preemptions])
	for _, v := range s.Watcher.Violations()[known:] {
		s.Errorf("broken promise: %s", v)
	}
}

// trees creates the queues, each with a LocalQueue of its name: three in a cohort without an object, three in cohorts of two levels with
// limits on each, and three in a cohort with its own quota, one of which does not lend.
func (s *site) trees() (queues []string) {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Labels: map[string]string{testbed.SiteLabel: s.Name}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("500"), "memory": resource.MustParse("1Ti"),
		"pods": resource.MustParse("1000")}
	node.Status.Allocatable = node.Status.Capacity
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels = map[string]string{testbed.SiteLabel: s.Name}
	s.Create(node, flavor)
	s.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), node) })
	for _, m := range mix {
		s.Create(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + m.class}, Value: m.priority})
	}
	cohort := func(name, parent, nominal string, borrowing, lending *resource.Quantity) string {
		c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: s.Name + name}}
		if parent != "" {
			c.Spec.ParentName = kueue.CohortReference(parent)
		}
		c.Spec.ResourceGroups = s.cpus(nominal, borrowing, lending)
		s.Create(c)
		return c.Name
	}
	amount := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	top := cohort("-top", "", "2", nil, nil)
	left := cohort("-left", top, "1", amount("8"), amount("4"))
	right := cohort("-right", top, "1", nil, nil)
	shared := cohort("-shared", "", "6", nil, nil)
	for i, q := range []struct {
		cohort             string
		borrowing, lending *resource.Quantity
	}{
		{s.Name + "-flat", amount("16"), nil}, {s.Name + "-flat", amount("16"), nil}, {s.Name + "-flat", amount("4"), nil},
		{left, nil, nil}, {left, amount("8"), amount("4")}, {right, nil, amount("6")},
		{shared, nil, nil}, {shared, amount("10"), nil}, {shared, nil, amount("0")},
	} {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.Name, i)}}
		cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
		cq.Spec.CohortName = kueue.CohortReference(q.cohort)
		cq.Spec.ResourceGroups = s.cpus("8", q.borrowing, q.lending)
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
			ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority,
		}
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: cq.Name}}
		lq.Spec.ClusterQueue = kueue.ClusterQueueReference(cq.Name)
		s.Create(cq, lq)
		queues = append(queues, cq.Name)
	}
	return queues
}

func (s *site) cpus(nominal string, borrowing, lending *resource.Quantity) []kueue.ResourceGroup {
	return []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
		Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{{
			Name: "cpu", NominalQuota: resource.MustParse(nominal), BorrowingLimit: borrowing, LendingLimit: lending,
		}},
	}}}}
}

// submit creates what comes before a kill: Workloads that the runner runs, and Jobs.
// Most of it comes to the first queue of each tree, which has to borrow for it.
func (s *site) submit(random *rand.Rand, queues []string, round int) (jobs []*batchv1.Job) {
	s.Helper()
	var all []client.Object
	for i := range workloadsEach + jobsEach {
		at := random.IntN(10)
		kind := 0
		for at -= mix[kind].weight; at >= 0; at -= mix[kind].weight {
			kind++
		}
		m := mix[kind]
		queue := queues[3*random.IntN(3)+max(0, random.IntN(5)-2)]
		if i >= workloadsEach {
			j := s.newPlainJob(fmt.Sprintf("job-%d-%d", round, i), m.cpu, m.runs.String())
			j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": s.Name + "-" + m.class}
			jobs, all = append(jobs, j), append(all, j)
			continue
		}
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("%s-%d-%d", m.class, round, i)}}
		w.Spec.QueueName, w.Spec.Priority = kueue.LocalQueueName(queue), &m.priority
		one := s.newPlainJob("", 1, "")
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: m.cpu, Template: one.Spec.Template}}
		all = append(all, w)
	}
	var g errgroup.Group
	g.SetLimit(writers)
	for _, o := range all {
		g.Go(func() error { return s.Kube.Create(s.Context(), o) })
	}
	if err := g.Wait(); err != nil {
		s.Fatal(err)
	}
	return jobs
}

// unfinished are the Workloads that are not finished, and the Jobs that have none
// yet.
func (s *site) unfinished() (names []string) {
	var list kueue.WorkloadList
	var jobs batchv1.JobList
	if s.Kube.List(s.Context(), &list, client.InNamespace(s.Name)) != nil ||
		s.Kube.List(s.Context(), &jobs, client.InNamespace(s.Name)) != nil {
		return []string{"(the API server does not answer)"}
	}
	known := map[types.UID]bool{}
	for i := range list.Items {
		w := &list.Items[i]
		if owner := metav1.GetControllerOf(w); owner != nil {
			known[owner.UID] = true
		}
		if !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			names = append(names, w.Name+" in "+string(w.Spec.QueueName))
		}
	}
	for i := range jobs.Items {
		if j := &jobs.Items[i]; !known[j.UID] {
			names = append(names, j.Name)
		}
	}
	return names
}

// nothingHeld waits until the queues say that nothing is used, and no pod is left
// that is not over.
func (s *site) nothingHeld(queues []string) {
	s.Helper()
	for _, name := range queues {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Eventually("ClusterQueue "+name+" is empty", func() bool {
			return s.Get(cq) && cq.Status.PendingWorkloads == 0 && cq.Status.ReservingWorkloads == 0 && cq.Status.AdmittedWorkloads == 0 &&
				!slices.ContainsFunc(cq.Status.FlavorsReservation, func(f kueue.FlavorUsage) bool {
					return slices.ContainsFunc(f.Resources, func(r kueue.ResourceUsage) bool { return !r.Total.IsZero() || !r.Borrowed.IsZero() })
				})
		}, func() string { return fmt.Sprintf("%+v", cq.Status) })
	}
	var pods corev1.PodList
	if err := s.Kube.List(s.Context(), &pods, client.InNamespace(s.Name)); err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			s.Errorf("pod %s is left over: %s", p.Name, p.Status.Phase)
		}
	}
}

// runner plays the owner of Workloads without one. It finishes each that has been
// admitted for its time without a break.
type runner struct {
	*site
	// runs is the time of a class.
	runs map[string]time.Duration
	// began is since when a Workload is admitted.
	began map[types.UID]time.Time
}

// follow reads all Workloads repeatedly until ctx is done.
func (r *runner) follow(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var list kueue.WorkloadList
		if err := r.Kube.List(ctx, &list, client.InNamespace(r.Name)); err != nil {
			continue
		}
		for i := range list.Items {
			r.step(ctx, &list.Items[i])
		}
	}
}

func (r *runner) step(ctx context.Context, w *kueue.Workload) {
	is := func(condition string) bool { return meta.IsStatusConditionTrue(w.Status.Conditions, condition) }
	switch began, runs := r.began[w.UID]; {
	case metav1.GetControllerOf(w) != nil || is(kueue.WorkloadFinished):
	case !is(kueue.WorkloadAdmitted) || is(kueue.WorkloadEvicted):
		delete(r.began, w.UID)
	case !runs:
		r.began[w.UID] = time.Now()
	case time.Since(began) >= r.runs[strings.Split(w.Name, "-")[0]]:
		patch := client.MergeFromWithOptions(w.DeepCopy(), client.MergeFromWithOptimisticLock{})
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded, Message: "Its time is over",
		})
		// A Workload that was evicted meanwhile is read again.
		if err := r.Kube.Status().Patch(ctx, w, patch); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			r.Errorf("finishing Workload %s: %v", w.Name, err)
		}
	}
}
