package e2e

import (
	"bufio"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/testbed"
)

// stormLength is how long things go wrong; an hour of it is a soak.
var stormLength = flag.Duration("storm", time.Minute, "how long things go wrong, lulls left out")

const (
	// aftermath is how long everything may take to be done once nothing goes wrong any
	// more: retries pause for up to half a minute, stockouts for longer.
	aftermath = 5 * time.Minute
	// unrest is how long after a fault no controller can be expected to work again: a client
	// that has lost its watches repeatedly retries after up to half a minute.
	unrest = 45 * time.Second
	// Faults occur for a spell at a time. In the lull after it the load is the same, and all bounds hold again, the longest of which is a
	// minute. Within a spell, bounds are extended by no more than 5 minutes in all, see alone.
	spell, lull = 8 * time.Minute, 2 * time.Minute
	// crowd is how many jobs and requests there are at once. While nothing can be done, no more are created.
	crowd = 12
)

//go:embed testdata/storm.yaml
var stormPlan []byte

//go:embed testdata/deaths.yaml
var deathsPlan []byte

// storm is a load of gangs, and the programs that serve it.
type storm struct {
	*site
	random *rand.Rand
	// spot and steady are where machines come from; node is there anyway.
	spot, steady *v1alpha1.NodeGroup
	node         *corev1.Node
	// came counts all that were created. open are those that are not over. done counts the others by their outcome.
	came int
	open map[string]client.Object
	done map[string]int
	// faults are all errors. They are reported at the end, so that the failure comes first.
	mu     sync.Mutex
	faults []string
}

// TestInAStormEveryPromiseIsKept: gangs come and go while components die and freeze,
// and much of what muster says is refused, lost or late. When it is over all are done,
// nothing is left, and muster is about as big as before.
func TestInAStormEveryPromiseIsKept(t *testing.T) {
	t.Parallel()
	gate, config := faults.NewGate(seed), whole()
	config.Proxy = gate.Handler
	s := newStorm(t, alone(t, "storm", config,
		promises.BoundPods, promises.CreatedPods, promises.Provisions, promises.ProvisionsInDomain, promises.Launches,
		promises.ScaledDown, promises.Bookings,
		promises.Consumed, promises.Departures, promises.Reservations, promises.PendingRequests, promises.ReservedWorkloads))
	for range 6 {
		s.spawn()
	}
	s.untilCalm()
	size, objects := s.size(), s.objects()

	ctx, cancel := context.WithCancel(t.Context())
	var injection sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		injection.Wait()
	})
	over := make(chan error, 1)
	bounded := s.Watcher.Stats().Bounded
	spells := (*stormLength + spell - 1) / spell
	injection.Go(func() { over <- s.rage(ctx, gate) })
	s.await("the storm is over", *stormLength+spells*lull+aftermath, func() bool {
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
		}
		if len(s.open) < crowd && s.random.IntN(2) == 0 {
			s.spawn()
		}
		return false
	})
	bounded = s.Watcher.Stats().Bounded - bounded
	t.Logf("the storm is over: of %d, %d are open; %v; requests hit: %v; bounds held for %s", s.came, len(s.open), s.done, gate.Hit(), bounded)
	if least := spells * (lull - unrest) / 2; bounded < least {
		t.Errorf("bounds held for %s of the lulls, want %s at least", bounded, least)
	}
	for _, c := range []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Kwok, cluster.Muster} {
		if err := s.WaitReady(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	s.Watcher.StandStill(time.Now().Add(unrest))
	// A controller of Kubernetes or a kubelet that has missed the event of a pod waits for it for
	// 5 minutes or more. Once it starts again it sees all pods as they are.
	for _, c := range []string{cluster.ControllerManager, cluster.Kwok} {
		if err := s.Kill(c); err != nil {
			t.Fatal(err)
		}
	}
	s.untilCalm()
	s.await(fmt.Sprintf("no more objects than %v", objects), aftermath, func() bool {
		for kind, n := range s.objects() {
			if n > objects[kind] {
				return false
			}
		}
		return true
	})
	s.await(fmt.Sprintf("muster is as big as before, %v", size), aftermath, func() bool { return s.size().fits(size) })
	t.Logf("of %d: %v; muster was %v and is %v", s.came, s.done, size, s.size())
}

func newStorm(t *testing.T, c *testbed.Cluster) *storm {
	t.Helper()
	s := &storm{site: &site{testbed.NewSite(t, c)}, random: rand.New(rand.NewPCG(seed, seed)), open: map[string]client.Object{},
		done: map[string]int{}}
	s.spot = s.Group("-spot", func(g *v1alpha1.NodeGroup) {
		g.Spec.CapacityType, g.Spec.MaxNodes, g.Spec.Kwok.Holds = v1alpha1.Spot, 16, new(int32(5))
		g.Spec.PricePerHour = new(resource.MustParse("30"))
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{
			{Type: v1alpha1.FaultBootDeath, Percent: new(int32(10))},
			{Type: v1alpha1.FaultLateDevices, Percent: new(int32(20)), After: testbed.After(2 * time.Second)},
			{Type: v1alpha1.FaultReclaim, Percent: new(int32(5)), After: testbed.After(5 * time.Second)},
		}
	})
	s.steady = s.Group("-steady", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes = 64
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rackLabel}}
		racks := &v1alpha1.KwokDomains{NodeLabel: rackLabel, Placement: v1alpha1.PlacedOverflow,
			LabelDelay: metav1.Duration{Duration: time.Second}}
		for i := range 16 {
			racks.Of = append(racks.Of, v1alpha1.KwokDomain{Name: fmt.Sprint("rack-", i), Machines: 3 + int32(i%3)})
		}
		g.Spec.Kwok.Domains = racks
	})
	s.queue(s.spot, s.steady)
	s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Labels: map[string]string{testbed.SiteLabel: s.Name + "-own"}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
	s.node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("1Ti"),
		"pods": resource.MustParse("100")}
	s.node.Status.Allocatable = s.node.Status.Capacity
	s.Create(s.node)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Logf("what went wrong:\n%s", strings.Join(s.faults, "\n"))
	})
	return s
}

