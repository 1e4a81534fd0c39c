package request

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

func entry(uid types.UID) *model.Entry {
	e := &model.Entry{Request: &transaction.Request{}}
	e.UID, e.Namespace, e.Name, e.Gang.Key = uid, "ns", "gang", "gang"
	return e
}

const opened = true

var (
	now   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	whole = planner.Placement{Requests: nodegroups.Resources{"nvidia.com/gpu": 8}, Whole: true}
)

func TestAHumansCordonIsNotTakenOver(t *testing.T) {
	n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	if err := book(n, entry("uid"), whole, opened, now, nil); !errors.Is(err, errCordoned) {
		t.Errorf("booking a node that a human has cordoned: %v", err)
	}
	n = &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	if err := uncordon(n); err != nil || !n.Spec.Unschedulable {
		t.Errorf("a human's cordon was lifted (%v)", err)
	}
}

func TestWhatIsGone(t *testing.T) {
	kind := schema.GroupResource{Group: "autoscaling.x-k8s.io", Resource: "provisioningrequests"}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"it was written", nil, false},
		{"it does not exist", apierrors.NewNotFound(kind, "gang"), true},
		{"somebody else has written it", apierrors.NewConflict(kind, "gang", errors.New("changed")), false},
		{"an API server that starts does not know its kind yet", apierrors.NewGenericServerResponse(404, "PATCH", kind, "gang", "404 page not found", 0, true), false},
	} {
		if got := isGone(tc.err); got != tc.want {
			t.Errorf("%s: gone %t, want %t", tc.name, got, tc.want)
		}
	}
}

func TestBookingAndUnbookingLeaveNothing(t *testing.T) {
	n := &corev1.Node{}
	e := entry("uid")
	if err := book(n, e, whole, opened, now, nil); err != nil {
		t.Fatal(err)
	}
	if !n.Spec.Unschedulable || n.Labels["booked.muster.dev/gang"] != "ns" ||
		n.Annotations[v1alpha1.CordonedAnnotation] != v1alpha1.CordonBooked {
		t.Errorf("booked node: %+v %+v", n.ObjectMeta, n.Spec)
	}
	if err := unbook(n, e, false); err != nil {
		t.Fatal(err)
	}
	if n.Spec.Unschedulable || len(n.Labels) > 0 || len(n.Annotations) > 0 {
		t.Errorf("unbooked node: %+v %+v", n.ObjectMeta, n.Spec)
	}
}

// TestAnIdleNodeIsHeldUntilItIsBooked, unless a user's annotation keeps it.
func TestAnIdleNodeIsHeldUntilItIsBooked(t *testing.T) {
	n := &corev1.Node{}
	if err := HoldIdle(n); err != nil {
		t.Fatal(err)
	}
	if state.CordonOf(n) != state.Held || n.Labels[v1alpha1.HeldLabel] == "" || n.Annotations[v1alpha1.ScaleDownDisabledAnnotation] != "" {
		t.Errorf("held: %+v %+v", n.ObjectMeta, n.Spec)
	}
	e := entry("uid")
	if err := book(n, e, whole, opened, now, nil); err != nil {
		t.Fatal(err)
	}
	booked := n.DeepCopy()
	if err := HoldIdle(n); err != nil || !equality.Semantic.DeepEqual(n, booked) {
		t.Errorf("a booked node was held, %v: %+v %+v", err, n.ObjectMeta, n.Spec)
	}
	if err := unbook(n, e, false); err != nil {
		t.Fatal(err)
	}
	if n.Spec.Unschedulable || len(n.Labels) > 0 || len(n.Annotations) > 0 {
		t.Errorf("unbooked: %+v %+v", n.ObjectMeta, n.Spec)
	}
}

