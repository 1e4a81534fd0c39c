package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Labels of Jobs in queues, in the words of Kueue's API.
const (
	queueLabel        = "kueue.x-k8s.io/queue-name"
	priorityLabel     = "kueue.x-k8s.io/priority-class"
	maxExecutionLabel = "kueue.x-k8s.io/max-exec-time-seconds"
)

// unboundedRun is the run time of pods that start together, until the runner writes their annotation runs-until once all of them run. KWOK
// restarts a pod's stage when the pod changes.
const unboundedRun = "8760h"

// Job is the submission as an object. Without queues it starts at once, and says
// nothing that only a queue reads.
func (s Submission) Job(speed int, queues bool) *batchv1.Job {
	shape := s.Shape
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name,
		Annotations: fasterAnnotations(shape.Annotations, speed)}}
	if queues && s.Queue != "" {
		j.Labels = s.labels(speed)
	}
	annotations := map[string]string{kwokv1alpha1.RunForAnnotation: unboundedRun}
	if !shape.Together {
		annotations[kwokv1alpha1.RunForAnnotation] = s.Runs(speed).String()
	}
	maps.Copy(annotations, shape.PodAnnotations)
	j.Spec = batchv1.JobSpec{
		Parallelism: &shape.Pods, Completions: &shape.Pods, BackoffLimit: &shape.Retries,
		// A pod that lost its machine has not failed.
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				NodeSelector:  maps.Clone(shape.NodeSelector),
				Tolerations:   shape.Tolerations,
				// Extended resources need limits, and requests follow from these.
				Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Limits: shape.Requests}}},
			},
		},
	}
	if shape.Deadline != nil {
		deadline := seconds(shape.Deadline.Duration, speed)
		j.Spec.ActiveDeadlineSeconds = &deadline
	}
	return j
}

// labels by which a queue takes it.
func (s Submission) labels(speed int) map[string]string {
	labels := map[string]string{queueLabel: s.Queue}
	if s.Shape.Priority != "" {
		labels[priorityLabel] = s.Shape.Priority
	}
	if most := s.Shape.MaximumExecution; most != nil {
		labels[maxExecutionLabel] = strconv.FormatInt(seconds(most.Duration, speed), 10)
	}
	return labels
}

// merged is a map with more in it.
func merged(of, more map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, of)
	maps.Copy(out, more)
	return out
}

// Runs is how long the pods run at a speed.
func (s Submission) Runs(speed int) time.Duration { return s.RunFor / time.Duration(speed) }

// seconds are rounded up: a time that was meant to suffice still does.
func seconds(d time.Duration, speed int) int64 {
	return int64(math.Ceil(d.Seconds() / float64(speed)))
}

// Names of the nodes.
func (n Nodes) Names() (out []string) {
	for i := range n.Count {
		out = append(out, fmt.Sprintf("%s-%d", n.Name, i))
	}
	return out
}

// Objects are the nodes, as KWOK takes them in.
func (n Nodes) Objects() (out []*corev1.Node) {
	for _, name := range n.Names() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		}}
		maps.Copy(node.Labels, n.Labels)
		node.Spec.Taints = n.Taints
		node.Status.Capacity, node.Status.Allocatable = n.offer(), n.offer()
		out = append(out, node)
	}
	return out
}

// offer is what pods may have of each node. One that does not say takes as many pods as
// a machine of a group that does not; else it would take none.
func (n Nodes) offer() corev1.ResourceList {
	return nodegroups.Capacity(v1alpha1.NodeTemplate{Capacity: n.Capacity})
}

// For are the objects of the n-th team.
func (t *Teams) For(n int) (out []*unstructured.Unstructured, err error) {
	for i := range t.Objects {
		text, err := json.Marshal(&t.Objects[i])
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), TeamWord, t.Namespace(n))), o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// Namespaces that the Jobs and objects are in, beside default.
func (s *Scenario) Namespaces() (out []string) {
	seen := map[string]bool{metav1.NamespaceDefault: true, TeamWord: true, "": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	for _, a := range s.Arrivals {
		add(a.Namespace)
	}
	for i := range s.Objects {
		add(s.Objects[i].GetNamespace())
	}
	if s.Teams != nil {
		for n := range int(s.Teams.Count) {
			add(s.Teams.Namespace(n))
		}
	}
	return out
}

// ForQueues reports whether an object is only used by a queue controller.
func ForQueues(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == kueue.SchemeGroupVersion.Group
}

// Resource returns the resource that a report shows: GPUs if a Job requests any, else CPU.
func (s *Scenario) Resource() corev1.ResourceName {
	const gpu = "nvidia.com/gpu"
	for _, a := range s.Arrivals {
		for i := range a.Shapes {
			for _, p := range a.Shapes[i].podSets() {
				if _, ok := p.requests[gpu]; ok {
					return gpu
				}
			}
		}
	}
	return corev1.ResourceCPU
}
