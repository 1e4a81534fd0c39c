package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// expected are objects that were written, until a cache has them. A decision on an older version would only make a call that fails.
type expected struct {
	clock clock.PassiveClock
	mu    *sync.Mutex
	as    map[types.NamespacedName]expectation
}

type expectation struct {
	*kueue.Workload
	at time.Time
}

func newExpected(c clock.PassiveClock) expected {
	return expected{clock: c, mu: &sync.Mutex{}, as: map[types.NamespacedName]expectation{}}
}

func (e expected) add(w *kueue.Workload) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.as[client.ObjectKeyFromObject(w)] = expectation{w, e.clock.Now()}
}

func (e expected) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.as, key)
}

// get returns the expected object of that name, or nil if there is none or its time is over.
func (e expected) get(key types.NamespacedName) *kueue.Workload {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, ok := e.as[key]
	if ok && e.clock.Since(found.at) > lag {
		delete(e.as, key)
		return nil
	}
	return found.Workload
}

// awaits reports whether the cached Workload is older than the written one.
func (e expected) awaits(w *kueue.Workload) bool {
	key := client.ObjectKeyFromObject(w)
	written := e.get(key)
	if written == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(w.ResourceVersion, written.ResourceVersion)
	if written.UID == w.UID && err == nil && order < 0 {
		return true
	}
	e.forget(key)
	return false
}

// named are the clusters that were nominated, by Workload.
type named struct {
	mu *sync.Mutex
	in map[types.UID]map[string]bool
}

func newNamed() named { return named{mu: &sync.Mutex{}, in: map[types.UID]map[string]bool{}} }

func (n named) add(of types.UID, cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.in[of] == nil {
		n.in[of] = map[string]bool{}
	}
	n.in[of][cluster] = true
}

func (n named) remove(of types.UID, cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if delete(n.in[of], cluster); len(n.in[of]) == 0 {
		delete(n.in, of)
	}
}

func (n named) forget(of types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.in, of)
}

func (n named) has(of types.UID, cluster string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.in[of][cluster]
}

// shown are the remote jobs whose status the manager has. Most changes of a remote job are no changes of its status, and each would cost
// a read of the job in the manager.
type shown struct {
	mu   sync.Mutex
	jobs map[shownKey]shownJob
}

type shownKey struct {
	kind schema.GroupKind
	types.NamespacedName
}

func (f *following) shownKey() shownKey {
	return shownKey{f.kind.GroupVersionKind().GroupKind(), f.key}
}

type shownJob struct {
	of types.UID
	// version of the remote job that the manager shows; empty for none.
	version string
	// readAt is when the job in the manager was last read.
	readAt time.Time
}

func (s *shown) get(f *following) shownJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[f.shownKey()]; j.of == f.uid {
		return j
	}
	return shownJob{of: f.uid}
}

func (s *shown) set(f *following, j shownJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[f.shownKey()] = j
}

func (s *shown) has(f *following, job client.Object) bool {
	return s.get(f).version == job.GetResourceVersion()
}

// next is when the status may be copied again.
func (s *shown) next(f *following) time.Time {
	if j := s.get(f); !j.readAt.IsZero() {
		return j.readAt.Add(showEvery)
	}
	return time.Time{}
}

func (s *shown) noteRead(f *following, now time.Time) {
	j := s.get(f)
	j.readAt = now
	s.set(f, j)
}

func (s *shown) add(f *following, job client.Object) {
	j := s.get(f)
	j.version = job.GetResourceVersion()
	s.set(f, j)
}

func (s *shown) forget(kind schema.GroupKind, key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, shownKey{kind, key})
}
