package testbed

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/test/pressure"
)

const (
	// Patience is how long a test waits for a condition. Time in which the machine was too busy does not count: see package pressure.
	Patience = 2 * time.Minute
	// pace is the poll interval.
	pace = 100 * time.Millisecond
	// summaryLines is the number of lines of a log that the message of a failed wait includes.
	summaryLines = 15
)

// Site is a test's own part of a cluster: a namespace, and groups, flavors and queues of
// the same name, whose nodes no other site's pods select.
type Site struct {
	*testing.T
	*Cluster
	Name string
}

// NewSite creates the namespace, which is named after the test.
func NewSite(t *testing.T, c *Cluster) *Site {
	t.Helper()
	s := &Site{T: t, Cluster: c, Name: SiteName(t)}
	c.KeepIfFailed(t, s.Name)
	s.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	return s
}

// SiteName is the test's name, as namespaces may have it.
func SiteName(t *testing.T) string {
	name := strings.ToLower(strings.NewReplacer("Test", "", "/", "-", "_", "-").Replace(t.Name()))
	return strings.TrimRight(name[:min(len(name), 50)], "-")
}

// In is the site for a subtest.
func (s *Site) In(t *testing.T) *Site { return &Site{T: t, Cluster: s.Cluster, Name: s.Name} }

// Create ends the test if an object is refused.
func (s *Site) Create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.Kube.Create(s.Context(), o); err != nil {
			s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Delete deletes the object, and what it owns in the background.
func (s *Site) Delete(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	options = append([]client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}, options...)
	if err := s.Kube.Delete(s.Context(), o, options...); err != nil {
		s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// Get reads the object again, and reports whether it is there.
func (s *Site) Get(o client.Object) bool {
	s.Helper()
	err := s.Kube.Get(s.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		s.Logf("reading %T %s: %v", o, o.GetName(), err) // the API server may be starting again
	}
	return err == nil
}

// List ends the test if the objects cannot be read.
func (s *Site) List(l client.ObjectList, options ...client.ListOption) {
	s.Helper()
	if err := s.Kube.List(s.Context(), l, options...); err != nil {
		s.Fatalf("reading %T: %v", l, err)
	}
}

// Eventually waits until the condition holds; state describes what is seen instead.
func (s *Site) Eventually(wish string, holds func() bool, state func() string) {
	s.Helper()
	s.Within(Patience, wish, holds, state)
}

// Within is Eventually for what takes so long.
func (s *Site) Within(most time.Duration, wish string, holds func() bool, state func() string) {
	s.Helper()
	ctx, cancel := pressure.WithTimeout(s.Context(), most)
	defer cancel()
	if err := Poll(ctx, holds); err != nil {
		s.Fatalf("%v: %s. %s%s", err, wish, state(), s.summary())
	}
}

// summary is the state of the site's nodes, and what Muster has logged about the site last. What a test waits for in vain seldom explains
// itself, and of a run elsewhere often nothing but the messages can be read.
func (s *Site) summary() string {
	var out strings.Builder
	nodes := corev1.NodeList{}
	if err := s.Kube.List(s.Context(), &nodes); err != nil {
		fmt.Fprintf(&out, "\n  Nodes: %v", err)
	}
	for _, n := range nodes.Items {
		if group := n.Labels[v1alpha1.NodeGroupLabel]; strings.HasPrefix(group, s.Name) {
			fmt.Fprintf(&out, "\n  Node %s: group %s, ready %t, unschedulable %t, annotations %v, taints %v",
				n.Name, group, state.IsReady(&n), n.Spec.Unschedulable, n.Annotations, n.Spec.Taints)
		}
	}
	for _, component := range s.State().Components {
		if !strings.HasPrefix(component.Name, "muster") {
			continue
		}
		log, err := os.ReadFile(component.Log)
		if err != nil {
			fmt.Fprintf(&out, "\n  Log: %v", err)
		}
		lines := slices.DeleteFunc(strings.Split(string(log), "\n"), func(l string) bool { return !strings.Contains(l, s.Name) })
		for _, l := range lines[max(0, len(lines)-summaryLines):] {
			out.WriteString("\n  " + l)
		}
	}
	return out.String()
}

// Condition waits until the object has the condition in the status, and returns it.
func (s *Site) Condition(o client.Object, conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus) (c metav1.Condition) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%s=%s of %T %s", kind, status, o, o.GetName()), func() bool {
		return s.Get(o) && Found(*conditions, kind, status, &c)
	}, func() string { return fmt.Sprint(*conditions) })
	return c
}

// Found reports whether the condition is there in the status, and sets it.
func Found(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, c *metav1.Condition) bool {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil || found.Status != status {
		return false
	}
	*c = *found
	return true
}

// Poll returns when the condition holds, or the reason why it is not waited for any longer.
func Poll(ctx context.Context, holds func() bool) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// Workload is the Job's; nil while there is none.
func (s *Site) Workload(j *batchv1.Job) *kueue.Workload {
	var list kueue.WorkloadList
	if err := s.Kube.List(s.Context(), &list, client.InNamespace(j.Namespace)); err != nil {
		return nil
	}
	i := slices.IndexFunc(list.Items, func(w kueue.Workload) bool { return metav1.IsControlledBy(&w, j) })
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

// IsComplete reports whether the Job, read again, is complete.
func (s *Site) IsComplete(j *batchv1.Job) bool {
	return s.Get(j) && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

// EndPod ends a running pod as the kubelet does when its containers have ended with that exit code.
func (s *Site) EndPod(p *corev1.Pod, code int32) {
	s.Helper()
	before := client.MergeFrom(p.DeepCopy())
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.ContainerStatuses = nil
	for i := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: p.Spec.Containers[i].Name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()}}})
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status = corev1.ConditionFalse
		}
	}
	if err := s.Kube.Status().Patch(s.Context(), p, before); client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
}
