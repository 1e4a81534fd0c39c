package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
)

// record returns the record of a Workload in the manager.
func (s *shop) record(name string) dispatch.Record {
	s.Helper()
	w := &kueue.Workload{}
	if err := s.manager.Get(s.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, w); err != nil {
		s.Fatal(err)
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if err != nil {
		s.Fatal(err)
	}
	return record
}

// inactive sets the condition of an inactive queue of a worker.
func inactive(conditions *[]metav1.Condition, kind, message string) {
	*conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse, Reason: "Test", Message: message}}
}

// TestAWorkerThatLacksWhatAJobNeedsIsNotNominated: the record names what is missing, and other workers are nominated. Once the worker has
// it, it is nominated.
func TestAWorkerThatLacksWhatAJobNeedsIsNotNominated(t *testing.T) {
	queue := client.ObjectKey{Namespace: "team-a", Name: "main"}
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpus"}}
	for name, c := range map[string]struct {
		lose, get func(*testing.T, client.Client)
		sees      bool
		want      string
	}{
		"a namespace, and with it the queue": {
			lose: func(t *testing.T, worker client.Client) {
				lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: queue.Namespace, Name: queue.Name}}
				if err := worker.Delete(t.Context(), lq); err != nil {
					t.Fatal(err)
				}
			},
			get: func(t *testing.T, worker client.Client) {
				lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: queue.Namespace, Name: queue.Name}}
				if err := worker.Create(t.Context(), lq); err != nil {
					t.Fatal(err)
				}
			},
			want: "worker-0 lacks LocalQueue team-a/main",
		},
		"a ResourceFlavor of its ClusterQueue": {
			lose: func(t *testing.T, worker client.Client) {
				standing(t, worker, "Can't submit new workloads to clusterQueue", "")
			},
			get:  func(t *testing.T, worker client.Client) { standing(t, worker, "", "") },
			want: "worker-0 lacks an active LocalQueue team-a/main: Can't submit new workloads to clusterQueue",
		},
		"a ResourceFlavor of its ClusterQueue, which may be read": {
			lose: func(t *testing.T, worker client.Client) {
				standing(t, worker, "Can't submit new workloads to clusterQueue",
					"Can't admit new workloads: references missing ResourceFlavor(s): h100.")
			},
			get:  func(t *testing.T, worker client.Client) { standing(t, worker, "", "") },
			sees: true,
			want: "worker-0 lacks an active LocalQueue team-a/main: Can't admit new workloads: references missing ResourceFlavor(s): h100.",
		},
		"a template of claims": {
			lose: func(*testing.T, client.Client) {},
			get: func(t *testing.T, worker client.Client) {
				if err := worker.Create(t.Context(), template.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			},
			want: "worker-0 lacks ResourceClaimTemplate team-a/gpus",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 2)
			for i := range s.workers {
				connection := s.copies.workers.byName[workerName(i)].connection
				connection.claims = resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate")
				if c.sees {
					see := func(context.Context, clock.PassiveClock, client.Reader) (snapshots.Foresee, error) {
						return nil, errors.New("nothing else may be read")
					}
					connection.snapshot = snapshots.New(snapshots.Config{Clock: s.clock, Limit: snapshots.NewLimit(0),
						Foresight: snapshots.Foresight{See: see}, Cache: asIs{client: s.workers[i]}})
					connection.snapshot.Open(t.Context(), s.workers[i])
				}
				cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}}
				if err := s.workers[i].Create(t.Context(), cq); err != nil {
					t.Fatal(err)
				}
			}
			c.lose(t, s.workers[0])
			if name != "a template of claims" {
				if err := s.workers[0].Create(t.Context(), template.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			s.withClaims("waits", "gpus")
			byName := s.copies.workers.byName
			byName[workerName(1)].connected = false
			s.dispatch("waits")
			if record := s.record("waits"); !strings.Contains(record.Waits, c.want) || len(record.In) > 0 {
				t.Errorf("alone with the worker, its record is %+v, want %q", record, c.want)
			}
			byName[workerName(1)].connected = true
			if err := s.workers[1].Create(t.Context(), template.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			s.withClaims("goes-elsewhere", "gpus")
			s.dispatch("goes-elsewhere")
			if at := s.workerWithCopy("goes-elsewhere"); at != 1 {
				t.Errorf("worker %d is asked", at)
			}
			c.get(t, s.workers[0])
			s.dispatch("waits")
			if at := s.workerWithCopy("waits"); at != 0 {
				t.Errorf("once the first has it, worker %d is asked", at)
			}
		})
	}
}

// TestAJobWithClaimsRunsInAWorker: its copy and the copy of its Workload keep the claims of their pods, which the worker counts and makes
// from a template of its own.
func TestAJobWithClaimsRunsInAWorker(t *testing.T) {
	s := newShop(t, 1)
	s.copies.workers.byName[workerName(0)].connection.claims = resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate")
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpus"}}
	if err := s.workers[0].Create(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	s.withClaims("train", "gpus")
	at := s.admitted("train")
	job := &batchv1.Job{}
	if err := s.workers[at].Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "train"}, job); err != nil {
		t.Fatal(err)
	}
	for of, claims := range map[string][]corev1.PodResourceClaim{
		"the job": job.Spec.Template.Spec.ResourceClaims, "its Workload": s.copyIn(at, "train").Spec.PodSets[0].Template.Spec.ResourceClaims,
	} {
		if len(claims) != 1 || ptr.Deref(claims[0].ResourceClaimTemplateName, "") != "gpus" {
			t.Errorf("in the worker %s claims %v, want the template gpus", of, claims)
		}
	}
}

// standing sets the conditions of the queues of a worker. An empty message means that the queue is active.
func standing(t *testing.T, worker client.Client, local, whole string) {
	t.Helper()
	lq, cq := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	for _, o := range []struct {
		client.Object
		key types.NamespacedName
	}{{lq, types.NamespacedName{Namespace: "team-a", Name: "main"}}, {cq, types.NamespacedName{Name: "cq"}}} {
		if err := worker.Get(t.Context(), o.key, o.Object); err != nil {
			t.Fatal(err)
		}
	}
	lq.Spec.ClusterQueue = "cq"
	lq.Status.Conditions, cq.Status.Conditions = nil, nil
	if local != "" {
		inactive(&lq.Status.Conditions, kueue.LocalQueueActive, local)
	}
	if whole != "" {
		inactive(&cq.Status.Conditions, kueue.ClusterQueueActive, whole)
	}
	for _, o := range []client.Object{lq, cq} {
		if err := worker.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// withClaims queues a Job whose pods have claims of the template.
func (s *shop) withClaims(name, template string) {
	s.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
	job.Spec.ManagedBy, job.Spec.Suspend = new(string(kueue.MultiKueueControllerName)), new(true)
	job.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	s.queued(name, job)
	w := &kueue.Workload{}
	if err := s.manager.Get(s.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, w); err != nil {
		s.Fatal(err)
	}
	w.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	if err := s.manager.Update(s.Context(), w); err != nil {
		s.Fatal(err)
	}
}
