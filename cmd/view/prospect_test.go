package view

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

const gpu = "nvidia.com/gpu"

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// gang is a job of so many whole machines.
type gang struct {
	machines int
	// limit is how long it may run at most, ends when it really does, from noon on.
	limit, ends time.Duration
}

// place is a cluster: what it shows, and what is true of it.
type place struct {
	idle             int
	running, waiting []gang
	// room is how many machines may be launched, at that price; quota is for that many machines.
	room, price, quota int
	// dry: the cloud has none; told: it has said so lately.
	dry, told bool
	boot      time.Duration
}

func newPlace(r *rand.Rand) *place {
	p := &place{price: 10 + r.IntN(5)*10, boot: 3*time.Minute + time.Duration(r.Int64N(int64(2*time.Minute)))}
	length := func() gang {
		limit := time.Duration(1+r.IntN(120)) * time.Minute
		return gang{machines: 1 + r.IntN(6), limit: limit, ends: time.Duration(float64(limit) * (0.7 + 0.3*r.Float64()))}
	}
	for range r.IntN(5) {
		p.running = append(p.running, length())
	}
	if r.IntN(2) == 0 {
		p.idle = r.IntN(8)
	}
	if r.IntN(2) == 0 {
		p.room = r.IntN(12)
	}
	p.quota = p.machines() + p.room
	if r.IntN(5) == 0 {
		p.quota = p.machines()
	}
	for range r.IntN(4) {
		p.waiting = append(p.waiting, length())
	}
	if r.IntN(4) == 0 {
		p.dry, p.told = true, r.IntN(4) > 0
	}
	return p
}

// machines that are there.
func (p *place) machines() int {
	n := p.idle
	for _, g := range p.running {
		n += g.machines
	}
	return n
}

// begins is when a gang that comes last of all really begins, and what its machines cost: first come, first served, and a smaller one
// goes ahead of one that cannot begin. It knows nothing of how Muster decides.
func (p *place) begins(last gang) (at time.Duration, cost int) {
	type run struct {
		gang
		ends time.Duration
	}
	var running []run
	used := 0
	for _, g := range p.running {
		running = append(running, run{g, g.ends})
		used += g.machines
	}
	there, room, now := p.machines(), p.room, time.Duration(0)
	if p.dry {
		room = 0
	}
	waiting := append(slices.Clone(p.waiting), last)
	for {
		for i := 0; i < len(waiting); i++ {
			g := waiting[i]
			short := max(0, used+g.machines-there)
			if used+g.machines > p.quota || short > room {
				continue
			}
			begins := now
			if short > 0 {
				begins += p.boot
			}
			if g == last {
				return begins, short * p.price
			}
			used, there, room = used+g.machines, there+short, room-short
			running = append(running, run{g, begins + g.ends})
			waiting = slices.Delete(waiting, i, i+1)
			i--
		}
		if len(running) == 0 {
			return never, 0
		}
		next := slices.MinFunc(running, func(a, b run) int { return int(a.ends - b.ends) })
		now = next.ends
		used -= next.machines
		running = slices.DeleteFunc(running, func(r run) bool { return r == next })
	}
}

const never = 1000 * time.Hour

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Generation: 1}
}

func workloadOf(name string, g gang) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: meta(name)}
	w.Spec.QueueName, w.Spec.MaximumExecutionTimeSeconds = "main", new(int32(g.limit.Seconds()))
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: int32(g.machines)}}
	w.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: resource.MustParse("8")},
	}}}
	return w
}