// TestACordonHasItsTaint, so that the node lifecycle controller has nothing to write.
func TestACordonHasItsTaint(t *testing.T) {
	n := &corev1.Node{}
	n.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	for range 2 {
		if err := Cordon(n, v1alpha1.CordonBooked); err != nil {
			t.Fatal(err)
		}
		if len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != "node.kubernetes.io/unschedulable" ||
			n.Spec.Taints[1].Effect != corev1.TaintEffectNoSchedule {
			t.Errorf("cordoned: %+v", n.Spec)
		}
	}
	if err := LiftCordon(n); err != nil || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "theirs" {
		t.Errorf("after that: %+v, %v", n.Spec, err)
	}
}

func TestAnotherRequestsLabelIsNotOverwritten(t *testing.T) {
	n := &corev1.Node{}
	first := entry("first")
	second := entry("second")
	if err := book(n, first, whole, opened, now, nil); err != nil {
		t.Fatal(err)
	}
	if err := book(n, second, whole, opened, now, nil); !errors.Is(err, errBooked) {
		t.Errorf("booking under a label that is taken: %v", err)
	}
}

func TestAClaimIsOpenedByALabel(t *testing.T) {
	n := &corev1.Node{}
	e := entry("uid")
	if err := book(n, e, whole, !opened, now, []types.UID{"earlier"}); err != nil {
		t.Fatal(err)
	}
	if !n.Spec.Unschedulable || len(n.Labels) > 1 || n.Labels[v1alpha1.HeldLabel] == "" || n.Annotations["booked.muster.dev/gang"] == "" {
		t.Errorf("claimed node: %+v %+v", n.ObjectMeta, n.Spec)
	}
	later := whole
	later.Requests = nodegroups.Resources{"nvidia.com/gpu": 4}
	if err := book(n, e, later, opened, now.Add(time.Minute), []types.UID{"earlier", "its-own"}); err != nil {
		t.Fatal(err)
	}
	b := state.BookingsOn(n.Labels, n.Annotations)
	if len(b) != 1 || !b[0].Open || b[0].Booked["nvidia.com/gpu"] != 4 || !b[0].Since.Equal(now) ||
		!slices.Equal(b[0].Earlier, []types.UID{"earlier"}) {
		t.Errorf("opened booking: %+v", b)
	}
}

// TestABookingNamesItsTenant, even if its request is gone.
func TestABookingNamesItsTenant(t *testing.T) {
	n := &corev1.Node{}
	e := entry("uid")
	e.Gang.Queue = "red"
	if err := book(n, e, whole, opened, now, nil); err != nil {
		t.Fatal(err)
	}
	b := state.BookingsOn(n.Labels, n.Annotations)
	if len(b) != 1 || b[0].Namespace != "ns" || b[0].Queue != "red" {
		t.Errorf("bookings: %+v; want one of queue red in namespace ns", b)
	}
}

func TestAClusterAutoscalerIsKeptOffHeldNodesOnly(t *testing.T) {
	const disabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	for _, tc := range []struct {
		name               string
		before, held, then string
	}{
		{"a node that nobody has said anything about", "", "true", ""},
		{"a node that its owner keeps", "true", "true", "true"},
		{"a node that its owner gives up", "false", "false", "false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &corev1.Node{}
			if tc.before != "" {
				n.Annotations = map[string]string{disabled: tc.before}
			}
			if err := Cordon(n, v1alpha1.CordonBooked); err != nil {
				t.Fatal(err)
			}
			if err := Cordon(n, v1alpha1.CordonScalingDown); err != nil {
				t.Fatal(err)
			}
			if got := n.Annotations[disabled]; got != tc.held {
				t.Errorf("held: %q, want %q", got, tc.held)
			}
			if err := LiftCordon(n); err != nil {
				t.Fatal(err)
			}
			if got := n.Annotations[disabled]; got != tc.then || n.Annotations[v1alpha1.KeptAnnotation] != "" {
				t.Errorf("after that: %q, want %q; annotations %v", got, tc.then, n.Annotations)
			}
		})
	}
}

