package request

import (
	"sync"

	"github.com/muster-dev/muster/provisioning/fairqueue"
)

// lane carries out steps, parallel of them at a time. The others wait, and namespaces take turns: one with a thousand requests delays the
// steps of another one by no more than the steps under way.
type lane struct {
	mu      sync.Mutex
	running int
	waiting *fairqueue.Queue[queuedStep]
}

type queuedStep struct {
	namespace string
	carryOut  func()
}

func newLane() *lane {
	return &lane{waiting: fairqueue.New(func(s queuedStep) string { return s.namespace })}
}

// add carries out the step in a goroutine of the group when it is its turn.
func (l *lane) add(group *sync.WaitGroup, namespace string, carryOut func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == parallel {
		l.waiting.Push(queuedStep{namespace, carryOut})
		return
	}
	l.running++
	group.Go(func() { l.serve(carryOut) })
}

// serve carries out the step, and those that wait until none is left.
func (l *lane) serve(carryOut func()) {
	for carryOut != nil {
		carryOut()
		carryOut = l.next()
	}
}

// next returns the step whose turn it is, or nil.
func (l *lane) next() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() == 0 {
		l.running--
		return nil
	}
	return l.waiting.Pop().carryOut
}
