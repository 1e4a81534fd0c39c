package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
)

// nodeWrites and nodeReads are the numbers of nodes that one step writes, or whose pods it lists, at once.
const nodeWrites, nodeReads = 16, 16

// nodeChange is a change of one node.
type nodeChange struct {
	node   string
	change func(*corev1.Node) error
}

func (c *Controller) changeNodes(ctx context.Context, changes []nodeChange) error {
	var g errgroup.Group
	g.SetLimit(nodeWrites)
	for _, ch := range changes {
		g.Go(func() error { return ChangeNode(ctx, c.Client, c.Model, ch.node, ch.change) })
	}
	return g.Wait()
}

// leave fails if one of the nodes has a pod of the gang that the model does not have yet. The gang may have to stay, which is decided when
// the pod arrives.
func (c *Controller) leave(ctx context.Context, e *model.Entry, nodes []string) error {
	var g errgroup.Group
	g.SetLimit(nodeReads)
	for _, name := range nodes {
		g.Go(func() error {
			pods := &corev1.PodList{}
			if err := c.Live.List(ctx, pods, client.InNamespace(e.Namespace), client.MatchingFields{"spec.nodeName": name}); err != nil {
				return fmt.Errorf("listing the pods on node %s: %w", name, err)
			}
			known := c.Model.BoundFor(name, e.Namespace, e.Gang.Key)
			for i := range pods.Items {
				p := &pods.Items[i]
				if state.ReadPod(p).Consumes.Booking().Name == e.Gang.Key && !slices.Contains(known, p.UID) {
					return fmt.Errorf("node %s: pod %s %w", name, p.Name, errCame)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// ChangeNode patches a node if the change makes a difference. It changes the newest version in the model, and the patch carries that
// version: a concurrent edit by a person causes a conflict instead of being taken for Muster's own. If the node is gone, ChangeNode
// removes it from the model and returns no error; otherwise the same step would be decided again at once, until the informer catches up.
func ChangeNode(ctx context.Context, w client.Client, m *model.Model, name string, change func(*corev1.Node) error) error {
	old := m.Node(name)
	if old == nil {
		return nil
	}
	changed := old.DeepCopy()
	if err := change(changed); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if equality.Semantic.DeepEqual(old, changed) {
		return nil
	}
	err := w.Patch(ctx, changed, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	if isGone(err) {
		m.Gone(old)
		return nil
	}
	if err != nil {
		return fmt.Errorf("patching node %s: %w", name, err)
	}
	m.Written(changed)
	return nil
}

// isGone reports whether the error says that an object does not exist. An API server that does not serve the kind for now says nothing
// about the object.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

var (
	// errCordoned: a person has cordoned the node since it was chosen. The next decision chooses again.
	errCordoned = errors.New("it has been cordoned by others meanwhile")
	// errBooked: the label is in use by the booking of another request.
	errBooked = errors.New("another request of the same name has booked it meanwhile")
	// errCame: the node cannot be left, or its machine terminated, before the pod is in the model.
	errCame = errors.New("has come to it meanwhile")
)

// book writes the request's booking to the node, and the cordon if the request takes the whole node. Only if the node is opened, it gets
// the label that admits the gang's pods. Pods that already run there under the same key belong to an earlier request, unless this request
// has booked the node before.
func book(n *corev1.Node, e *model.Entry, p planner.Placement, open bool, now time.Time, there []types.UID) error {
	since, earlier := now, there
	for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
		if b.Key != e.Gang.Key {
			continue
		}
		if b.UID != e.UID {
			return errBooked
		}
		since, earlier = b.Since, b.Earlier
	}
	for _, key := range p.Over {
		// The label would admit a recreated pod of the earlier request to capacity that is booked for this one.
		Unlabel(n, key)
	}
	label := state.BookingLabel(e.Name)
	set(&n.Annotations, label, state.Booking{UID: e.UID, Queue: e.Gang.Queue, Since: since, Booked: p.Requests,
		Earlier: earlier, Repair: e.Repairs}.Encode())
	if open {
		set(&n.Labels, label, e.Namespace)
	}
	switch {
	case !p.Whole:
		return nil
	case e.Gang.IsHeldByTaint():
		if err := Cordon(n, v1alpha1.CordonBooked); err != nil {
			return err
		}
		state.Taint(n)
		set(&n.Labels, v1alpha1.BookedByLabel, string(e.UID))
		return nil
	default:
		return Cordon(n, v1alpha1.CordonBooked)
	}
}

// closeTo removes the label that admits pods of the gang from a node that stays booked for it.
func closeTo(n *corev1.Node, e *model.Entry, now time.Time) error {
	for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
		if b.Key == e.Gang.Key && b.UID == e.UID && b.Open {
			b.Closed = now
			n.Annotations[v1alpha1.BookedLabelPrefix+b.Key] = b.Encode()
			delete(n.Labels, v1alpha1.BookedLabelPrefix+b.Key)
		}
	}
	return nil
}

// unbook removes the request's booking from the node, and Muster's cordon unless another request has booked the node, too.
func unbook(n *corev1.Node, e *model.Entry, shared bool) error {
	Unlabel(n, e.Gang.Key)
	if shared {
		return nil
	}
	return uncordon(n)
}

// Unlabel removes the labels and the record of a booking from the node. For a node of a group, it records the tenant that leaves it, since
// an idle machine costs money.
func Unlabel(n *corev1.Node, key string) {
	for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
		if b.Key != key {
			continue
		}
		if n.Labels[v1alpha1.BookedByLabel] == string(b.UID) {
			delete(n.Labels, v1alpha1.BookedByLabel)
		}
		if b.Namespace != "" && n.Labels[v1alpha1.NodeGroupLabel] != "" {
			set(&n.Annotations, v1alpha1.LeftByAnnotation, b.Tenant().String())
		}
	}
	delete(n.Labels, v1alpha1.BookedLabelPrefix+key)
	delete(n.Annotations, v1alpha1.BookedLabelPrefix+key)
}

// uncordon lifts a cordon that bookings have placed, and no other.
func uncordon(n *corev1.Node) error {
	if n.Annotations[v1alpha1.CordonedAnnotation] != v1alpha1.CordonBooked {
		return nil
	}
	return LiftCordon(n)
}

// HoldIdle cordons an idle node for the requests that may book it, unless a request has booked it meanwhile. It does not set the
// annotation for cluster-autoscaler: that annotation stops the scale-down of an idle machine.
func HoldIdle(n *corev1.Node) error {
	if state.CordonOf(n) == state.Open {
		mark(n, v1alpha1.CordonIdle)
	}
	return nil
}

// LiftCordon lifts a cordon with Muster's mark, and removes the scale-down-disabled annotation for cluster-autoscaler unless the node's
// owner has set it.
func LiftCordon(n *corev1.Node) error {
	if _, ours := n.Annotations[v1alpha1.CordonedAnnotation]; ours && !state.IsTainted(n) && n.Annotations[v1alpha1.RebootAnnotation] == "" {
		state.MakeSchedulable(n)
	}
	return DisownCordon(n)
}

// DisownCordon removes Muster's marks and taint from a node. A cordon stays, and belongs to others from then on.
func DisownCordon(n *corev1.Node) error {
	state.Untaint(n)
	if _, ours := n.Annotations[v1alpha1.CordonedAnnotation]; ours {
		delete(n.Annotations, v1alpha1.CordonedAnnotation)
		delete(n.Labels, v1alpha1.HeldLabel)
	}
	if _, ours := n.Annotations[v1alpha1.KeptAnnotation]; ours {
		delete(n.Annotations, v1alpha1.KeptAnnotation)
		if n.Annotations[v1alpha1.ScaleDownDisabledAnnotation] == "true" { // otherwise its owner has changed it
			delete(n.Annotations, v1alpha1.ScaleDownDisabledAnnotation)
		}
	}
	return nil
}

// Adopt marks the node of a machine that Muster has launched with its group (nil if the NodeGroup is gone), its capacity type and its
// launch. Simulated nodes have these marks from their creation. While the launch is in flight, the node is cordoned.
func Adopt(n *corev1.Node, group *v1alpha1.NodeGroup, a scaledown.Adoption) error {
	set(&n.Annotations, v1alpha1.LaunchAnnotation, a.Machine.Launch)
	set(&n.Labels, v1alpha1.NodeGroupLabel, a.Machine.Group)
	if group != nil {
		set(&n.Labels, v1alpha1.CapacityTypeLabel, group.Spec.CapacityType.LabelValue())
	}
	if a.Cordon && !n.Spec.Unschedulable {
		return Cordon(n, v1alpha1.CordonJoining)
	}
	return nil
}

// Cordon cordons a node for the given reason and stops cluster-autoscaler from scaling it down. It does not take over a person's cordon,
// which would be lifted later, nor a user's annotation for cluster-autoscaler. Karpenter needs no annotation: it provisions for existing
// pods and respects its own disruption budgets.
func Cordon(n *corev1.Node, why string) error {
	if _, ours := n.Annotations[v1alpha1.CordonedAnnotation]; n.Spec.Unschedulable && (!ours || state.IsTainted(n)) {
		return errCordoned
	}
	state.Untaint(n)
	delete(n.Labels, v1alpha1.BookedByLabel)
	mark(n, why)
	if _, present := n.Annotations[v1alpha1.ScaleDownDisabledAnnotation]; !present {
		set(&n.Annotations, v1alpha1.ScaleDownDisabledAnnotation, "true")
		set(&n.Annotations, v1alpha1.KeptAnnotation, "true")
	}
	return nil
}

// mark cordons a node and records the reason.
func mark(n *corev1.Node, why string) {
	state.MakeUnschedulable(n)
	set(&n.Annotations, v1alpha1.CordonedAnnotation, why)
	set(&n.Labels, v1alpha1.HeldLabel, "true")
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
