package loop

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// Nodes are watched, with the pods on them, as long as a flavor has a Topology: their events are many.
type Nodes interface {
	// Watch has a handler told of all nodes and pods, and then of each change. Read reports whether it has been told of
	// all that there were; stop ends it.
	Watch(toolscache.ResourceEventHandler) (read func() bool, stop func(), err error)
}

// nodesLookAgain is how soon it is looked again whether all nodes have been read, and watchAgain how soon a watch is
// tried again that could not begin.
const (
	nodesLookAgain = 20 * time.Millisecond
	watchAgain     = 5 * time.Second
)

// nodeWatch is the watch of nodes and pods, while there is one.
type nodeWatch struct {
	source Nodes
	read   func() bool
	stop   func()
}

// follow begins to watch nodes, or ends it, and says after which pause to look again; 0 is never.
func (w *nodeWatch) follow(state *queueing.State, inbox *inbox) (again time.Duration, err error) {
	switch wanted := state.UsesTopologies(); {
	case w.source == nil:
	case !wanted && w.stop != nil:
		w.stop()
		w.read, w.stop = nil, nil
		state.Nodes.Forget()
		state.Outdated = true
	case wanted && w.stop == nil:
		if w.read, w.stop, err = w.source.Watch(roomEvents(inbox)); err != nil {
			w.stop = nil
			return watchAgain, err
		}
		return nodesLookAgain, nil
	case wanted && !state.Nodes.Known && w.read():
		// What has been told may be in the inbox still; the next step takes it in before it decides.
		inbox.done(func(time.Time) { state.Nodes.Read() })
	case wanted && !state.Nodes.Known:
		return nodesLookAgain, nil
	}
	return 0, nil
}

// roomEvents passes on what changes how much room there is on nodes. Kubelets tell of much else.
func roomEvents(to toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if p, ok := o.(*corev1.Pod); !ok || placement.IsBoundAndRunning(p) {
				to.OnAdd(o, initial)
			}
		},
		UpdateFunc: func(before, now any) {
			switch o := now.(type) {
			case *corev1.Node:
				if was, ok := before.(*corev1.Node); ok && was.UID == o.UID && placement.SameNode(was, o) {
					return
				}
			case *corev1.Pod:
				if was, ok := before.(*corev1.Pod); ok && was.UID == o.UID && placement.IsBoundAndRunning(was) == placement.IsBoundAndRunning(o) &&
					was.DeletionTimestamp.IsZero() == o.DeletionTimestamp.IsZero() &&
					maps.Equal(workload.PodRequests(&was.Spec), workload.PodRequests(&o.Spec)) {
					return
				}
			}
			to.OnUpdate(before, now)
		},
		DeleteFunc: func(o any) {
			if p, ok := o.(*corev1.Pod); !ok || placement.IsBoundAndRunning(p) {
				to.OnDelete(o)
			}
		},
	}
}

// ofNodes reports whether an object says what room there is on nodes. Muster's queues write none of them, so no version
// is newer than what the informer brings.
func ofNodes(object client.Object) bool {
	switch object.(type) {
	case *corev1.Node, *corev1.Pod:
		return true
	}
	return false
}
