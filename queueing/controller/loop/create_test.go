package loop

import (
	"context"
	"fmt"
	"slices"
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

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestARequestThatTheServerRefusesBlocksNoOtherWorkload: its Workload releases its quota
// and repeats the server's error, and the other one is admitted.
func TestARequestThatTheServerRefusesBlocksNoOtherWorkload(t *testing.T) {
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
	if workload.HasQuota(bad) || bad.Status.RequeueState == nil || bad.Status.RequeueState.RequeueAt == nil {
		t.Errorf("bad has quota: %v, requeue state %v", workload.HasQuota(bad), bad.Status.RequeueState)
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

// machinesOf is a queue of 4 CPUs whose check is Kueue's own.
func machinesOf() []client.Object {
	objects := queueOf("4", kueue.AdmissionCheckStrategyRule{Name: "machines"})
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "machines", UID: "machines"}}
	ac.Spec.ControllerName = cache.ProvisioningRequestController
	ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "ProvisioningRequestConfig",
		Name: "machines"}
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: "machines", UID: "config"}}
	config.Spec.ProvisioningClassName = "check-capacity.autoscaling.x-k8s.io"
	return append(objects, ac, config)
}

// TestTheRequestOwnsItsTemplates, and no template with another spec, at whichever step the process died at the first attempt.
func TestTheRequestOwnsItsTemplates(t *testing.T) {
	expect := func(t *testing.T, w *world, owner types.UID) {
		t.Helper()
		template := &corev1.PodTemplate{}
		w.get("ppt-train-machines-1-main", template)
		if c := metav1.GetControllerOf(template); c == nil || c.UID != owner || len(template.OwnerReferences) > 1 {
			t.Errorf("the template is owned by %+v, want %s", template.OwnerReferences, owner)
		}
		if got := template.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "4" {
			t.Errorf("the template asks for %s CPUs, want 4", got)
		}
	}
	t.Run("nothing goes wrong", func(t *testing.T) {
		w := newWorld(t, nil, append(machinesOf(), workloadOf("train", "4"))...)
		w.run(5 * time.Second)
		r := &autoscaling.ProvisioningRequest{}
		w.get("train-machines-1", r)
		expect(t, w, r.UID)
	})
	t.Run("a template of an attempt that was cut short asks for something else", func(t *testing.T) {
		old := templateOf("train-machines-1", metav1.OwnerReference{Kind: "Workload", Name: "train", UID: "train", Controller: new(true)})
		old.Template.Spec = workloadOf("train", "8").Spec.PodSets[0].Template.Spec
		w := newWorld(t, nil, append(machinesOf(), workloadOf("train", "4"), old)...)
		w.run(5 * time.Second)
		r := &autoscaling.ProvisioningRequest{}
		w.get("train-machines-1", r)
		expect(t, w, r.UID)
	})
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprintf("the process dies at write %d", n), func(t *testing.T) {
			w := newWorld(t, nil, machinesOf()...)
			k := &killer{left: n, after: true}
			w.restart(k.wrap)
			w.create(workloadOf("train", "4"))
			w.die(k, 10*time.Second, func() {})
			r := &autoscaling.ProvisioningRequest{}
			w.get("train-machines-1", r)
			template := &corev1.PodTemplate{}
			w.get("ppt-train-machines-1-main", template)
			if c := metav1.GetControllerOf(template); c == nil || c.UID != r.UID && c.Name != "train" {
				t.Errorf("the template is owned by %+v", template.OwnerReferences)
			}
		})
	}
}

func templateOf(request string, owner ...metav1.OwnerReference) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "ppt-" + request + "-main", Namespace: "default", OwnerReferences: owner}}
}

// TestTheNameIsTakenByALeftover: the object with the name was deleted a moment ago, and its templates, perhaps with another spec, are not
// garbage collected yet. The Workload reports that, and continues soon after they are.
func TestTheNameIsTakenByALeftover(t *testing.T) {
	for name, tt := range map[string]struct {
		queue   []client.Object
		request string
		owner   metav1.OwnerReference
		// going: it was deleted, and its finalizer holds it.
		going bool
	}{
		"of a job of the same name": {
			queueOf("4", capacityRule), "train-capacity-1", metav1.OwnerReference{Kind: "Workload", Name: "train", UID: "old",
				Controller: new(true)}, false},
		"of its own, which is about to go": {
			queueOf("4", capacityRule), "train-capacity-1", metav1.OwnerReference{Kind: "Workload", Name: "train", UID: "train",
				Controller: new(true)}, true},
		"of a request before the eviction": {
			machinesOf(), "train-machines-1", metav1.OwnerReference{Kind: "ProvisioningRequest", Name: "train-machines-1", UID: "old",
				Controller: new(true)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			leftover := templateOf(tt.request, tt.owner)
			leftover.UID = "leftover"
			if tt.going {
				leftover.Finalizers, leftover.DeletionTimestamp = []string{"example.com/hold"}, new(metav1.NewTime(start))
			}
			w := newWorld(t, nil, append(tt.queue, workloadOf("train", "4"), leftover)...)
			w.run(30 * time.Second)
			var requests autoscaling.ProvisioningRequestList
			if err := w.api.List(t.Context(), &requests); err != nil || len(requests.Items) > 0 {
				t.Errorf("%d requests use the leftover, error %v", len(requests.Items), err)
			}
			if !slices.Contains(w.events, "WaitingForDeletion train") {
				t.Errorf("no event says so: %q", w.events)
			}
			gone := w.api.Delete
			if tt.going {
				gone = func(ctx context.Context, o client.Object, _ ...client.DeleteOption) error {
					o.SetFinalizers(nil)
					return w.api.Update(ctx, o)
				}
			}
			w.get(leftover.Name, leftover)
			if err := gone(t.Context(), leftover); err != nil {
				t.Fatal(err)
			}
			w.run(2 * shortRetry)
			r := &autoscaling.ProvisioningRequest{}
			w.get(tt.request, r)
			template := &corev1.PodTemplate{}
			if w.get(leftover.Name, template); template.UID == "leftover" {
				t.Errorf("the template is owned by %v", template.OwnerReferences)
			}
		})
	}
}

// TestTheNameIsTakenByAnUnrelatedObject: the Workload reports that, and the next attempt has another name.
func TestTheNameIsTakenByAnUnrelatedObject(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("4", capacityRule), workloadOf("train", "4"), templateOf("train-capacity-1"))...)
	w.run(5 * time.Second)
	if text := evictedBecause(w.workload("train")); !strings.Contains(text, "Muster did not create") {
		t.Errorf("it says %q", text)
	}
	w.run(time.Minute)
	w.get("train-capacity-2", &autoscaling.ProvisioningRequest{})
}

// TestAnAnswerThatComesAfterTheEnd: a request is deleted while the answer to
// its creation is on the way. The next one must not wait for the one that is gone.
func TestAnAnswerThatComesAfterTheEnd(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("4", capacityRule), workloadOf("train", "4"))...)
	meddled := false
	carryOut := w.loop.start
	w.loop.start = func(u writes.Urgency, namespace string, write writes.Write) {
		carryOut(u, namespace, func(ctx context.Context) writes.Done {
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
		t.Fatal("no request was deleted meanwhile")
	}
	w.get("train-capacity-1", &autoscaling.ProvisioningRequest{})
}
