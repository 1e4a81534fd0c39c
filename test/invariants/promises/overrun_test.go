package promises

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// overrunning creates a Job with quota for two pods in a queue of four, and runs the given pods of it.
func (c *course) overrunning(pods ...string) (j *batchv1.Job, w *kueue.Workload, running []*corev1.Pod) {
	c.member("a", "", gpus{nominal: 4})
	j, w = newJob("train"), newWorkload("train", 2, 1)
	controlledBy(w, "Job", j)
	c.show(j)
	c.admit(w, "a", 2)
	node := newNode("plain")
	c.show(node)
	for _, name := range pods {
		p := newPod(name, 1)
		controlledBy(p, "Job", j)
		running = append(running, c.bind(p, node))
	}
	return j, w, running
}

// TestNoMorePodsRunThanThereIsQuotaFor for longer than Muster needs to stop them.
func TestNoMorePodsRunThanThereIsQuotaFor(t *testing.T) {
	for _, tc := range []struct {
		name string
		play func(*course)
		want string
	}{
		{"a third pod runs", func(c *course) { c.overrunning("one", "two", "three") }, "runs 3 pods since"},
		{"pods go on when the quota is gone", func(c *course) {
			_, w, _ := c.overrunning("one", "two")
			c.release(w)
		}, "its Workload team/train has quota for 0"},
		{"the only pod goes on and changes", func(c *course) {
			_, w, pods := c.overrunning("one")
			c.release(w)
			for range 8 {
				c.pass(5 * time.Second)
				c.show(pods[0])
			}
			c.remove(pods[0])
		}, "runs 1 pods since"},
		{"the slice that counts now is smaller", func(c *course) {
			j, w, _ := c.overrunning("one", "two")
			next := newWorkload("next", 1, 1)
			controlledBy(next, "Job", j)
			c.admit(next, "a", 1)
			condition(&w.Status.Conditions, kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadSliceReplaced, "Replaced")
			c.show(w)
		}, "its Workload team/next has quota for 1"},
		{"as many run as may", func(c *course) { c.overrunning("one", "two") }, ""},
		{"the third pod has ended", func(c *course) {
			_, _, pods := c.overrunning("one", "two", "three")
			pods[2].Status.Phase = corev1.PodSucceeded
			c.show(pods[2])
		}, ""},
		{"the third pod was told to stop", func(c *course) {
			_, _, pods := c.overrunning("one", "two", "three")
			pods[0].DeletionTimestamp = &metav1.Time{Time: c.now}
			c.show(pods[0])
		}, ""},
		{"the third pod is gone", func(c *course) {
			_, _, pods := c.overrunning("one", "two", "three")
			c.remove(pods[1])
		}, ""},
		{"a moment at a time", func(c *course) {
			_, _, pods := c.overrunning("one", "two", "three")
			c.pass(20 * time.Second)
			c.remove(pods[0], pods[1], pods[2])
			c.pass(20 * time.Second)
			for _, p := range pods {
				c.show(p)
			}
			c.pass(20 * time.Second)
			c.remove(pods[2])
		}, ""},
		{"an admin lets it run", func(c *course) {
			j, _, _ := c.overrunning("one", "two", "three")
			j.Annotations = map[string]string{breakGlassAnnotation: "an outage"}
			c.show(j)
		}, ""},
		{"the Job is of no queue", func(c *course) {
			j, _, _ := c.overrunning("one", "two", "three")
			j.Labels = nil
			c.show(j)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCourse(t)
			tc.play(c)
			c.pass(31 * time.Second)
			c.pass(time.Second)
			got := c.verdict()
			if tc.want == "" && got != "" || tc.want != "" && (!strings.HasPrefix(got, "P4 quota: Job team/train: ") ||
				!strings.Contains(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if c.Stats().Judged[RunningJobs] != 1 && tc.want != "" {
				t.Errorf("not judged: %s", c.Stats())
			}
		})
	}
}
