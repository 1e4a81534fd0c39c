package writes

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestARequeueStateOfOthersGoes though an apply removes only what its manager owns alone.
func TestARequeueStateOfOthersGoes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "team", UID: "train"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w).WithStatusSubresource(w).WithReturnManagedFields().Build()
	ctx := context.Background()
	if err := c.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(3)), RequeueAt: new(metav1.NewTime(time.Unix(1_800_000_000, 0)))}
	if err := c.Status().Update(ctx, w, client.FieldOwner("another")); err != nil {
		t.Fatal(err)
	}
	out, err := ApplyStatus(ctx, c, w, &kueue.WorkloadStatus{})
	if err != nil {
		t.Fatal(err)
	}
	have := &kueue.Workload{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(w), have); err != nil {
		t.Fatal(err)
	}
	if out.Status.RequeueState != nil || have.Status.RequeueState != nil || out.ResourceVersion != have.ResourceVersion {
		t.Errorf("it is said to be %+v of version %s, and is %+v of %s", out.Status.RequeueState, out.ResourceVersion, have.Status.RequeueState,
			have.ResourceVersion)
	}
}

// TestTheStatusOfAFinishedWorkloadIsFinal: what caches keep of it is less than it has.
func TestTheStatusOfAFinishedWorkloadIsFinal(t *testing.T) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "team"}}
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	if _, err := ApplyStatus(t.Context(), nil, w, &kueue.WorkloadStatus{}); !errors.Is(err, errFinished) {
		t.Errorf("an apply ends with %v, want that it is finished", err)
	}
}
