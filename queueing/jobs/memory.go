package jobs

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memories are what is remembered of jobs, by their UID.
type memories struct {
	mu    sync.Mutex
	ofJob map[types.UID]*memory
}

// memory is the state of a job that is not in the API. A restart loses it, which costs one more event or a wait.
type memory struct {
	// reported is the last lasting condition that an event has reported, so that it is not reported at each change.
	reported string
	// created is the creation time of a Workload that the cache does not contain yet.
	created time.Time
	// reclaimable is since when there are pods to report as reclaimable.
	reclaimable time.Time
	// startRefused is since when the API server refuses to start the job.
	startRefused time.Time
	// missing is for a job whose pods have not come.
	missing missingPods
	// part is whether the last reconciled version of the job queued with another object.
	part struct {
		version string
		is      bool
	}
}

// remember changes the memory of a job.
func (m *memories) remember(uid types.UID, change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ofJob == nil {
		m.ofJob = map[types.UID]*memory{}
	}
	have := m.ofJob[uid]
	if have == nil {
		have = &memory{}
		m.ofJob[uid] = have
	}
	change(have)
}

// forget drops the memory of a deleted job.
func (m *memories) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ofJob, uid)
}

// isNews reports whether something is not what was reported last of a job.
func (m *memories) isNews(uid types.UID, what string) (news bool) {
	m.remember(uid, func(x *memory) { news, x.reported = x.reported != what, what })
	return news
}

// missingPods is the state of a started job that lacks pods.
type missingPods struct {
	// start is that of the job, and created is how many pods it has had.
	start   time.Time
	created int32
	// since is when the lack was first seen, and next is when the Events are read.
	since, next time.Time
}
