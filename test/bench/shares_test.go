package bench

import (
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestSharesFollowWeights: three queues that own nothing and always have more to
// run share what their cohort owns by their weights.
func TestSharesFollowWeights(t *testing.T) {
	const (
		cpus = 35
		// settles is when the first Workloads have made room for others.
		settles   = 10 * time.Second
		tolerance = 0.05
	)
	watched := 30 * time.Second
	if testing.Short() {
		watched = 15 * time.Second
	}
	weights := []int{1, 2, 4}
	// Long beside what the API server takes to let the next one in.
	one := &class{name: "one", cpu: "1", runs: 5 * time.Second}
	a := newArena(t, musterWith("  fairSharing: {}\n"))
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	cohort.Spec.ResourceGroups = queue("", fmt.Sprint(cpus)).Spec.ResourceGroups
	a.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}}, cohort)
	var queues []*kueue.ClusterQueue
	for _, w := range weights {
		q := queue(fmt.Sprintf("weight-%d", w), "0")
		q.Spec.CohortName = kueue.CohortReference(cohort.Name)
		q.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse(fmt.Sprint(w)))}
		q.Spec.StopPolicy = new(kueue.Hold)
		a.queue(q)
		queues = append(queues, q)
	}
	l := newLoad(a, math.MaxInt)
	var g errgroup.Group
	g.SetLimit(floorWriters)
	for i, q := range queues {
		// Twice what its share can run in the time that is watched.
		for n := range weights[i] * 2 * cpus / 7 * int((settles+watched)/one.runs) {
			g.Go(func() error { return l.create(t.Context(), one, q.Name, n) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		patch := client.MergeFrom(q.DeepCopy())
		q.Spec.StopPolicy = new(kueue.None)
		if err := a.kube.Patch(t.Context(), q, patch); err != nil {
			t.Fatal(err)
		}
	}
	sums, all := map[string]int{}, 0
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for now := range tick.C {
		if now.Sub(began) < settles {
			continue
		}
		if now.Sub(began) > settles+watched {
			break
		}
		for name, n := range l.running() {
			sums[name] += n
			all += n
		}
	}
	for i, q := range queues {
		got, want := float64(sums[q.Name])/float64(all), float64(weights[i])/7
		t.Logf("weight %d: %.4f of what ran, want %.4f", weights[i], got, want)
		if all == 0 || math.Abs(got/want-1) > tolerance {
			t.Errorf("the queue of weight %d has %.4f of what ran, want %.4f within %.0f %%", weights[i], got, want, 100*tolerance)
		}
	}
}