func (s *storm) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// rage lets things go wrong, one spell after the other; in the first third muster dies,
// too.
func (s *storm) rage(ctx context.Context, gate *faults.Gate) error {
	for raged := time.Duration(0); raged < *stormLength && ctx.Err() == nil; raged += spell {
		if err := s.blow(ctx, gate, raged, min(spell, *stormLength-raged)); err != nil {
			return err
		}
		s.note("a lull, after %s of storm", min(raged+spell, *stormLength))
		select {
		case <-time.After(lull):
		case <-ctx.Done():
		}
	}
	return nil
}

// blow is one spell, after so much of the storm.
func (s *storm) blow(ctx context.Context, gate *faults.Gate, raged, lasts time.Duration) error {
	tell := func(o faults.Occurrence) {
		s.note("after %s of storm: %s", raged+o.Begins, o)
		s.Watcher.StandStill(time.Now().Add(o.For.Duration + unrest))
	}
	var plans errgroup.Group
	for _, part := range []struct {
		plan  []byte
		lasts time.Duration
	}{{stormPlan, lasts}, {deathsPlan, min(lasts, *stormLength/3-raged)}} {
		p := &faults.Plan{}
		if err := yaml.UnmarshalStrict(part.plan, p); err != nil {
			return err
		}
		if err := p.Validate(nil, faults.Reach{Components: cluster.ComponentNames()}).ToAggregate(); err != nil {
			return err
		}
		p.Seed += uint64(raged) // no spell is like the one before
		plans.Go(func() error { return faults.Run(ctx, p, part.lasts, s.Cluster.Cluster, gate, tell) })
	}
	return plans.Wait()
}

// spawn creates a job, a request for new machines, or one for room on the node that is
// there anyway.
func (s *storm) spawn() {
	s.Helper()
	s.came++
	name := fmt.Sprintf("gang-%d", s.came)
	count := 1 + s.random.Int32N(4)
	if s.random.IntN(2) == 0 {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name,
			Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}}
		j.Spec.Parallelism, j.Spec.Completions, j.Spec.Template.Spec = &count, &count, s.podSpec()
		s.insist(j)
		s.open[name] = j
		return
	}
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
	template.Template.Spec = s.podSpec()
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	if s.random.IntN(2) == 0 {
		r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
		template.Template.Spec.NodeSelector[testbed.SiteLabel] = s.node.Labels[testbed.SiteLabel]
		template.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
	} else if s.random.IntN(2) == 0 {
		template.Template.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: rackLabel}
		count = min(count, 3) // which each rack holds
	}
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: name}, Count: count}}
	s.insist(template)
	s.insist(r)
	s.open[name] = r
}

// insist creates the object as soon as the API server lets it.
func (s *storm) insist(o client.Object) {
	s.Helper()
	var err error
	s.Eventually("creation of "+o.GetName(), func() bool {
		err = s.Kube.Create(s.Context(), o)
		return err == nil || apierrors.IsAlreadyExists(err)
	}, func() string { return err.Error() })
}

