package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/kwok/cloudsim"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	workloads "github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/testbed"
)

// TestEveryWaitingJobIsExplained: two clouds and a pool of spot machines, three queues. Both groups of AWS are out of stock, a spot
// machine is reclaimed from a gang, one job is too large for any machine, one lacks quota that others use, and one queue is stopped. Each
// pending job has the sentence for its cause, with amounts, and simulations of jobs agree with what happens to them.
func TestEveryWaitingJobIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	research := s.own("research")
	batch, stopped := s.own("batch"), s.own("stopped")
	priced := func(usd int64, capacityType v1alpha1.CapacityType, change func(*v1alpha1.NodeGroup)) func(*v1alpha1.NodeGroup) {
		return func(g *v1alpha1.NodeGroup) {
			change(g)
			g.Spec.CapacityType, g.Spec.PricePerHour = capacityType, resource.NewQuantity(usd, resource.DecimalSI)
		}
	}
	awsSpot := s.offering("aws-spot", "fifth", priced(10, v1alpha1.Spot, onAWS("a", "fifth", "p5.48xlarge")))
	aws := s.offering("aws", "fifth", priced(20, v1alpha1.OnDemand, onAWS("b", "fifth", "p5.48xlarge")))
	// Its label is its own: gangs of other tests would have its machines, too.
	gcp := s.offering("gcp", "explained", priced(30, v1alpha1.OnDemand, onGCP("c", "explained", "a3-highgpu-8g")))
	// Two machines are launched. One of them is reclaimed while the other is not ready yet, and no more are available.
	spot := s.Group("-spot", func(g *v1alpha1.NodeGroup) {
		g.Spec.CapacityType = v1alpha1.Spot
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{
			{Type: v1alpha1.FaultReclaim, Machines: []int64{0}, After: testbed.After(12 * time.Second)},
			{Type: v1alpha1.FaultLateDevices, Machines: []int64{1}, After: testbed.After(time.Hour)},
		}
	})
	s.feeds(research, "64", spot, awsSpot, aws)
	s.feeds(batch, "24", gcp)
	s.feeds(stopped, "64", gcp)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: stopped}}
	s.edit(cq, func() { cq.Spec.StopPolicy = new(kueue.Hold) })

	reclaimed := s.queued(research, "reclaimed", 2, on(spot))
	s.Eventually("both spot machines are launched", func() bool {
		names := s.Left(spot.Name)
		return len(slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "node/") })) == 2
	}, func() string { return fmt.Sprint(s.Left(spot.Name)) })
	s.edit(spot, func() {
		spot.Spec.Kwok.Faults = append(spot.Spec.Kwok.Faults, v1alpha1.KwokFault{Type: v1alpha1.FaultDry})
	})
	// On a slow machine the group may have been tried again by then.
	s.explained(reclaimed,
		[]string{"waits for machines", "ended while starting: SpotReclaimed | InsufficientCapacity (Stockout): the pool holds 0 machines",
			"time: the backoff of NodeGroup {site}-spot ends at"})
	holder := s.queued(batch, "holder", 2, lasting("1h"))
	s.runs(holder)
	waiting := map[string]*batchv1.Job{
		"reclaimed": reclaimed,
		"dry":       s.queued(research, "dry", 4, notOn(spot)),
		"huge":      s.queued(research, "huge", 1, tooLarge),
		"short":     s.queued(batch, "short", 2),
		"held":      s.queued(stopped, "held", 1),
	}

	t.Run("each is told its true cause", func(t *testing.T) {
		for _, tc := range []struct {
			job  string
			want []string
		}{
			{"dry", []string{"waits for machines", "group {site}-aws: 0 of 4 machines were made: InsufficientInstanceCapacity", "group {site}-aws-spot: 0 of 4 machines were made: InsufficientInstanceCapacity",
				"launches of fewer than 4 machines need not wait", "time: the backoff of NodeGroup {site}-aws ends at"}},
			{"huge", []string{"cannot start as specified: no NodeGroup can provide its machines", "group {site}-aws: a pod of podSet main requests 16 nvidia.com/gpu, a machine has 8 for pods (8 short)"}},
			{"short", []string{"waits for quota", "flavor {site}-gcp: 8 more nvidia.com/gpu needed, 8 of 24 are free",
				"the workloads listed below release 8 nvidia.com/gpu, or an administrator raises nominalQuota of ClusterQueue {site}-batch by that amount", "/job-holder-", " has 16 nvidia.com/gpu of {site}-gcp"}},
			{"held", []string{"is held: its queue is stopped or inactive", "ClusterQueue {site}-stopped is inactive: Can't admit new workloads: is stopped: its stopPolicy is Hold; set it to None to resume"}},
		} {
			s.explained(waiting[tc.job], tc.want)
		}
	})
	t.Run("what runs is paid for by who runs it", func(t *testing.T) {
		p, err := s.picture()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Costs().Jobs, func(j view.JobCost) bool { return j.Namespace == s.Name && j.Name == "job/holder" })
		if i < 0 {
			t.Fatalf("job holder pays for nothing: %+v", p.Costs().Jobs)
		}
		if got := p.Costs().Jobs[i]; got.Used != 2 || got.USDPerHour != "60.00" || got.SoFar == "0.00" {
			t.Errorf("job holder uses %d machines for %s USD per hour, and has cost %s so far; want 2 for 60.00, and something", got.Used,
				got.USDPerHour, got.SoFar)
		}
		if open := slices.DeleteFunc(s.bill(gcp.Name), func(l cloudsim.Line) bool { return !l.Open }); len(open) != 2 {
			t.Errorf("the cloud bills %d machines, want 2: %+v", len(open), open)
		}
	})
	t.Run("what is simulated happens", func(t *testing.T) {
		s.comesTrue(batch, "small", 1)
		s.comesTrue(batch, "wide", 3)
		s.comesTrue(research, "vast", 2, tooLarge)
		s.comesTrue(stopped, "too", 1)
	})

	for _, j := range slices.Concat(slices.Collect(maps.Values(waiting)), []*batchv1.Job{holder}) {
		s.Delete(j)
	}
	s.paidOff(gcp)
	s.Empty(spot.Name)
}

