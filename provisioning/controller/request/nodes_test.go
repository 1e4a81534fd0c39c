package request

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
)

func entry(uid types.UID) *model.Entry {
	e := &model.Entry{Request: &provisioning.Request{}}
	e.UID, e.Namespace, e.Name, e.Gang.Key = uid, "ns", "gang", "gang"
	return e
}

var (
	now   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	whole = provisioning.Placement{Requests: nodegroups.Resources{"nvidia.com/gpu": 8}, Whole: true}
)

func TestAHumansCordonIsNotTakenOver(t *testing.T) {
	n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	if err := book(n, entry("uid"), whole, now); !errors.Is(err, errCordoned) {
		t.Errorf("booking a node that a human has cordoned: %v", err)
	}
	n = &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	if err := uncordon(n); err != nil || !n.Spec.Unschedulable {
		t.Errorf("a human's cordon was lifted (%v)", err)
	}
}

func TestBookingAndUnbookingLeaveNothing(t *testing.T) {
	n := &corev1.Node{}
	e := entry("uid")
	if err := book(n, e, whole, now); err != nil {
		t.Fatal(err)
	}
	if !n.Spec.Unschedulable || n.Labels["booked.muster.dev/gang"] != "ns" || n.Annotations[v1alpha1.CordonedAnnotation] != v1alpha1.CordonBooked {
		t.Errorf("booked node: %+v %+v", n.ObjectMeta, n.Spec)
	}
	if err := unbook(n, e, false); err != nil {
		t.Fatal(err)
	}
	if n.Spec.Unschedulable || len(n.Labels) > 0 || len(n.Annotations) > 0 {
		t.Errorf("unbooked node: %+v %+v", n.ObjectMeta, n.Spec)
	}
}

func TestAnotherRequestsLabelIsNotOverwritten(t *testing.T) {
	n := &corev1.Node{}
	first := entry("first")
	second := entry("second")
	if err := book(n, first, whole, now); err != nil {
		t.Fatal(err)
	}
	if err := book(n, second, whole, now); !errors.Is(err, errBooked) {
		t.Errorf("booking under a label that is taken: %v", err)
	}
}
