package queues

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/testbed"
)

// calm is how long something does not come that is not to come.
const calm = 2 * time.Second

// samples are where the sample YAMLs lie, a folder for each story.
var samples = filepath.Join("..", "..", "..", "deploy", "samples", "queues")

// site is one test's story, in namespaces as its sample has them.
type site struct{ *testbed.Site }

func newSite(t *testing.T, name string) *site {
	return &site{&testbed.Site{T: t, Cluster: shared, Name: name}}
}

// apply creates the objects of a sample file of the site, as
// `kubectl create -f` would.
func (s *site) apply(file string) (objects []client.Object) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(samples, s.Name, file))
	if err != nil {
		s.Fatal(err)
	}
	decoded, err := deploy.Decode(text)
	if err != nil {
		s.Fatalf("%s: %v", file, err)
	}
	for _, o := range decoded {
		s.Create(o)
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

// active waits until the ClusterQueue is, or says why it is not.
func (s *site) active(clusterQueue string) {
	s.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: clusterQueue}}
	s.Eventually("ClusterQueue "+clusterQueue+" is active", func() bool {
		return s.Get(cq) && meta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)
	}, func() string { return fmt.Sprint(cq.Status.Conditions) })
}

// condition waits until the Job's Workload has the condition in the status, and
// returns both.
func (s *site) condition(j *batchv1.Job, kind string, status metav1.ConditionStatus) (w *kueue.Workload, c metav1.Condition) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%s=%s of Job %s", kind, status, j.Name), func() bool {
		w = s.Workload(j)
		return w != nil && testbed.Found(w.Status.Conditions, kind, status, &c)
	}, func() string { return s.standing(j) })
	return w, c
}

// runs waits until the Job is admitted and all its pods run.
func (s *site) runs(j *batchv1.Job) *kueue.Workload {
	s.Helper()
	w, _ := s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	s.Eventually("all pods of Job "+j.Name+" run", func() bool {
		return s.Get(j) && j.Status.Ready != nil && *j.Status.Ready == *j.Spec.Parallelism
	}, func() string { return s.standing(j) })
	return w
}

// waits waits until an event of the Job explains why it is pending, with a message that contains words, and verifies that it stays
// pending.
func (s *site) waits(j *batchv1.Job, words string) {
	s.Helper()
	s.Eventually(fmt.Sprintf("Job %s is told that it waits for %q", j.Name, words), func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, words)
	}, func() string { return s.standing(j) })
	s.calm()
	if w := s.Workload(j); w == nil || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) {
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

// completes waits until the Job is complete and its Workload is finished.
func (s *site) completes(j *batchv1.Job) {
	s.Helper()
	s.Eventually("completion of Job "+j.Name, func() bool { return s.IsComplete(j) }, func() string { return s.standing(j) })
	s.condition(j, kueue.WorkloadFinished, metav1.ConditionTrue)
}

// standing is how things stand with a Job.
func (s *site) standing(j *batchv1.Job) string {
	s.Helper()
	var out strings.Builder
	if s.Get(j) {
		fmt.Fprintf(&out, "\njob: suspended %v, %+v", *j.Spec.Suspend, j.Status)
	}
	if w := s.Workload(j); w != nil {
		fmt.Fprintf(&out, "\nworkload: %+v\nadmission: %+v\nchecks: %+v", w.Status.Conditions, w.Status.Admission, w.Status.AdmissionChecks)
	}
	return out.String()
}
