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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// TestARequestThatTheServerRefusesHarmsNobodyElse: its workload lets go of its
// quota and says what the server said, and the other one has its turn.
func TestARequestThatTheServerRefusesHarmsNobodyElse(t *testing.T) {
	w := newWorld(t, func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if strings.HasPrefix(o.GetName(), "bad") {
					return apierrors.NewInvalid(schema.GroupKind{Kind: "ProvisioningRequest"}, o.GetName(), nil)
				}
				return c.Create(ctx, o, opts...)
			},
		})
	}, append(queueOf("4", capacityRule), workloadOf("bad", "4"), workloadOf("good", "4"))...)
	w.run(5 * time.Second)
	bad := w.workload("bad")
	if queueing.HasQuota(bad) || bad.Status.RequeueState == nil || bad.Status.RequeueState.RequeueAt == nil {
		t.Errorf("bad has quota: %v, requeue state %v", queueing.HasQuota(bad), bad.Status.RequeueState)
	}
	if text := evictedBecause(bad); !strings.Contains(text, "could not be created") || !strings.Contains(text, "is invalid") {
		t.Errorf("bad says %q", text)
	}
	w.get("good-capacity-1", &autoscaling.ProvisioningRequest{})
	if err := w.api.Delete(context.Background(), w.workload("good")); err != nil {
		t.Fatal(err)
	}
	w.run(2 * time.Minute)
	if got := w.workload("bad").Status.RequeueState.Count; got == nil || *got < 2 {
		t.Errorf("it was not tried again once there was room: count %v", got)
	}
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
	w := newWorld(t, nil, append(queueOf("4", capacityRule), workloadOf("train", "4"), leftover)...)
	w.run(10 * time.Second)
	var requests autoscaling.ProvisioningRequestList
	if err := w.api.List(t.Context(), &requests); err != nil || len(requests.Items) > 0 {
		t.Errorf("%d requests use the leftover, error %v", len(requests.Items), err)
	}
	if err := w.api.Delete(t.Context(), leftover); err != nil {
		t.Fatal(err)
	}
	w.run(lastRetry + time.Second)
	w.get("train-capacity-1", &autoscaling.ProvisioningRequest{})
	template := &corev1.PodTemplate{}
	if w.get(leftover.Name, template); template.OwnerReferences[0].UID != types.UID("train") {
		t.Errorf("the template is owned by %v", template.OwnerReferences)
	}
}

// TestTheNameIsTakenByAStranger: that is told, and the next attempt has another
// name.
func TestTheNameIsTakenByAStranger(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("4", capacityRule), workloadOf("train", "4"), templateOwnedBy())...)
	w.run(5 * time.Second)
	if text := evictedBecause(w.workload("train")); !strings.Contains(text, "Muster did not make") {
		t.Errorf("it says %q", text)
	}
	w.run(time.Minute)
	w.get("train-capacity-2", &autoscaling.ProvisioningRequest{})
}

// TestAnAnswerThatComesAfterTheEnd: somebody deletes a request while the answer to
// its creation is on the way. The next one must not wait for the one that is gone.
func TestAnAnswerThatComesAfterTheEnd(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("4", capacityRule), workloadOf("train", "4"))...)
	meddled := false
	carryOut := w.loop.start
	w.loop.start = func(u urgency, write write) {
		carryOut(u, func(ctx context.Context) settle {
			s := write(ctx)
			r := &autoscaling.ProvisioningRequest{}
			if w.api.Get(ctx, client.ObjectKey{Namespace: "default", Name: "train-capacity-1"}, r) == nil && !meddled {
				meddled = true
				w.loop.inbox.OnAdd(r, false)
				if err := w.api.Delete(ctx, r); err != nil {
					t.Fatal(err)
				}
				w.loop.inbox.OnDelete(r)
			}
			return s
		})
	}
	w.run(5 * time.Second)
	if !meddled {
		t.Fatal("nobody meddled")
	}
	w.get("train-capacity-1", &autoscaling.ProvisioningRequest{})
}
