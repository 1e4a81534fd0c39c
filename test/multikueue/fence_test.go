package multikueue

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

var fenceFor = flag.Duration("fence", 0, "cut a cluster off for longer than a fence of so long, at least 1m; 0 does not")

// fence has the first cluster stop its copies once the manager is silent.
func (s *site) fence(after string) {
	s.Helper()
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	s.Get(cluster)
	patch := client.MergeFrom(cluster.DeepCopy())
	if cluster.Annotations = map[string]string{dispatch.FenceAnnotation: after}; after == "" {
		cluster.Annotations = nil
	}
	if err := s.Kube.Patch(context.Background(), cluster, patch); err != nil {
		s.Fatal(err)
	}
}

// wantFence waits for the first cluster's condition; none is wanted without a reason.
func (s *site) wantFence(status metav1.ConditionStatus, reason, part string) {
	s.Helper()
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	s.Eventually("the condition of the fence: "+reason, func() bool {
		s.Get(cluster)
		c := meta.FindStatusCondition(cluster.Status.Conditions, "muster.dev/Fenced")
		if c == nil {
			return reason == ""
		}
		return c.Status == status && c.Reason == reason && strings.Contains(c.Message, part)
	}, func() string { return fmt.Sprint(cluster.Status) })
}

// copyFence is that of the job's copy in the first cluster.
func (s *site) copyFence(j *batchv1.Job) string {
	s.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(j).Name}}
	s.workers[0].Get(w)
	return w.Annotations[dispatch.FenceAnnotation]
}

// TestAMultiKueueClusterRequestsAFence by an annotation: its condition reports whether it holds, and later copies have it.
func TestAMultiKueueClusterRequestsAFence(t *testing.T) {
	s := newOwnSite(t, 8, 8)
	defer s.fence("")
	before := s.job("before", 1, long)
	s.running(before)
	s.fence("10")
	s.wantFence(metav1.ConditionFalse, "BadDuration", `annotation muster.dev/fence is "10": give a duration from 1m0s to 24h0m0s`)
	s.fence("10m")
	s.wantFence(metav1.ConditionTrue, "Fenced", "for 10m")
	after := s.job("after", 1, long)
	s.running(after)
	if got := [2]string{s.copyFence(before), s.copyFence(after)}; got != [2]string{"", "10m0s"} {
		t.Errorf("the copies have the fences %q", got)
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(after).Name}}
	s.workers[0].Get(w)
	patch := client.MergeFrom(w.DeepCopy())
	delete(w.Annotations, dispatch.FenceAnnotation)
	if err := s.workers[0].Kube.Patch(t.Context(), w, patch); err == nil ||
		!strings.Contains(err.Error(), "the annotation muster.dev/fence of a Workload may not change") {
		t.Errorf("the fence of a copy was taken away: %v", err)
	}
	s.fence("")
	s.wantFence("", "", "")
}

// TestAJobGoesOnBehindItsFence where its cluster is cut off: it stops there first, and what is left of it goes when the cluster is back. It
// takes 5 minutes:
//
//	go test ./test/multikueue -run TestAJobGoesOnBehindItsFence -v -manager muster -fence 1m
func TestAJobGoesOnBehindItsFence(t *testing.T) {
	if *fenceFor == 0 {
		t.Skip("-fence is 0")
	}
	s := newOwnSite(t, 8, 8)
	defer s.fence("")
	s.fence(fenceFor.String())
	s.wantFence(metav1.ConditionTrue, "Fenced", "")
	j := s.job("train", 2, long)
	s.running(j)
	wires[0].set(true, false)
	defer wires[0].set(false, false)
	began, stopped := time.Now(), time.Duration(0)
	s.Within(*fenceFor+6*time.Minute, "it runs in the second cluster", func() bool {
		if stopped == 0 && !s.podsRunning(0, j) {
			stopped = time.Since(began)
		}
		return s.podsRunning(1, j)
	}, func() string { return s.standing(j) })
	t.Logf("with a fence of %s its pods were stopped after %s, and ran in the second cluster after %s", *fenceFor, stopped.Round(time.Second),
		time.Since(began).Round(time.Second))
	if stopped == 0 {
		t.Error("its pods ran on in the first cluster")
	}
	wires[0].set(false, false)
	s.Within(time.Minute, "nothing is left in the first cluster", func() bool { return len(s.left()) == 0 },
		func() string { return fmt.Sprint(s.left()) })
	if w := s.Workload(j); ptr.Deref(w.Status.ClusterName, "") != "worker-2" || !s.podsRunning(1, j) {
		t.Errorf("it does not run on in the second: %s", s.standing(j))
	}
}
