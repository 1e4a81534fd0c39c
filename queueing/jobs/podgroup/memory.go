package podgroup

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// memories are what is remembered of gangs.
type memories struct {
	mu     sync.Mutex
	ofGang map[key]*memory
}

// memory is the state of a gang that is not in the API.
type memory struct {
	// reported is the last reported message, so that it is reported once.
	reported string
	// created is when a Workload was created that the cache does not show yet.
	created time.Time

	// workload is the UID of the Workload that the rest is about: which pods were seen to
	// succeed, by pod set, and how many were counted in its status that are gone since before
	// this process began.
	workload types.UID
	seen     map[types.UID]int
	before   []int32
}

// remember changes the memory of a gang.
func (m *memories) remember(k key, change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ofGang == nil {
		m.ofGang = map[key]*memory{}
	}
	have := m.ofGang[k]
	if have == nil {
		have = &memory{}
		m.ofGang[k] = have
	}
	change(have)
}

// forget drops the memory of a gang that is gone.
func (m *memories) forget(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ofGang, k)
}

// isNews reports whether something is not what was reported last of a gang.
func (m *memories) isNews(k key, what string) (news bool) {
	m.remember(k, func(x *memory) { news, x.reported = x.reported != what, what })
	return news
}

// created says that the Workload of a gang was created.
func (m *memories) created(k key, now time.Time) {
	m.remember(k, func(x *memory) { x.created = now })
}

// expected is how much longer the Workload of a gang is expected to appear in the cache.
func (m *memories) expected(k key, appeared bool, now time.Time) (left time.Duration) {
	m.remember(k, func(x *memory) {
		if left = lag - now.Sub(x.created); appeared || left <= 0 {
			left, x.created = 0, time.Time{}
		}
	})
	return left
}

// tally counts the pods of a gang that have succeeded, including deleted ones. After a restart, it reads those from the status of the
// Workload.
func (m *memories) tally(g *gang, w *kueue.Workload) {
	if w == nil || g.serves || g.family == single {
		return
	}
	m.remember(g.key, func(x *memory) {
		g.succeededOf = make([]int32, len(w.Spec.PodSets))
		present := make([]int32, len(w.Spec.PodSets))
		begins := x.seen == nil || x.workload != w.UID
		if begins {
			x.workload, x.seen, x.before = w.UID, map[types.UID]int{}, make([]int32, len(w.Spec.PodSets))
		}
		for _, pod := range g.over {
			if i := podSetOf(w, g, pod); i >= 0 && pod.Status.Phase == corev1.PodSucceeded {
				x.seen[pod.UID] = i
				present[i]++
			}
		}
		if begins {
			for i := range x.before {
				x.before[i] = max(0, workload.Reclaimable(w, w.Spec.PodSets[i].Name)-present[i])
			}
		}
		copy(g.succeededOf, x.before)
		for _, i := range x.seen {
			if i < len(g.succeededOf) {
				g.succeededOf[i]++
			}
		}
	})
	g.succeeded = 0
	for _, n := range g.succeededOf {
		g.succeeded += int(n)
	}
}