// objects are what a manager reads of the place.
func (p *place) objects() (out []client.Object) {
	const pool = "h100"
	flavor := &kueue.ResourceFlavor{ObjectMeta: meta(pool)}
	flavor.Spec.NodeLabels = map[string]string{"pool": pool}
	check := &kueue.AdmissionCheck{ObjectMeta: meta("capacity")}
	check.Spec.ControllerName = cache.CapacityController
	cq := &kueue.ClusterQueue{ObjectMeta: meta("team")}
	cq.Spec.NamespaceSelector, cq.Spec.QueueingStrategy = &metav1.LabelSelector{}, kueue.BestEffortFIFO
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpu}, Flavors: []kueue.FlavorQuotas{{
		Name: pool, Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: *resource.NewQuantity(int64(8*p.quota), resource.DecimalSI)}},
	}}}}
	lq := &kueue.LocalQueue{ObjectMeta: meta("main")}
	lq.Spec.ClusterQueue = "team"
	group := &v1alpha1.NodeGroup{ObjectMeta: meta(pool)}
	group.Spec = v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: int32(p.machines() + p.room), CapacityType: v1alpha1.OnDemand, Zone: "zone-a",
		PricePerHour: resource.NewQuantity(int64(p.price), resource.DecimalSI),
		Template: v1alpha1.NodeTemplate{Labels: map[string]string{"pool": pool}, Capacity: corev1.ResourceList{
			"cpu": resource.MustParse("96"), gpu: resource.MustParse("8"),
		}},
	}
	group.Status.Machines = int32(p.machines())
	if p.told {
		group.Status.Backoffs = []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 1,
			Until: metav1.NewTime(noon.Add(10 * time.Minute))}}
	}
	out = append(out, &corev1.Namespace{ObjectMeta: meta("default")}, flavor, check, cq, lq, group)
	node := func(change func(*corev1.Node)) {
		n := &corev1.Node{ObjectMeta: meta(fmt.Sprintf("node-%d", len(out)))}
		n.Namespace, n.Labels = "", map[string]string{"pool": pool, v1alpha1.NodeGroupLabel: pool, corev1.LabelTopologyZone: group.Spec.Zone}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("96"), gpu: resource.MustParse("8"),
			"pods": resource.MustParse("110")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		change(n)
		out = append(out, n)
	}
	for range p.idle {
		node(func(*corev1.Node) {})
	}
	for i, g := range p.running {
		out = append(out, runs(fmt.Sprintf("running-%d", i), pool, g)...)
		for range g.machines {
			node(func(n *corev1.Node) {
				name := fmt.Sprintf("running-%d-capacity-1", i)
				booking := state.Booking{
					UID: types.UID(name), Queue: "main", Since: noon,
					Booked: nodegroups.ResourcesFrom(corev1.ResourceList{gpu: resource.MustParse("8"), "pods": resource.MustParse("1")}),
				}
				n.Labels[state.BookingLabel(name)], n.Spec.Unschedulable = "default", true
				n.Annotations = map[string]string{
					state.BookingLabel(name): booking.Encode(), v1alpha1.CordonedAnnotation: v1alpha1.CordonBooked,
				}
			})
		}
	}
	for i, g := range p.waiting {
		w := workloadOf(fmt.Sprintf("waiting-%d", i), g)
		w.CreationTimestamp.Time = w.CreationTimestamp.Add(time.Duration(i) * time.Minute)
		out = append(out, w)
	}
	return out
}

// runs is a gang that was admitted at noon, with the request that has booked its machines.
func runs(name, pool string, g gang) []client.Object {
	w := workloadOf(name, g)
	pods := int32(g.machines)
	w.Status.Admission = &kueue.Admission{ClusterQueue: "team", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: kueue.ResourceFlavorReference(pool)},
		ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(int64(8*g.machines), resource.DecimalSI)},
	}}}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStateReady}}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadPodsReady} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind,
			LastTransitionTime: metav1.NewTime(noon)})
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: meta(name + "-capacity-1")}
	r.Labels = map[string]string{workload.ManagedLabel: "true"}
	r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w, kueue.SchemeGroupVersion.WithKind("Workload"))}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: name}, Count: pods}}
	for _, kind := range []string{provreq.Accepted, provreq.Provisioned} {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind,
			LastTransitionTime: metav1.NewTime(noon)})
	}
	t := &corev1.PodTemplate{ObjectMeta: meta(name), Template: w.Spec.PodSets[0].Template}
	t.UID += "-template"
	return []client.Object{w, r, t}
}

