package loop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/reasons"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// counter counts the writes to Workloads and those of statuses.
type counter struct{ workloads, statuses int }

func (n *counter) wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			n.statuses++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			n.workloads++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// TestStatusIsWrittenWhenItChanges counts the writes of a queue at rest.
func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	n := &counter{}
	w := newWorld(t, n.wrap, append(queueOf("1"), workloadOf("a", "1"))...)
	w.run(time.Minute)
	// The queue and the LocalQueue twice each, pending and then admitted; the
	// check once.
	if n.statuses != 5 || n.workloads != 1 {
		t.Errorf("%d status writes, want 5, and %d of workloads, want 1", n.statuses, n.workloads)
	}
	cq := &kueue.ClusterQueue{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	if cq.Status.AdmittedWorkloads != 1 || cq.Status.PendingWorkloads != 0 || cq.Status.FlavorsUsage[0].Resources[0].Total.String() != "1" {
		t.Errorf("status of the queue: %+v", cq.Status)
	}
}

// TestStatusesUnderLoad: 120 Workloads come in 4 s. Statuses get a twentieth of the
// writes and one a second, beside the first of each, and are right once it is quiet.
func TestStatusesUnderLoad(t *testing.T) {
	n := &counter{}
	w := newWorld(t, n.wrap, queueOf("1000")...)
	w.run(time.Second)
	*n = counter{}
	w.loop.report.saved = 0
	for i := range 120 {
		job := workloadOf(fmt.Sprintf("job-%03d", i), "1")
		job.UID = ""
		if err := w.api.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		w.run(33 * time.Millisecond)
	}
	if n.workloads < 120 || n.statuses > n.workloads/actsPerReport+4+2 {
		t.Errorf("%d writes of statuses beside %d of workloads", n.statuses, n.workloads)
	}
	cq := &kueue.ClusterQueue{}
	w.run(5 * time.Second)
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	if cq.Status.AdmittedWorkloads != 120 {
		t.Errorf("once it is quiet the status says that %d are admitted, want 120", cq.Status.AdmittedWorkloads)
	}
}

// TestAVerdictWhileTheReasonIsWritten: quota becomes free while the status of a Workload is being written that says it waits for quota. The
// next write admits it, and no write is lost.
func TestAVerdictWhileTheReasonIsWritten(t *testing.T) {
	n := &counter{}
	w := newWorld(t, n.wrap, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	w.run(500 * time.Millisecond)
	if !workload.IsAdmitted(w.workload("a")) {
		t.Fatal("a is not admitted")
	}
	var slow func()
	carryOut := w.loop.start
	w.loop.start = func(u writes.Urgency, namespace string, write writes.Write) {
		if u == writes.Paced && slow == nil && len(w.loop.explaining) > 0 {
			slow = func() { carryOut(u, namespace, write) }
			return
		}
		carryOut(u, namespace, write)
	}
	w.run(time.Second)
	if slow == nil {
		t.Fatal("b is not told why it waits")
	}
	if err := w.api.Delete(t.Context(), w.workload("a")); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	before := n.workloads
	slow()
	w.run(time.Second)
	if !workload.IsAdmitted(w.workload("b")) || n.workloads != before+2 {
		t.Errorf("b is admitted: %v, after %d writes, want 2", workload.IsAdmitted(w.workload("b")), n.workloads-before)
	}
}

// TestAReasonThatCouldNotBeWritten is written again, unless something else follows that
// says more of the Workload.
func TestAReasonThatCouldNotBeWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		follows []next
		again   bool
	}{
		"nothing follows":                         {nil, true},
		"the creation of a request follows":       {[]next{{waits: true}}, true},
		"an admission follows":                    {[]next{{}}, false},
		"an admission follows that of a request,": {[]next{{waits: true}, {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, append(queueOf("0"), workloadOf("a", "1"))...)
			w.run(5 * time.Second)
			object := w.workload("a")
			went := 0
			for i := range tc.follows {
				tc.follows[i].start = func(_, after *kueue.Workload) {
					if went++; after != nil {
						t.Errorf("it goes on with %v", after)
					}
				}
			}
			w.loop.explaining[object.UID] = tc.follows
			r := &reasons.Reason{Workload: object.UID, Reason: "r", Message: "m"}
			w.loop.explained(r, object, nil, errors.New("connection refused"), time.Now())
			if again := w.loop.reasons.Has(object.UID); again != tc.again || went != len(tc.follows) {
				t.Errorf("written again: %t, want %t; %d of %d went on", again, tc.again, went, len(tc.follows))
			}
		})
	}
}
