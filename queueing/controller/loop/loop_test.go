package loop

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestDeathBetweenAnyTwoWrites drives a workload through a failed and a good
// attempt at capacity, kills the loop before and after each of its writes, lets
// another take over, and expects the same end each time.
func TestDeathBetweenAnyTwoWrites(t *testing.T) {
	died := 0
	for _, after := range []bool{false, true} {
		// Up to the first number of writes that it does without.
		for n, before := 1, -1; before < died; n++ {
			before = died
			t.Run(fmt.Sprintf("write=%d/after=%v", n, after), func(t *testing.T) {
				k := &killer{left: n, after: after}
				w := newWorld(t, k.wrap, append(queueOf("4", capacityRule), workloadOf("train", "4"))...)
				run := func(d time.Duration) {
					w.inform()
					for end := w.now.Add(d); w.now.Before(end); {
						w.step(end)
						if k.died {
							k.died = false
							died++
							w.restart(nil)
						}
						expectOneRequest(t, w)
					}
				}
				run(time.Second)
				w.answer("train-capacity-1", metav1.ConditionFalse)
				// With one flavor only, the next attempt comes after a pause.
				run(15 * time.Second)
				w.answer("train-capacity-2", metav1.ConditionTrue)
				run(time.Second)

				train := w.workload("train")
				if !workload.IsAdmitted(train) || train.Status.AdmissionChecks[0].State != "Ready" {
					t.Fatalf("not admitted: %+v", train.Status)
				}
				if got := train.Status.AdmissionChecks[0].PodSetUpdates[0].NodeSelector["booked.muster.dev/train-capacity-2"]; got != "default" {
					t.Errorf("the pods do not select their booked nodes: %+v", train.Status.AdmissionChecks[0].PodSetUpdates)
				}
				var templates corev1.PodTemplateList
				if err := w.api.List(context.Background(), &templates); err != nil {
					t.Fatal(err)
				}
				if len(templates.Items) > 2 {
					t.Errorf("%d templates are left", len(templates.Items))
				}
			})
		}
	}
	if died < 20 {
		t.Errorf("only %d deaths: the test does not reach the writes that it is about", died)
	}
}

func expectOneRequest(t *testing.T, w *world) {
	t.Helper()
	var requests autoscaling.ProvisioningRequestList
	if err := w.api.List(context.Background(), &requests); err != nil {
		t.Fatal(err)
	}
	if len(requests.Items) > 1 {
		t.Fatalf("%d requests are live at once", len(requests.Items))
	}
	for _, r := range requests.Items {
		for _, ps := range r.Spec.PodSets {
			w.get(ps.PodTemplateRef.Name, &corev1.PodTemplate{})
		}
	}
}

// TestStaleCache lets the cache lag behind the loop's own writes: quota that it
// has given out must not be given out again, and nothing is written twice.
func TestStaleCache(t *testing.T) {
	writes := 0
	w := newWorld(t, func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	}, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	w.blind = true
	w.run(5 * time.Second)
	if a, b := w.workload("a"), w.workload("b"); !workload.IsAdmitted(a) || workload.HasQuota(b) {
		t.Errorf("a admitted: %v, b has quota: %v; want only a", workload.IsAdmitted(a), workload.HasQuota(b))
	}
	if writes != 2 {
		t.Errorf("%d writes to workloads, want 2: the admission of a and the reason of b", writes)
	}
	// Nor does it matter when the old versions come at last.
	w.blind = false
	w.run(5 * time.Second)
	if writes != 2 {
		t.Errorf("%d writes to workloads once the cache has caught up, want 2", writes)
	}
}

// TestUnknownOutcome loses the answer to an admission that took effect, while the
// cache lags: the loop must read the Workload before it gives the quota to another one, even of
// higher priority.
func TestUnknownOutcome(t *testing.T) {
	lost := false
	w := newWorld(t, func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				err := c.SubResource(sub).Patch(ctx, o, p, opts...)
				if !lost && o.GetName() == "a" {
					lost = true
					return context.DeadlineExceeded
				}
				return err
			},
		})
	}, append(queueOf("1"), workloadOf("a", "1"))...)
	w.blind = true
	w.step(w.now)
	if !lost {
		t.Fatal("no answer was lost")
	}
	b := workloadOf("b", "1")
	b.Spec.Priority = new(int32(10))
	if err := w.api.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.loop.inbox.OnAdd(b, false)
	w.run(5 * time.Second)
	if workload.HasQuota(w.workload("b")) {
		t.Error("the quota was given out twice")
	}
}

// TestAWorkloadIsKeptOnce: the informer keeps what it brings, so nothing else keeps another
// object of the same version, such as the answer to the write that made it.
func TestAWorkloadIsKeptOnce(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), workloadOf("a", "1"))...)
	w.loop.step(w.now) // it is given quota
	w.loop.step(w.now) // the answer is here
	w.inform()
	w.loop.step(w.now)
	uid := w.workload("a").UID
	brought := w.seen[uid].(*kueue.Workload)
	if !workload.IsAdmitted(brought) {
		t.Fatalf("it is not admitted: %v", brought.Status.Conditions)
	}
	if w.loop.known.workload(uid) != brought {
		t.Error("the loop keeps another object")
	}
	if w.loop.state.AllWorkloads()[0].Object != brought {
		t.Error("the State keeps another object")
	}
}
