package multikueue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

// spending is what the workers' clouds bill: the machines of each site, whose NodeGroups are named after it. No two workers may
// have machines of one site that has one job (P8).
var spending = ledger{sites: map[string][]machines{}}

// running are the pods of jobs that run in the workers, by namespace and name of the job. No two workers may run one (P8).
var running = ledger{sites: map[string][]machines{}}

type ledger struct {
	mu    sync.Mutex
	sites map[string][]machines
	// hedged are sites whose job may have machines of several workers.
	hedged []string
	// twice are sites, or jobs, that two workers have had machines, or pods, of at the same time.
	twice []string
}

// machines of a worker by when they were first observed: the existing ones, and all so far. billed is the total time of those that are
// gone.
type machines struct {
	now, ever map[string]time.Time
	billed    time.Duration
}

// watchSpending follows the machines of one worker until its watch ends with the cluster.
func watchSpending(ctx context.Context, worker int) error {
	events, err := workers[worker].Kube.Watch(ctx, &kwokv1alpha1.MachineList{})
	if err != nil {
		return fmt.Errorf("watching machines of worker %d: %w", worker, err)
	}
	go func() {
		for e := range events.ResultChan() {
			if m, ok := e.Object.(*kwokv1alpha1.Machine); ok {
				spending.note(worker, m.Spec.Group, m.Name, e.Type == watch.Deleted || m.Status.Phase == kwokv1alpha1.MachineTerminated)
			}
		}
	}()
	pods, err := workers[worker].Kube.Watch(ctx, &corev1.PodList{}, client.HasLabels{batchv1.JobNameLabel})
	if err != nil {
		return fmt.Errorf("watching pods of worker %d: %w", worker, err)
	}
	go func() {
		for e := range pods.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				running.note(worker, p.Namespace+"/"+p.Labels[batchv1.JobNameLabel], p.Name,
					e.Type == watch.Deleted || p.Status.Phase != corev1.PodRunning)
			}
		}
	}()
	return nil
}

// note what a worker has of a site.
func (l *ledger) note(worker int, of, name string, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	site := l.sites[of]
	for len(site) < *numberOfWorkers {
		site = append(site, machines{now: map[string]time.Time{}, ever: map[string]time.Time{}})
	}
	l.sites[of] = site
	w := &site[worker]
	since, there := w.now[name]
	switch {
	case gone && there:
		w.billed += time.Since(since)
		delete(w.now, name)
		return
	case gone || there:
		return
	}
	w.now[name], w.ever[name] = time.Now(), time.Now()
	spend := slices.DeleteFunc(slices.Clone(site), func(w machines) bool { return len(w.now) == 0 })
	if len(spend) > 1 && !slices.Contains(l.twice, of) && !slices.Contains(l.hedged, of) {
		l.twice = append(l.twice, of)
	}
}

// hedge lets several workers have machines of the site.
func (l *ledger) hedge(site string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hedged = append(l.hedged, site)
}

// launched are the machines that each worker has ever had for the site.
func (l *ledger) launched(site string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]int, *numberOfWorkers)
	for i, w := range l.sites[site] {
		out[i] = len(w.ever)
	}
	return out
}

// idle reports whether no worker has machines of the site.
func (l *ledger) idle(site string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.sites[site], func(w machines) bool { return len(w.now) > 0 })
}

func (l *ledger) forget(site string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sites, site)
}

// billed is how long machines of the site were there in all workers but the one.
func (l *ledger) billed(site string, but int) (out time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.sites[site] {
		if i == but {
			continue
		}
		out += w.billed
		for _, since := range w.now {
			out += time.Since(since)
		}
	}
	return out
}
