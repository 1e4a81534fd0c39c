package multikueue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// copyOf is the copy of a job in a worker, as it is now.
func (s *site) copyOf(worker int, j *batchv1.Job) *kueue.Workload {
	s.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(j).Name}}
	s.workers[worker].Get(w)
	return w
}

// TestAJobThatIsDeletedAtItsEndRunsOnce although its cluster is cut off when it ends there.
func TestAJobThatIsDeletedAtItsEndRunsOnce(t *testing.T) {
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 2, func(j *batchv1.Job) {
		j.Spec.TTLSecondsAfterFinished = new(int32(0))
		j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "8s"
	})
	s.running(j)
	wires[0].set(true, false)
	defer wires[0].set(false, false)
	s.Eventually("the job ends in its cluster", func() bool { return workload.IsFinished(s.copyOf(0, j)) },
		func() string { return s.standing(j) })
	wires[0].set(false, false)
	s.Eventually("the job is deleted here, and nothing is left in its cluster", func() bool { return !s.Get(j) && len(s.left()) == 0 },
		func() string { return s.standing(j) })
	s.wantLaunched(2, 0)
}

// TestAWorkerWhoseMusterHangsAfterItGaveQuota: its API server goes on to serve. The job moves to the next, and its copy is gone before.
func TestAWorkerWhoseMusterHangsAfterItGaveQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("all other tests wait for two minutes")
	}
	s := newOwnSite(t, 8, 8)
	spending.hedge(s.Name) // the Muster that hangs gives its machines back once it is thawed
	group := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.workers[0].Get(group)
	patch := client.MergeFrom(group.DeepCopy())
	group.Spec.Kwok.BootDelay = metav1.Duration{Duration: time.Minute}
	if err := s.workers[0].Kube.Patch(t.Context(), group, patch); err != nil {
		t.Fatal(err)
	}
	j := s.job("train", 2, long)
	s.Eventually("the first cluster gives the job quota", func() bool {
		return s.Workload(j) != nil && workload.HasQuota(s.copyOf(0, j))
	}, func() string { return s.standing(j) })
	if err := workers[0].Freeze(cluster.Muster); err != nil {
		t.Fatal(err)
	}
	thaw := func() {
		if err := workers[0].Thaw(cluster.Muster); err != nil {
			t.Error(err)
		}
	}
	frozen := true
	defer func() {
		if frozen {
			thaw()
		}
	}()
	s.Within(2*time.Minute+30*time.Second, "it runs in the second cluster", func() bool {
		if s.podsRunning(1, j) && len(s.left()) > 0 {
			t.Errorf("it runs there, and the first still has %v", s.left())
		}
		return s.podsRunning(1, j)
	}, func() string { return s.standing(j) })
	record, err := dispatch.DecodeRecord(s.Workload(j).Annotations[dispatch.Annotation])
	if err != nil || len(record.Refusals) == 0 || !strings.Contains(record.Refusals[0].Message, "has renewed the Lease muster-system/muster") {
		t.Errorf("the record does not say why it has moved: %+v, %v", record, err)
	}
	s.wantEvent("ClusterWithdrawn", "has renewed the Lease muster-system/muster")
	thaw()
	frozen = false
	s.Eventually("the first cluster is used again", func() bool {
		c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterNames()[0]}}
		s.Get(c)
		active := meta.FindStatusCondition(c.Status.Conditions, kueue.MultiKueueClusterActive)
		return active != nil && !strings.Contains(active.Message, "no job is given to the cluster")
	}, func() string { return "" })
	if !s.podsRunning(1, j) || len(s.left()) > 0 {
		t.Errorf("once it is back, the first has %v: %s", s.left(), s.standing(j))
	}
}

// TestAClusterIsClearedWhoseMultiKueueClusterIsDeleted before its job starts elsewhere, although the dispatcher was down when it was
// deleted.
func TestAClusterIsClearedWhoseMultiKueueClusterIsDeleted(t *testing.T) {
	s := newOwnSite(t, 8, 8)
	spending.hedge(s.Name) // machines in the first cluster are idle for a moment before they are scaled down
	j := s.job("train", 2, long)
	s.running(j)
	c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterNames()[0]}}
	s.Get(c)
	dispatcher.Kill()
	if err := s.Kube.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	defer func() {
		again := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Spec: c.Spec}
		if err := s.Kube.Create(context.Background(), again); err != nil {
			t.Error(err)
		}
	}()
	if err := dispatcher.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.Within(time.Minute, "it runs in the second cluster", func() bool { return s.podsRunning(1, j) },
		func() string { return s.standing(j) })
	if left := s.left(); len(left) > 0 {
		t.Errorf("the first cluster still has %v", left)
	}
	s.Eventually("the MultiKueueCluster is gone", func() bool { return !s.Get(c) },
		func() string { return fmt.Sprint(c.Finalizers, c.Status) })
}