// own is a name of the site's own.
func (s *site) own(name string) string { return s.Name + "-" + name }

// feeds makes a ClusterQueue and a LocalQueue of the name, with so many GPUs of each
// group. A group that several queues have has one flavor.
func (s *site) feeds(name, gpus string, groups ...*v1alpha1.NodeGroup) {
	s.Helper()
	s.capacityCheck()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	covered := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"}}
	for _, g := range groups {
		if f := (&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}); !s.Get(f) {
			f.Spec.NodeLabels = map[string]string{v1alpha1.NodeGroupLabel: g.Name}
			s.Create(f)
		}
		covered.Flavors = append(covered.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(g.Name),
			Resources: []kueue.ResourceQuota{
				{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse(gpus)},
			}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{covered}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(name)
	s.Create(cq, lq)
}

// newQueued is a Job of that many pods of a whole machine each, wherever that is.
func (s *site) newQueued(queue, name string, count int32, change ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name, Labels: map[string]string{jobs.QueueLabel: queue}}}
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Spec = s.podSpec()
	j.Spec.Template.Spec.NodeSelector = nil
	j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	for _, c := range change {
		c(j)
	}
	return j
}

func (s *site) queued(queue, name string, count int32, change ...func(*batchv1.Job)) *batchv1.Job {
	s.Helper()
	j := s.newQueued(queue, name, count, change...)
	s.Create(j)
	return j
}

func lasting(d string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Template.Annotations = map[string]string{kwokv1alpha1.RunForAnnotation: d}
	}
}

