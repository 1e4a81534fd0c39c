package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
)

var capacityRule = kueue.AdmissionCheckStrategyRule{Name: "capacity"}

// TestARequestThatTheServerRefusesHarmsNobodyElse: its workload lets go of its
// quota and says what the server said, and the other one has its turn.
func TestARequestThatTheServerRefusesHarmsNobodyElse(t *testing.T) {
	c := build(t, append(queueOf("4", capacityRule), workloadOf("bad", "4"), workloadOf("good", "4"))...)
	l := newLoop(interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if strings.HasPrefix(o.GetName(), "bad") {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "ProvisioningRequest"}, o.GetName(), nil)
			}
			return c.Create(ctx, o, opts...)
		},
	}))
	settled(t, l)
	result, err := l.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the loop rests with %v, %v; want it to wake for the next attempt", result, err)
	}
	bad := &kueue.Workload{}
	get(t, c, "bad", bad)
	if queueing.HasQuota(bad) || bad.Status.RequeueState == nil || bad.Status.RequeueState.RequeueAt == nil {
		t.Errorf("bad has quota: %v, requeue state %v", queueing.HasQuota(bad), bad.Status.RequeueState)
	}
	if text := evictedBecause(bad); !strings.Contains(text, "could not be created") || !strings.Contains(text, "is invalid") {
		t.Errorf("bad says %q", text)
	}
	get(t, c, "good-capacity-1", &autoscaling.ProvisioningRequest{})
}

func evictedBecause(w *kueue.Workload) string {
	for _, c := range w.Status.Conditions {
		if c.Type == kueue.WorkloadEvicted {
			return c.Message
		}
	}
	return ""
}

func templateOwnedBy(owner ...metav1.OwnerReference) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "ppt-train-capacity-1-main", Namespace: "default", OwnerReferences: owner}}
}

// TestTheNameIsTakenByALeftover: a job of the same name was deleted a moment ago,
// and its templates, perhaps of another shape, are not collected yet.
func TestTheNameIsTakenByALeftover(t *testing.T) {
	leftover := templateOwnedBy(metav1.OwnerReference{Kind: "Workload", Name: "train", UID: "the-old-one", Controller: new(true)})
	c := build(t, append(queueOf("4", capacityRule), workloadOf("train", "4"), leftover)...)
	l := newLoop(c)
	for range 4 {
		_, _ = l.Reconcile(t.Context(), reconcile.Request{})
	}
	var requests autoscaling.ProvisioningRequestList
	if err := c.List(t.Context(), &requests); err != nil || len(requests.Items) > 0 {
		t.Errorf("%d requests use the leftover, error %v", len(requests.Items), err)
	}
	if err := c.Delete(t.Context(), leftover); err != nil {
		t.Fatal(err)
	}
	settled(t, l)
	get(t, c, "train-capacity-1", &autoscaling.ProvisioningRequest{})
	template := &corev1.PodTemplate{}
	if get(t, c, leftover.Name, template); template.OwnerReferences[0].UID != types.UID("train") {
		t.Errorf("the template is owned by %v", template.OwnerReferences)
	}
}

// TestTheNameIsTakenByAStranger: that is told, and the next attempt has another
// name.
func TestTheNameIsTakenByAStranger(t *testing.T) {
	c := build(t, append(queueOf("4", capacityRule), workloadOf("train", "4"), templateOwnedBy())...)
	now := start
	l := newLoop(c)
	l.now = func() time.Time { return now }
	settled(t, l)
	w := &kueue.Workload{}
	if get(t, c, "train", w); !strings.Contains(evictedBecause(w), "Muster did not make") {
		t.Errorf("it says %q", evictedBecause(w))
	}
	now = now.Add(time.Minute)
	settled(t, l)
	get(t, c, "train-capacity-2", &autoscaling.ProvisioningRequest{})
}

// fickle is a picture of the machines that changes while it is looked at.
type fickle struct {
	changed chan struct{}
	queued  func() int
}

func (f *fickle) Distinguish(...string) {}

func (f *fickle) Changed() <-chan struct{} { return f.changed }

// Snapshot returns once the change has been seen, or has had time to be missed.
func (f *fickle) Snapshot(time.Time) *provisioning.Snapshot {
	f.changed <- struct{}{}
	for range 100 {
		if f.queued() > 0 {
			break
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // nothing tells that a change was missed
	}
	return provisioning.NewSnapshot(start, provisioning.NewNodes(), nil, nil)
}

func TestMachinesThatChangeDuringARunLeadToAnother(t *testing.T) {
	c := build(t, append(queueOf("8", capacityRule), workloadOf("train", "4"))...)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	l := newLoop(c)
	l.capacity = &fickle{changed: make(chan struct{}), queued: queue.Len}
	if err := l.followCapacity(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	if queue.Len() != 1 {
		t.Error("the change is forgotten, and the workload waits for ever")
	}
}
