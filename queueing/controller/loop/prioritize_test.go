package loop

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestPrioritiesFollowTheirClass in one write for each Workload, though writes fail and
// the class changes again meanwhile.
func TestPrioritiesFollowTheirClass(t *testing.T) {
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low", UID: "low"}, Value: 1}
	of := func(w *kueue.Workload) *kueue.Workload {
		w.Spec.PriorityClassRef, w.Spec.Priority = kueue.NewWorkloadPriorityClassRef("low"), new(int32(1))
		return w
	}
	writes, fail := 0, 0
	var meanwhile func()
	faults := func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if _, ok := o.(*kueue.Workload); !ok {
					return c.Patch(ctx, o, p, opts...)
				}
				if writes++; fail > 0 {
					fail--
					return apierrors.NewInternalError(context.DeadlineExceeded)
				}
				if meanwhile != nil {
					meanwhile()
					meanwhile = nil
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
	}
	w := newWorld(t, faults, append(queueOf("1"), class, of(ofJob(workloadOf("runs", "1"))), of(workloadOf("waits", "1")))...)
	set := func(value int32) {
		t.Helper()
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(class), class); err != nil {
			t.Fatal(err)
		}
		class.Value = value
		if err := w.api.Update(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want int32, wantWrites int) {
		t.Helper()
		w.run(10 * time.Second)
		for _, name := range []string{"runs", "waits"} {
			if x := w.workload(name); *x.Spec.Priority != want || workload.HasQuota(x) != (name == "runs") {
				t.Errorf("%s: %s has priority %d, want %d; has quota: %v", when, name, *x.Spec.Priority, want, workload.HasQuota(x))
			}
		}
		if writes != wantWrites {
			t.Errorf("%s: %d writes to specs, want %d", when, writes, wantWrites)
		}
		writes = 0
	}
	check("at first", 1, 0)
	set(5)
	check("the class changes", 5, 2)
	fail = 3
	set(6)
	check("writes fail", 6, 5)
	meanwhile = func() { set(8) }
	set(7)
	check("the class changes while it is followed", 8, 4)
	w.blind = true
	set(9)
	w.blind = false
	w.restart(faults)
	check("the class changed while no process ran", 9, 2)
}
