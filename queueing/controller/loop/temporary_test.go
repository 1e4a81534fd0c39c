package loop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

var cpus = quota.FlavorResource{Flavor: "flavor", Resource: "cpu"}

// setQuota sets the quota of the world's queue, as kubectl-muster does.
func (w *world) setQuota(cpu string, until time.Time) {
	w.t.Helper()
	_, patch, err := quota.SetNominal(w.queue(), cpus, resource.MustParse(cpu), until)
	if err == nil {
		err = w.api.Patch(w.t.Context(), w.queue(), client.RawPatch(types.JSONPatchType, patch))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.inform()
}

func (w *world) queue() *kueue.ClusterQueue {
	w.t.Helper()
	out := &kueue.ClusterQueue{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: "team"}, out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// hasQuota fails unless the quota is that, and whether it is temporary.
func (w *world) hasQuota(cpu string, temporary bool) {
	w.t.Helper()
	cq := w.queue()
	now, err := quota.Nominal(cq, cpus)
	if err != nil || now.String() != cpu || (cq.Annotations[quota.TemporaryAnnotation] != "") != temporary {
		w.t.Fatalf("%s: the quota is %s with the annotations %v (%v), want %s", w.now, now, cq.Annotations, err, cpu)
	}
}

// TestATemporaryQuotaIsRestored at its end, by another process than the one that saw it set, and admits meanwhile.
func TestATemporaryQuotaIsRestored(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	w.run(time.Minute)
	w.setQuota("2", start.Add(time.Hour))
	w.run(30 * time.Minute)
	w.hasQuota("2", true)
	if !workload.IsAdmitted(w.workload("a")) || !workload.IsAdmitted(w.workload("b")) {
		t.Error("the quota that was set is not given")
	}
	w.restart(nil)
	w.run(28 * time.Minute)
	w.hasQuota("2", true)
	w.run(2 * time.Minute)
	w.hasQuota("1", false)
	if !slices.Contains(w.events, "QuotaRestored team") {
		t.Errorf("the events are %v", w.events)
	}
	if !workload.IsAdmitted(w.workload("b")) {
		t.Error("a Workload that runs is evicted")
	}
	version := w.queue().ResourceVersion
	w.run(time.Hour)
	if w.queue().ResourceVersion != version {
		t.Error("the queue is written after the end")
	}
}

// TestAnEditOfATemporaryQuotaWins over its end, at once.
func TestAnEditOfATemporaryQuotaWins(t *testing.T) {
	w := newWorld(t, nil, queueOf("1")...)
	w.setQuota("2", start.Add(time.Hour))
	w.run(time.Minute)
	cq := w.queue()
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("3")
	cq.Generation++
	if err := w.api.Update(t.Context(), cq); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	w.hasQuota("3", false)
	w.run(2 * time.Hour)
	w.hasQuota("3", false)
	if !slices.Contains(w.events, "QuotaEdited team") || slices.Contains(w.events, "QuotaRestored team") {
		t.Errorf("the events are %v", w.events)
	}
}

// TestATemporaryQuotaIsRestoredAfterFailures of each kind, with a Warning for a refusal, which is tried again a minute later.
func TestATemporaryQuotaIsRestoredAfterFailures(t *testing.T) {
	group := schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "clusterqueues"}
	for name, tt := range map[string]struct {
		failure error
		within  time.Duration
		told    bool
	}{
		"a conflict": {apierrors.NewConflict(group, "team", errors.New("modified")), time.Second, false},
		"a refusal":  {apierrors.NewForbidden(group, "team", errors.New("refused")), 90 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			failures := 1
			w := newWorld(t, func(c client.WithWatch) client.WithWatch {
				return interceptor.NewClient(c, interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
						if _, ok := o.(*kueue.ClusterQueue); ok && failures > 0 {
							failures--
							return tt.failure
						}
						return c.Patch(ctx, o, p, options...)
					},
				})
			}, queueOf("1")...)
			w.setQuota("2", start.Add(time.Hour))
			w.run(time.Hour)
			w.run(tt.within)
			w.hasQuota("1", false)
			if told := slices.Contains(w.events, "QuotaNotRestored team"); told != tt.told || failures > 0 {
				t.Errorf("the events are %v", w.events)
			}
		})
	}
}
