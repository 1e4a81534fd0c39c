package multikueue

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/kueue/managers"
)

var burst = flag.Int("burst", 0, "how many jobs TestBurst creates at once; 0 skips it")

var cutFor = flag.Duration("cut", 45*time.Second, "for how long TestComparePartitions cuts a cluster off, at most")

var rounds = flag.Int("rounds", 0, "how many jobs TestCompareDispatchers runs, one after another, in each of its scenes; 0 skips it")

// TestCompareDispatchers measures the dispatcher of -dispatcher: what is billed in clusters that a job does not run in, and how long
// it takes to be admitted. One run for each:
//
//	go test ./test/multikueue -run TestCompareDispatchers -v -rounds 5 -workers 3 -dispatcher
//
// kueue.x-k8s.io/multikueue-dispatcher-all-at-once
func TestCompareDispatchers(t *testing.T) {
	if *rounds == 0 {
		t.Skip("-rounds is 0")
	}
	for _, scene := range []struct {
		name  string
		holds func(worker int) int32
	}{
		{"all have machines", func(int) int32 { return 64 }},
		{"the first is stocked out", func(worker int) int32 { return int32(min(worker, 1) * 64) }},
	} {
		t.Run(strings.ReplaceAll(scene.name, " ", "-"), func(t *testing.T) {
			var holds []int32
			for i := range workers {
				holds = append(holds, scene.holds(i))
			}
			s := newSite(t, holds...)
			var waited, billed, moved time.Duration
			for i := range *rounds {
				began := time.Now()
				j := s.job(fmt.Sprint("train-", i), 4)
				ran := ""
				s.Within(10*time.Minute, "admission of "+j.Name, func() bool {
					w := s.Workload(j)
					if w != nil && w.Status.ClusterName != nil {
						ran = *w.Status.ClusterName
					}
					return ran != ""
				}, func() string { return s.standing(j) })
				waited += time.Since(began)
				if w := s.Workload(j); w != nil {
					if r, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation]); err == nil && len(r.Refusals) > 0 {
						moved += r.At.Sub(r.Refusals[len(r.Refusals)-1].At)
					}
				}
				s.Within(10*time.Minute, "end of "+j.Name, func() bool { return s.IsComplete(j) }, func() string { return s.standing(j) })
				s.Within(10*time.Minute, "machines gone", func() bool { return spending.idle(s.Name) }, func() string { return "" })
				billed += spending.billed(s.Name, slices.Index(clusterNames(), ran))
				spending.forget(s.Name)
			}
			n := time.Duration(*rounds)
			t.Logf("%s, %s: admitted after %s, %s after a refusal the next cluster was asked, %s machine-seconds in other clusters, a job of 4 "+
				"machines", *dispatcherName, scene.name, (waited / n).Round(10*time.Millisecond), (moved / n).Round(10*time.Millisecond),
				(billed / n).Round(10*time.Millisecond))
		})
	}
}

// TestComparePartitions counts the jobs that run in two clusters at once because the manager cannot reach the one that runs them. By
// default it is Kueue's 15 minutes of workerLostTimeout in small. One run for each, and one in full:
//
//	go test ./test/multikueue -run TestComparePartitions -v -rounds 3 -dispatcher kueue.x-k8s.io/multikueue-dispatcher-all-at-once
//	go test ./test/multikueue -run TestComparePartitions -v -rounds 1 -lost 15m -cut 16m -manager muster -timeout 1h
func TestComparePartitions(t *testing.T) {
	if *rounds == 0 {
		t.Skip("-rounds is 0")
	}
	s := newSite(t, slices.Repeat([]int32{16}, len(workers))...)
	twice, sum := 0, time.Duration(0)
	for i := range *rounds {
		j := s.job(fmt.Sprint("train-", i), 2, long)
		at := -1
		s.Within(time.Minute, "start of "+j.Name, func() bool {
			if w := s.Workload(j); w != nil && w.Status.ClusterName != nil {
				at = slices.Index(clusterNames(), *w.Status.ClusterName)
			}
			return at >= 0 && s.podsRunning(at, j)
		}, func() string { return s.standing(j) })
		wires[at].set(true, false)
		began, looks := time.Now(), time.NewTicker(200*time.Millisecond)
		for found := false; !found && time.Since(began) < *cutFor; <-looks.C {
			for other := range workers {
				if found = found || other != at && s.podsRunning(other, j) && s.podsRunning(at, j); found {
					twice, sum = twice+1, sum+time.Since(began)
					break
				}
			}
		}
		looks.Stop()
		wires[at].set(false, false)
		s.Delete(j)
		s.Within(5*time.Minute, "machines gone", func() bool { return spending.idle(s.Name) }, func() string { return "" })
		spending.forget(s.Name)
	}
	t.Logf("%s, %s: %d of %d jobs ran in two clusters at once, %s after theirs was cut off for %s; workerLostTimeout is %s",
		managedBy, *dispatcherName, twice, *rounds, (sum / time.Duration(max(1, twice))).Round(100*time.Millisecond), *cutFor, *workerLostTimeout)
	if twice > 0 && *dispatcherName == dispatch.Name {
		t.Errorf("%d jobs ran twice", twice)
	}
}

