package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
)

// TestBothSidesOfAPreemptionHaveEvents as in Kueue.
func TestBothSidesOfAPreemptionHaveEvents(t *testing.T) {
	objects := queueOf("1")
	objects[0].(*kueue.ClusterQueue).Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	w := newWorld(t, nil, append(objects, workloadOf("old", "1"))...)
	w.run(2 * time.Second)
	urgent := workloadOf("urgent", "1")
	urgent.Spec.Priority = new(int32(10))
	w.create(urgent)
	w.run(2 * time.Second)
	for _, want := range []string{"Preempted old", "PreemptedWorkload urgent"} {
		if !slices.Contains(w.events, want) {
			t.Errorf("no event tells %q: %q", want, w.events)
		}
	}
}

// TestAPendingWorkloadReportsItsRequests until its admission has them.
func TestAPendingWorkloadReportsItsRequests(t *testing.T) {
	big := workloadOf("big", "500m")
	big.Spec.PodSets[0].Count = 3
	w := newWorld(t, nil, append(queueOf("1"), big)...)
	w.run(5 * time.Second)
	want := []kueue.PodSetRequest{{Name: "main", Resources: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}}
	if diff := cmp.Diff(want, w.workload("big").Status.ResourceRequests); diff != "" {
		t.Errorf("while it waits (-want +got)\n%s", diff)
	}
	cq := &kueue.ClusterQueue{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	cq.Generation++
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
	if err := w.api.Update(t.Context(), cq); err != nil {
		t.Fatal(err)
	}
	w.run(5 * time.Second)
	if got := w.workload("big").Status; got.Admission == nil || got.ResourceRequests != nil {
		t.Errorf("with quota it is %+v", got)
	}
}

// TestSharesAreReportedBeforeAnythingIsUsed, so that a reader need not guess what their absence
// means.
func TestSharesAreReportedBeforeAnythingIsUsed(t *testing.T) {
	objects := queueOf("1")
	objects[0].(*kueue.ClusterQueue).Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "empty", UID: "cohort"}}
	w := newWorld(t, nil, append(objects, cohort)...)
	settings := config.Config{FairSharing: &kueueconfig.FairSharing{}, AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{}}
	settings.SetDefaults("muster-system")
	w.set(settings, nil)
	w.run(2 * time.Second)
	lq, cq := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	w.get("main", lq)
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "empty"}, cohort); err != nil {
		t.Fatal(err)
	}
	if lq.Status.FairSharing == nil || lq.Status.FairSharing.AdmissionFairSharingStatus == nil ||
		lq.Status.FairSharing.AdmissionFairSharingStatus.LastUpdate.IsZero() {
		t.Errorf("the LocalQueue has the share %+v", lq.Status.FairSharing)
	}
	if cq.Status.FairSharing == nil || cohort.Status.FairSharing == nil {
		t.Errorf("the ClusterQueue has the share %+v, the cohort %+v", cq.Status.FairSharing, cohort.Status.FairSharing)
	}
}
