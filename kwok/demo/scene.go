package demo

import (
	"cmp"
	"context"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// scene is the state of the cluster at one time, and what a story remembers of earlier ones.
type scene struct {
	at time.Duration

	// by group
	machines, nodes, ready map[string]int
	attempts               map[string][]v1alpha1.LaunchAttempt

	pods, running, finished int
	request                 *provreq.ProvisioningRequest
	workload                *kueue.Workload
	job                     *batchv1.Job
}

// read reads the scene. Pods are read first: a node that a pod runs on is then in the same scene or in an earlier one.
func (d *demo) read(ctx context.Context, s *scene, st story) error {
	var pods corev1.PodList
	var nodes corev1.NodeList
	var machines kwokv1alpha1.MachineList
	var groups v1alpha1.NodeGroupList
	var requests provreq.ProvisioningRequestList
	var workloads kueue.WorkloadList
	var jobs batchv1.JobList
	// What was promised is read before what there is: nodes that became ready in
	// between are no promise that came too early.
	for _, list := range []client.ObjectList{&pods, &jobs, &workloads, &requests, &groups, &machines, &nodes} {
		if err := d.client.List(ctx, list); err != nil {
			return err
		}
	}
	s.pods, s.running, s.finished = 0, 0, 0
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Labels[cmp.Or(st.label, batchv1.JobNameLabel)] == st.name {
			s.pods++
			switch p.Status.Phase {
			case corev1.PodRunning:
				s.running++
			case corev1.PodSucceeded:
				s.finished++
			}
		}
	}
	s.machines, s.nodes, s.ready = map[string]int{}, map[string]int{}, map[string]int{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		group := n.Labels[v1alpha1.NodeGroupLabel]
		s.nodes[group]++
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
				(group == cpus || n.Status.Allocatable.Name("nvidia.com/gpu", "").Value() > 0) {
				s.ready[group]++
			}
		}
	}
	for i := range machines.Items {
		if m := &machines.Items[i]; m.DeletionTimestamp == nil && m.Status.Phase != kwokv1alpha1.MachineTerminated {
			s.machines[m.Spec.Group]++
		}
	}
	s.attempts = map[string][]v1alpha1.LaunchAttempt{}
	for i := range groups.Items {
		s.attempts[groups.Items[i].Name] = groups.Items[i].Status.Attempts
	}
	s.request, s.workload, s.job = nil, nil, nil
	for i := range requests.Items {
		if r := &requests.Items[i]; strings.Contains(r.Name, st.name) {
			s.request = r
		}
	}
	for i := range workloads.Items {
		if w := &workloads.Items[i]; len(w.OwnerReferences) > 0 && w.OwnerReferences[0].Name == st.name {
			s.workload = w
		}
	}
	for i := range jobs.Items {
		if j := &jobs.Items[i]; j.Name == st.name {
			s.job = j
		}
	}
	return nil
}

func (s *scene) requestIs(condition string) bool {
	return s.request != nil && meta.IsStatusConditionTrue(s.request.Status.Conditions, condition)
}

// reason returns the message of the deciding condition, and which object has it.
func (s *scene) reason() string {
	if s.request != nil {
		for _, kind := range []string{provreq.Failed, provreq.Provisioned, provreq.Accepted} {
			if c := meta.FindStatusCondition(s.request.Status.Conditions, kind); c != nil {
				return "the request says: " + c.Message
			}
		}
	}
	if s.workload != nil {
		if c := meta.FindStatusCondition(s.workload.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
			return "the workload says: " + c.Message
		}
	}
	return "neither a request nor a workload says why"
}

func (s *scene) workloadIs(condition string) bool {
	return s.workload != nil && meta.IsStatusConditionTrue(s.workload.Status.Conditions, condition)
}

// flavor that the workload has been given for its GPUs.
func (s *scene) flavor() string {
	if s.workload == nil || s.workload.Status.Admission == nil {
		return ""
	}
	for _, a := range s.workload.Status.Admission.PodSetAssignments {
		if flavor := string(a.Flavors["nvidia.com/gpu"]); flavor != "" {
			return flavor
		}
	}
	return ""
}

func (s *scene) jobComplete() bool {
	if s.job == nil {
		return false
	}
	for _, c := range s.job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