// tidy deletes what is over.
func (s *storm) tidy() {
	s.Helper()
	for name, o := range s.open {
		if !s.Get(o) {
			continue
		}
		var end string
		switch o := o.(type) {
		case *batchv1.Job:
			for _, c := range o.Status.Conditions {
				if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
					end = "job " + string(c.Type)
				}
			}
		case *provreq.ProvisioningRequest:
			for _, kind := range []string{provreq.BookingExpired, provreq.Failed, provreq.Provisioned} {
				if end == "" && meta.IsStatusConditionTrue(o.Status.Conditions, kind) {
					end = "request " + kind
				}
			}
		}
		if end == "" {
			continue
		}
		template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
		if client.IgnoreNotFound(s.Kube.Delete(s.Context(), template)) != nil ||
			client.IgnoreNotFound(s.Kube.Delete(s.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground))) != nil {
			continue // the API server may be starting again
		}
		s.done[end]++
		delete(s.open, name)
	}
}

// await cleans up until the condition holds.
func (s *storm) await(wish string, most time.Duration, holds func() bool) {
	s.Helper()
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		s.tidy()
		if holds() {
			return
		}
		select {
		case <-deadline.C:
			for _, o := range s.open {
				switch o := o.(type) {
				case *batchv1.Job:
					s.Logf("job %s is open; workload: %+v", o.Name, s.Workload(o))
				case *provreq.ProvisioningRequest:
					s.Logf("request %s is open: %+v", o.Name, o.Status)
				}
			}
			s.Fatalf("not within %s: %s. Left: %v, %v; objects %v, marks %v, muster %v", most, wish,
				s.Left(s.spot.Name), s.Left(s.steady.Name), s.objects(), s.marks(), s.size())
		case <-ticker.C:
		}
	}
}

// untilCalm waits until all that came is done, and its machines are gone.
func (s *storm) untilCalm() {
	s.Helper()
	s.await("all that came is done", aftermath, func() bool { return len(s.open) == 0 })
	s.await("no machine is left", aftermath, func() bool { return len(s.Left(s.spot.Name))+len(s.Left(s.steady.Name)) == 0 })
	s.await("no pod and no Workload is left", aftermath, func() bool {
		objects := s.objects()
		return objects["Pod"]+objects["Workload"] == 0
	})
	s.await("the node that is there anyway bears no mark", aftermath, func() bool { return len(s.marks()) == 0 })
}

// marks are what Muster has left on the node that is there anyway.
func (s *storm) marks() (out []string) {
	if !s.Get(s.node) {
		return []string{"(the API server does not answer)"}
	}
	if s.node.Spec.Unschedulable {
		out = append(out, "a cordon")
	}
	for _, keys := range []map[string]string{s.node.Labels, s.node.Annotations} {
		for key := range keys {
			if strings.Contains(key, "muster.dev/") && key != testbed.SiteLabel || key == v1alpha1.ScaleDownDisabledAnnotation {
				out = append(out, key)
			}
		}
	}
	return out
}

// objects counts those of the kinds that may grow in number with what has been, not
// with what there is. Events, and the records of machines that have ended, are kept for
// an hour.
func (s *storm) objects() map[string]int {
	counts := map[string]int{}
	for _, kind := range []struct{ version, kind string }{
		{"v1", "ConfigMap"}, {"v1", "Secret"}, {"v1", "Node"}, {"v1", "Pod"}, {"v1", "PodTemplate"}, {"batch/v1", "Job"},
		{"coordination.k8s.io/v1", "Lease"}, {"autoscaling.x-k8s.io/v1", "ProvisioningRequest"},
		{"kueue.x-k8s.io/v1beta2", "Workload"},
	} {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: kind.version, Kind: kind.kind + "List"}}
		if err := s.Kube.List(s.Context(), list); err != nil {
			s.Logf("counting %s: %v", kind.kind, err)
			continue
		}
		counts[kind.kind] = len(list.Items)
	}
	return counts
}

// size is how much a muster has taken.
type size struct{ goroutines, mebibytes int64 }

func (z size) String() string { return fmt.Sprintf("%d goroutines, %d MiB", z.goroutines, z.mebibytes) }

// fits reports whether the size is about the same as before. Each watch, and each connection, has a few goroutines. Memory is what Go has
// not returned to the system yet.
func (z size) fits(before size) bool {
	return z.goroutines > 0 && z.goroutines <= before.goroutines+50 && z.mebibytes <= before.mebibytes*3/2+32
}

// size reads the metrics of muster. It is zero while muster does not respond.
func (s *storm) size() (z size) {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.MusterMetrics(), http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return size{}
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			z.goroutines = int64(n)
		case "process_resident_memory_bytes":
			z.mebibytes = int64(n) >> 20
		}
	}
	return z
}