// tolerant returns a request whose pods tolerate the taint of bookings.
func tolerant() *model.Entry {
	e := entry("uid")
	template := &corev1.PodTemplateSpec{}
	template.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.BookedTaint, Operator: corev1.TolerationOpExists}}
	e.Gang.PodSets = []state.PodSet{{Name: "main", Count: 1, Template: template}}
	return e
}

// TestNodesAreHeldByATaint if all pods of the gang tolerate it. However the booking ends, the taint is removed.
func TestNodesAreHeldByATaint(t *testing.T) {
	mixed := tolerant()
	mixed.Gang.PodSets = append(mixed.Gang.PodSets, state.PodSet{Name: "other", Count: 1, Template: &corev1.PodTemplateSpec{}})
	n := &corev1.Node{}
	if err := book(n, mixed, whole, opened, now, nil); err != nil || state.IsTainted(n) || !n.Spec.Unschedulable {
		t.Fatalf("a podSet does not tolerate the taint: %+v, %v", n.Spec, err)
	}
	for name, end := range map[string]func(*corev1.Node) error{
		"unbooked":  func(n *corev1.Node) error { return unbook(n, tolerant(), false) },
		"unlabeled": func(n *corev1.Node) error { Unlabel(n, "gang"); return LiftCordon(n) },
		"booked by another one": func(n *corev1.Node) error {
			Unlabel(n, "gang")
			other := entry("other")
			if err := book(n, other, whole, opened, now, nil); err != nil || state.IsTainted(n) || n.Labels[v1alpha1.BookedByLabel] != "" {
				return fmt.Errorf("%+v %+v, %w", n.ObjectMeta, n.Spec, err)
			}
			return unbook(n, other, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{}
			n.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
			if err := Cordon(n, v1alpha1.CordonJoining); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a booking may be written again
				if err := book(n, tolerant(), whole, opened, now, nil); err != nil {
					t.Fatal(err)
				}
				if n.Spec.Unschedulable || len(n.Spec.Taints) != 2 || state.CordonOf(n) != state.Held || n.Labels[v1alpha1.BookedByLabel] != "uid" ||
					n.Labels[v1alpha1.HeldLabel] == "" {
					t.Errorf("booked node: %+v %+v", n.ObjectMeta, n.Spec)
				}
			}
			if err := end(n); err != nil {
				t.Fatal(err)
			}
			if n.Spec.Unschedulable || len(n.Spec.Taints) != 1 || len(n.Labels) > 0 || len(n.Annotations) > 0 {
				t.Errorf("after the booking: %+v %+v", n.ObjectMeta, n.Spec)
			}
		})
	}
}

// TestACordonBesideTheTaintStays: others have placed it.
func TestACordonBesideTheTaintStays(t *testing.T) {
	n := &corev1.Node{}
	if err := book(n, tolerant(), whole, opened, now, nil); err != nil {
		t.Fatal(err)
	}
	n.Spec.Unschedulable = true
	if state.CordonOf(n) != state.Foreign {
		t.Error("the cordon counts as Muster's")
	}
	if err := book(n, tolerant(), whole, opened, now, nil); !errors.Is(err, errCordoned) {
		t.Errorf("booking it: %v", err)
	}
	if err := unbook(n, tolerant(), false); err != nil || !n.Spec.Unschedulable || state.IsTainted(n) {
		t.Errorf("unbooked: %+v, %v", n.Spec, err)
	}
}

// TestANodeSaysWhichTenantHasLeftIt: the cost of an idle node is attributed to the queue of the gang that ran on it.
func TestANodeSaysWhichTenantHasLeftIt(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.NodeGroupLabel: "gpu"}}}
	e := entry("uid")
	e.Gang.Queue = "research"
	if err := errors.Join(book(n, e, whole, opened, now, nil), unbook(n, e, false)); err != nil {
		t.Fatal(err)
	}
	want := state.Tenant{Namespace: "ns", Queue: "research"}
	if got := state.TenantNamed(n.Annotations[v1alpha1.LeftByAnnotation]); got != want {
		t.Errorf("it was left by %v, want %v", got, want)
	}
}
