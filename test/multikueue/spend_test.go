package multikueue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

// spending is what the workers' clouds bill: the machines of each site, whose NodeGroups are named after it. No two workers may
// have machines of one site that has one job (P8).
var spending = ledger{sites: map[string][]machines{}}

type ledger struct {
	mu    sync.Mutex
	sites map[string][]machines
	// twice are sites that two workers have had machines of at the same time.
	twice []string
}

// machines of a worker, those that there are and those that there ever were.
type machines struct{ now, ever map[string]bool }

// watchSpending follows the machines of one worker until its watch ends with the cluster.
func watchSpending(ctx context.Context, worker int) error {
	events, err := workers[worker].Kube.Watch(ctx, &kwokv1alpha1.MachineList{})
	if err != nil {
		return fmt.Errorf("watching machines of worker %d: %w", worker, err)
	}
	go func() {
		for e := range events.ResultChan() {
			if m, ok := e.Object.(*kwokv1alpha1.Machine); ok {
				spending.note(worker, m, e.Type == watch.Deleted || m.Status.Phase == kwokv1alpha1.MachineTerminated)
			}
		}
	}()
	return nil
}

func (l *ledger) note(worker int, m *kwokv1alpha1.Machine, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	site := l.sites[m.Spec.Group]
	for len(site) < numberOfWorkers {
		site = append(site, machines{map[string]bool{}, map[string]bool{}})
	}
	l.sites[m.Spec.Group] = site
	site[worker].ever[m.Name] = true
	if gone {
		delete(site[worker].now, m.Name)
		return
	}
	site[worker].now[m.Name] = true
	spend := slices.DeleteFunc(slices.Clone(site), func(w machines) bool { return len(w.now) == 0 })
	if len(spend) > 1 && !slices.Contains(l.twice, m.Spec.Group) {
		l.twice = append(l.twice, m.Spec.Group)
	}
}

// launched are the machines that each worker has ever had for the site.
func (l *ledger) launched(site string) (out [numberOfWorkers]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.sites[site] {
		out[i] = len(slices.Collect(maps.Keys(w.ever)))
	}
	return out
}
