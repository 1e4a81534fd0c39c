package queues

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/kueue/managers"
)

const (
	// patience is how long is waited for something that should come.
	patience = 60 * time.Second
	// calm is how long something does not come that is not to come.
	calm = 2 * time.Second
)

// samples are where the sample YAMLs lie, a folder for each story.
var samples = filepath.Join("..", "..", "..", "deploy", "samples", "queues")

// site is one test's story.
type site struct {
	*testing.T
	name string
}

// apply creates the objects of a sample file of the site, as
// `kubectl create -f` would.
func (s *site) apply(file string) (objects []client.Object) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(samples, s.name, file))
	if err != nil {
		s.Fatal(err)
	}
	decoded, err := deploy.Decode(text)
	if err != nil {
		s.Fatalf("%s: %v", file, err)
	}
	for _, o := range decoded {
		s.create(o)
		objects = append(objects, o)
	}
	return objects
}

// job creates the Job of a sample file.
func (s *site) job(file string) *batchv1.Job {
	s.Helper()
	objects := s.apply(file)
	j := &batchv1.Job{}
	if len(objects) != 1 || objects[0].GetObjectKind().GroupVersionKind().Kind != "Job" {
		s.Fatalf("%s is not one Job", file)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(objects[0])
	if err != nil {
		s.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, j); err != nil {
		s.Fatal(err)
	}
	return j
}

func (s *site) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := kube.Create(s.Context(), o); err != nil {
			s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (s *site) get(o client.Object) bool {
	s.Helper()
	err := kube.Get(s.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		s.Fatalf("reading %T %s: %v", o, o.GetName(), err)
	}
	return err == nil
}

// eventually waits until the condition holds; what says how things stand.
func (s *site) eventually(wish string, holds func() bool, what func() string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if managers.Poll(ctx, holds) != nil {
		s.Fatalf("not within %s: %s. %s", patience, wish, what())
	}
}

// active waits until the ClusterQueue is, or says why it is not.
func (s *site) active(clusterQueue string) {
	s.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: clusterQueue}}
	s.eventually("ClusterQueue "+clusterQueue+" is active", func() bool {
		return s.get(cq) && meta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)
	}, func() string { return fmt.Sprint(cq.Status.Conditions) })
}

// workload is the Job's; nil until there is one.
func (s *site) workload(j *batchv1.Job) *kueue.Workload {
	s.Helper()
	var list kueue.WorkloadList
	if err := kube.List(s.Context(), &list, client.InNamespace(j.Namespace)); err != nil {
		s.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(w kueue.Workload) bool { return metav1.IsControlledBy(&w, j) })
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

// condition waits until the Job's Workload has the condition in the status, and
// returns both.
func (s *site) condition(j *batchv1.Job, kind string, status metav1.ConditionStatus) (w *kueue.Workload, c metav1.Condition) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s=%s of Job %s", kind, status, j.Name), func() bool {
		if w = s.workload(j); w == nil {
			return false
		}
		found := meta.FindStatusCondition(w.Status.Conditions, kind)
		if found == nil || found.Status != status {
			return false
		}
		c = *found
		return true
	}, func() string { return s.standing(j) })
	return w, c
}

// runs waits until the Job is admitted and all its pods run.
func (s *site) runs(j *batchv1.Job) *kueue.Workload {
	s.Helper()
	w, _ := s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	s.eventually("all pods of Job "+j.Name+" run", func() bool {
		return s.get(j) && j.Status.Ready != nil && *j.Status.Ready == *j.Spec.Parallelism
	}, func() string { return s.standing(j) })
	return w
}

// waits waits until the Job is told why it waits, in words that contain these,
// and looks that it goes on waiting.
func (s *site) waits(j *batchv1.Job, words string) {
	s.Helper()
	s.eventually(fmt.Sprintf("Job %s is told that it waits for %q", j.Name, words), func() bool {
		w := s.workload(j)
		if w == nil {
			return false
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, words)
	}, func() string { return s.standing(j) })
	s.calm()
	if w := s.workload(j); w == nil || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) {
		s.Fatalf("Job %s does not wait: %s", j.Name, s.standing(j))
	}
}

// calm gives what is not to come the time to come.
func (s *site) calm() {
	select {
	case <-s.Context().Done():
	case <-time.After(calm):
	}
}

// completes waits until the Job has, and its Workload is told so.
func (s *site) completes(j *batchv1.Job) {
	s.Helper()
	s.eventually("completion of Job "+j.Name, func() bool {
		return s.get(j) && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	}, func() string { return s.standing(j) })
	s.condition(j, kueue.WorkloadFinished, metav1.ConditionTrue)
}

// standing is how things stand with a Job.
func (s *site) standing(j *batchv1.Job) string {
	s.Helper()
	var out strings.Builder
	if s.get(j) {
		fmt.Fprintf(&out, "\njob: suspended %v, %+v", *j.Spec.Suspend, j.Status)
	}
	if w := s.workload(j); w != nil {
		fmt.Fprintf(&out, "\nworkload: %+v\nadmission: %+v\nchecks: %+v", w.Status.Conditions, w.Status.Admission, w.Status.AdmissionChecks)
	}
	return out.String()
}
