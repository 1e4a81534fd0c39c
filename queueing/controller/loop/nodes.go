package loop

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// Nodes are watched, with their pods and devices, as long as a flavor has a Topology: their events are many.
type Nodes interface {
	// Watch calls a handler for all nodes, pods and ResourceSlices, and then for each change. read reports whether the handler was called
	// for all that existed; stop ends the watch.
	Watch(toolscache.ResourceEventHandler) (read func() bool, stop func(), err error)
}

// nodesReadAgain is how soon it is checked again whether all nodes have been read. watchAgain is the retry delay of a watch that could
// not start.
const (
	nodesReadAgain = 20 * time.Millisecond
	watchAgain     = 5 * time.Second
)

// nodeWatch is the watch of nodes and pods, while there is one.
type nodeWatch struct {
	source Nodes
	read   func() bool
	stop   func()
}

// follow starts or stops the watch of nodes, and returns after which pause to call it again; 0 is never.
func (w *nodeWatch) follow(state *queueing.State, inbox *inbox) (again time.Duration, err error) {
	switch wanted := state.UsesTopologies(); {
	case w.source == nil:
	case !wanted && w.stop != nil:
		w.stop()
		w.read, w.stop = nil, nil
		state.ForgetNodes()
		state.Outdated = true
	case wanted && w.stop == nil:
		if w.read, w.stop, err = w.source.Watch(roomEvents(inbox)); err != nil {
			w.stop = nil
			return watchAgain, err
		}
		return nodesReadAgain, nil
	case wanted && !state.Nodes.Known && w.read():
		// Some events may still be in the inbox. The next step takes them before it decides.
		inbox.done(func(time.Time) { state.Nodes.MarkKnown() })
	case wanted && !state.Nodes.Known:
		return nodesReadAgain, nil
	}
	return 0, nil
}

// roomEvents passes on events that change the free capacity of nodes. Most updates of kubelets do not.
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

// ofNodes reports whether an object counts for the free capacity of nodes. The queues never write such an object, so no version is newer
// than the informer's.
func ofNodes(object client.Object) bool {
	switch object.(type) {
	case *corev1.Node, *corev1.Pod, *resourcev1.ResourceSlice:
		return true
	}
	return false
}