// TestTheRightClusterIsAskedFirst in at least nine of ten random worlds, against hindsight: in no other would the job have begun sooner
// by more than the time in which boots differ, nor as soon and cheaper. Hindsight knows when jobs end and which cloud is dry.
func TestTheRightClusterIsAskedFirst(t *testing.T) {
	worlds := 1000
	if testing.Short() {
		worlds = 200
	}
	right, first, decided := 0, 0, 0
	for seed := range worlds {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		job := gang{machines: 1 + r.IntN(6), limit: time.Hour, ends: time.Hour - 1}
		var places []*place
		var clusters []dispatch.Cluster
		for i := range 2 + r.IntN(4) {
			p := newPlace(r)
			picture := New(clocktesting.NewFakePassiveClock(noon), DefaultSettings(), &Reading{Objects: p.objects()})
			w := workloadOf("job", job)
			w.CreationTimestamp = metav1.Time{}
			places = append(places, p)
			clusters = append(clusters, dispatch.Cluster{Name: fmt.Sprint(i), Connected: true, Prospect: picture.Prospects()(nil, w)})
		}
		good := func(i int) bool {
			at, cost := places[i].begins(job)
			for _, p := range places {
				if other, cheaper := p.begins(job); other < at-2*time.Minute || other <= at && cheaper < cost {
					return false
				}
			}
			return true
		}
		step := dispatch.Next(&dispatch.Job{Open: true}, clusters, noon)
		chosen := slices.IndexFunc(clusters, func(c dispatch.Cluster) bool { return c.Name == step.Cluster })
		all := 0
		for i := range places {
			if good(i) {
				all++
			}
		}
		if all < len(places) {
			decided++
		}
		if good(0) {
			first++
		}
		if good(chosen) {
			right++
		} else {
			for i, p := range places {
				at, cost := p.begins(job)
				t.Logf("seed %d, %d machines: cluster %d: %s; truly after %s for %d USD/h; %+v", seed, job.machines, i,
					clusters[i].Prospect, at, cost, *p)
			}
			t.Logf("seed %d: %s was asked", seed, step.Cluster)
		}
	}
	t.Logf("in %d of %d worlds the right cluster was asked first; by their order it would have been in %d; %d worlds have a wrong one", right,
		worlds, first, decided)
	if right < worlds*9/10 {
		t.Errorf("the right cluster was asked first in %d of %d worlds", right, worlds)
	}
}

// TestProspectsAfterJobsThatWereGiven to the cluster a moment ago: some of them have ended in it since, or were made again under their
// name, and count no more, or once.
func TestProspectsAfterJobsThatWereGiven(t *testing.T) {
	p := &place{idle: 2, running: []gang{{machines: 2, limit: time.Hour}}, quota: 4}
	job := func(name string, machines int) *kueue.Workload { return workloadOf(name, gang{machines: machines}) }
	jobs := func(all ...*kueue.Workload) []*kueue.Workload { return all }
	ended := job("ended", 2)
	ended.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue,
		Reason: kueue.WorkloadFinishedReasonSucceeded, LastTransitionTime: metav1.NewTime(noon)}}
	first, again := job("again", 1), job("again", 1)
	again.UID = "another"
	for name, c := range map[string]struct {
		given []*kueue.Workload
		job   *kueue.Workload
		want  dispatch.Outlook
	}{
		"none":                          {job: job("job", 2), want: dispatch.Fits},
		"one that has ended":            {given: jobs(job("ended", 2)), job: job("job", 2), want: dispatch.Fits},
		"one that has ended, no room":   {given: jobs(job("ended", 2)), job: job("job", 3), want: dispatch.Waits},
		"one that waits":                {given: jobs(first), job: job("job", 2), want: dispatch.Soon},
		"the same, made again":          {given: jobs(first, again), job: job("job", 1), want: dispatch.Fits},
		"the same, made again, no room": {given: jobs(first, again), job: job("job", 2), want: dispatch.Soon},
		"itself, made again":            {given: jobs(again), job: job("again", 2), want: dispatch.Fits},
		"itself ended":                  {job: job("ended", 2), want: dispatch.Waits},
	} {
		t.Run(name, func(t *testing.T) {
			picture := New(clocktesting.NewFakePassiveClock(noon), DefaultSettings(), &Reading{Objects: append(p.objects(), ended)})
			if got := picture.Prospects()(c.given, c.job); got.Outlook != c.want {
				t.Errorf("%+v, want %v", got, c.want)
			}
		})
	}
}

// BenchmarkProspect is what a manager does for a job in one worker: the picture, which serves for some jobs, and the prospect.
func BenchmarkProspect(b *testing.B) {
	for _, size := range []struct{ machines, waiting int }{{100, 50}, {1000, 1000}, {5000, 10_000}} {
		p := &place{room: 100, price: 10}
		for range size.machines / 10 {
			p.running = append(p.running, gang{machines: 10, limit: time.Hour})
		}
		for range size.waiting {
			p.waiting = append(p.waiting, gang{machines: 200, limit: time.Hour})
		}
		p.quota = p.machines() + p.room
		reading := &Reading{Objects: p.objects()}
		clock := clocktesting.NewFakePassiveClock(noon)
		name := fmt.Sprintf("nodes=%d/waiting=%d/", size.machines, size.waiting)
		b.Run(name+"picture", func(b *testing.B) {
			for b.Loop() {
				New(clock, DefaultSettings(), reading).Prospects()
			}
		})
		prospect, job := New(clock, DefaultSettings(), reading).Prospects(), workloadOf("job", gang{machines: 10, limit: time.Hour})
		b.Run(name+"prospect", func(b *testing.B) {
			for b.Loop() {
				prospect(nil, job)
			}
		})
	}
}