// podsRunning reports whether all pods of a job run in a worker.
func (s *site) podsRunning(worker int, j *batchv1.Job) bool {
	s.Helper()
	var pods corev1.PodList
	s.workers[worker].List(&pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
	running := 0
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running == int(*j.Spec.Parallelism)
}

// TestBurst measures how many jobs a second come to their clusters where many wait, what API servers have to do for each, and how many
// writes the manager makes in the workers, as the metrics of its own client count them. One run for each:
//
//	go test ./test/multikueue -run TestBurst -v -burst 200 -workers 3 -manager muster -bare
func TestBurst(t *testing.T) {
	if *burst == 0 {
		t.Skip("-burst is 0")
	}
	var holds []int32
	for range workers {
		holds = append(holds, 8)
	}
	s := newSite(t, holds...)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	seen, err := s.Kube.Watch(ctx, &kueue.WorkloadList{}, client.InNamespace(s.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	progress := burstProgress{there: sets.New[types.UID](), given: sets.New[types.UID](), ended: sets.New[types.UID]()}
	go progress.follow(seen)
	s.hold(kueue.Hold)
	for i := range *burst {
		s.job(fmt.Sprint("small-", i), 1, func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}
		})
	}
	await(s, &progress, func() int { return len(progress.there) })
	before, traffic, began := s.remoteWrites(), s.trafficOf(), time.Now()
	s.hold(kueue.None)
	await(s, &progress, func() int { return len(progress.given) })
	took := time.Since(began)
	t.Logf("%s, %s: %d jobs were given to clusters within %s, %.1f a second", managedBy, *dispatcherName, *burst,
		took.Round(10*time.Millisecond), float64(*burst)/took.Seconds())
	s.reportTraffic(traffic, *burst)
	if !*bare {
		await(s, &progress, func() int { return len(progress.ended) })
		t.Logf("and all had run within %s:", time.Since(began).Round(10*time.Millisecond))
		s.reportTraffic(traffic, *burst)
	}
	t.Logf("%.1f remote writes a job", float64(s.remoteWrites()-before)/float64(*burst))
}

// burstProgress are the Workloads of a burst that there are, that have a cluster, and that have run. They are read as they come: a watch
// that
// is not read is ended.
type burstProgress struct {
	mu                  sync.Mutex
	there, given, ended sets.Set[types.UID]
	broken              string
}

func (p *burstProgress) follow(seen watch.Interface) {
	for e := range seen.ResultChan() {
		p.mu.Lock()
		if w, ok := e.Object.(*kueue.Workload); ok {
			p.there.Insert(w.UID)
			if w.Status.ClusterName != nil {
				p.given.Insert(w.UID)
			}
			if workload.IsFinished(w) {
				p.ended.Insert(w.UID)
			}
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = "the watch ended"
}

// await waits until so many are all of the burst.
func await(s *site, p *burstProgress, count func() int) {
	s.Helper()
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	for ; ; <-looks.C {
		p.mu.Lock()
		n, broken := count(), p.broken
		p.mu.Unlock()
		switch {
		case n >= *burst:
			return
		case broken != "" || s.Context().Err() != nil:
			s.Fatalf("%s with %d of %d jobs", broken, n, *burst)
		}
	}
}

// hold has the manager's queue give out quota, or not.
func (s *site) hold(policy kueue.StopPolicy) {
	s.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Get(cq)
	patch := client.MergeFrom(cq.DeepCopy())
	cq.Spec.StopPolicy = &policy
	if err := s.Kube.Patch(s.Context(), cq, patch); err != nil {
		s.Fatal(err)
	}
}

// remoteWrites counts the writes of the manager's processes in workers, through the proxies.
func (s *site) remoteWrites() (n int) {
	s.Helper()
	var processes []*managers.Manager
	for _, m := range []*managers.Manager{stock, dispatcher} {
		if m != nil {
			processes = append(processes, m)
		}
	}
	sample := regexp.MustCompile(`(?m)^rest_client_requests_total\{code="\d+",host="([^"]+)",method="(POST|PUT|PATCH|DELETE)"\} (\S+)$`)
	for _, m := range processes {
		for _, found := range sample.FindAllStringSubmatch(m.Metrics(), -1) {
			value, err := strconv.ParseFloat(found[3], 64)
			if err != nil {
				s.Fatal(err)
			}
			if slices.ContainsFunc(wires, func(w *wire) bool { return w.address() == found[1] }) {
				n += int(value)
			}
		}
	}
	return n
}