// tooLarge makes each pod request twice the GPUs of a machine.
func tooLarge(j *batchv1.Job) {
	j.Spec.Template.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] = resource.MustParse("16")
}

// on has pods select machines of the group, notOn all others.
func on(g *v1alpha1.NodeGroup) func(*batchv1.Job)    { return selecting(g, corev1.NodeSelectorOpIn) }
func notOn(g *v1alpha1.NodeGroup) func(*batchv1.Job) { return selecting(g, corev1.NodeSelectorOpNotIn) }

func selecting(g *v1alpha1.NodeGroup, operator corev1.NodeSelectorOperator) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: v1alpha1.NodeGroupLabel, Operator: operator, Values: []string{g.Name}},
				}}},
			}}}
	}
}

// picture is what the plugin sees.
func (s *site) picture() (*view.Picture, error) {
	settings, err := view.LoadSettings("")
	if err != nil {
		return nil, err
	}
	return view.Look(s.Context(), clock.RealClock{}, settings, s.Kube, s.Name, view.QueueKinds)
}

// explained waits until the job is explained by these sentences.
func (s *site) explained(j *batchv1.Job, want []string) {
	s.Helper()
	told, missing := "", ""
	s.Eventually("the true cause why job "+j.Name+" waits", func() bool {
		p, err := s.picture()
		if err != nil {
			missing = err.Error()
			return false
		}
		e := p.ExplainJob(j)
		lines := slices.Concat([]string{e.Summary}, e.Causes, e.Unblock)
		for _, h := range e.Holders {
			lines = append(lines, h.Workload+" has "+h.Has)
		}
		told = strings.Join(lines, "\n")
		missing = ""
		for _, sentence := range want {
			sentence = strings.ReplaceAll(sentence, "{site}", s.Name)
			if !slices.ContainsFunc(strings.Split(sentence, " | "), func(part string) bool { return strings.Contains(told, part) }) {
				missing = sentence
			}
		}
		return missing == ""
	}, func() string { return fmt.Sprintf("It lacks %q:\n%s", missing, told) })
	s.Logf("job %s:\n%s", j.Name, told)
}

// comesTrue simulates a job, and creates it then.
func (s *site) comesTrue(queue, name string, count int32, change ...func(*batchv1.Job)) {
	s.Helper()
	tried := s.newQueued(queue, name, count, change...)
	if err := s.tried(tried); err != nil {
		s.Fatal(err)
	}
	w, err := jobs.WorkloadFor(s.Context(), s.Kube, batch.Kind{}, tried, nil)
	if err != nil {
		s.Fatal(err)
	}
	p, err := s.picture()
	if err != nil {
		s.Fatal(err)
	}
	simulated := p.Simulate([]view.Submission{{Kind: "Job", Name: name, Workload: w}}, nil)[0]
	s.Logf("simulated: job %s %s: %v", name, simulated.Summary, simulated.Where)

	j := s.queued(queue, name, count, change...)
	happened := ""
	s.Eventually("job "+name+" does as it was simulated to", func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		happened = becameOf(w)
		return happened == foreseen(&simulated)
	}, func() string { return fmt.Sprintf("simulated: %s; what happened: %s", foreseen(&simulated), happened) })
	s.Delete(j)
}

// becameOf says in short where a Workload stands: which flavors it starts on, or why it
// waits.
func becameOf(w *kueue.Workload) string {
	if workloads.IsAdmitted(w) {
		return fmt.Sprint("starts on ", slices.Sorted(maps.Values(w.Status.Admission.PodSetAssignments[0].Flavors)))
	}
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
		return "waits: " + c.Reason
	}
	return "is not decided on"
}

// foreseen says the same of a simulation.
func foreseen(s *view.Simulation) string {
	if s.Starts {
		return fmt.Sprint("starts on ", slices.Sorted(maps.Values(s.Flavors[0].Flavors)))
	}
	return "waits: " + s.Reason
}
