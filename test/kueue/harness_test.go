package kueue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/test/kueue/managers"
)

// patience is how long is waited for something that should come.
const patience = 60 * time.Second

// site is a test's own part of the cluster: a namespace, and a queue, a flavor, a
// check and groups of the same name.
type site struct {
	*testing.T
	name string
}

// newSite makes all but the groups. The queue has quota for many machines; what
// there is of them is for Muster to say.
func newSite(t *testing.T) *site {
	t.Helper()
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	s := &site{T: t, name: strings.TrimRight(name[:min(len(name), 40)], "-")}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	flavor.Spec.NodeLabels = map[string]string{siteLabel: s.name}
	flavor.Spec.Tolerations = []corev1.Toleration{{Key: gpuTaint.Key, Operator: corev1.TolerationOpExists}}
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	config.Spec = kueue.ProvisioningRequestConfigSpec{
		ProvisioningClassName: model.ClassAtomicScaleUp,
		ManagedResources:      []corev1.ResourceName{gpu},
		RetryStrategy:         &kueue.ProvisioningRequestRetryStrategy{BackoffBaseSeconds: new(int32(1))},
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	check.Spec.ControllerName = kueue.ProvisioningRequestControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: s.name}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(s.name)}}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", gpu},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1k")},
			{Name: gpu, NominalQuota: resource.MustParse("1k")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.name)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, flavor, config, check, cq, lq)
	return s
}

func (s *site) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := kube.Create(s.Context(), o); err != nil {
			s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (s *site) delete(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := kube.Delete(s.Context(), o, options...); err != nil {
		s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
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

func (s *site) list(l client.ObjectList, options ...client.ListOption) {
	s.Helper()
	if err := kube.List(s.Context(), l, options...); err != nil {
		s.Fatalf("reading %T: %v", l, err)
	}
}

// eventually waits until the condition holds; what says how things stand.
func (s *site) eventually(wish string, holds func() bool, what func() any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if managers.Poll(ctx, holds) != nil {
		s.Fatalf("not within %s: %s. %v", patience, wish, what())
	}
}

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")
	// siteLabel keeps the pods of one site on its own nodes.
	siteLabel = "e2e.muster.dev/site"
)

var gpuTaint = corev1.Taint{Key: string(gpu), Effect: corev1.TaintEffectNoSchedule}

// group creates a pool of machines with 8 GPUs, which boot in half a second.
func (s *site) group(suffix string, most int32, faults ...v1alpha1.KwokFault) {
	s.Helper()
	s.create(s.newGroup(suffix, most, faults...))
}

func (s *site) newGroup(suffix string, most int32, faults ...v1alpha1.KwokFault) *v1alpha1.NodeGroup {
	price := resource.MustParse("98.32")
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.name + suffix}}
	g.Spec = v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: most, CapacityType: v1alpha1.OnDemand, Zone: "zone-a", PricePerHour: &price,
		JoinTimeout: after(30 * time.Second), IdleTimeout: after(time.Second),
		Template: v1alpha1.NodeTemplate{
			Labels: map[string]string{siteLabel: s.name}, Taints: []corev1.Taint{gpuTaint},
			Capacity: corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"), gpu: resource.MustParse("8")},
		},
		Kwok: &v1alpha1.KwokPool{BootDelay: metav1.Duration{Duration: 500 * time.Millisecond}, Faults: faults},
	}
	return g
}

func after(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// job is a queued Job of count pods, each of a whole machine for that long. All
// of them run at once.
func (s *site) job(name string, count int32, long time.Duration) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.name}}}
	j.Spec.Suspend = new(true)
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": long.String()}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("8"), gpu: resource.MustParse("8")},
		}}},
	}
	s.create(j)
	return j
}

// workload is the job's; nil until Kueue has made it.
func (s *site) workload(j *batchv1.Job) *kueue.Workload {
	s.Helper()
	var list kueue.WorkloadList
	s.list(&list, client.InNamespace(s.name))
	i := slices.IndexFunc(list.Items, func(w kueue.Workload) bool { return metav1.IsControlledBy(&w, j) })
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

// request is the one that Kueue makes for the job first, and again by the same
// name after every stop but those for a failed request; nil while there is none.
func (s *site) request(j *batchv1.Job) *provreq.ProvisioningRequest {
	s.Helper()
	w := s.workload(j)
	if w == nil {
		return nil
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: fmt.Sprintf("%s-%s-1", w.Name, s.name)}}
	if !s.get(r) {
		return nil
	}
	return r
}

// condition waits until the job's request has the condition in the status, and
// returns both.
func (s *site) condition(j *batchv1.Job, kind string, status metav1.ConditionStatus) (r *provreq.ProvisioningRequest, c metav1.Condition) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s=%s of the request for job %s", kind, status, j.Name), func() bool {
		if r = s.request(j); r == nil {
			return false
		}
		found := meta.FindStatusCondition(r.Status.Conditions, kind)
		if found == nil || found.Status != status {
			return false
		}
		c = *found
		return true
	}, func() any { return s.standing(j) })
	return r, c
}

// standing is how things stand with a job.
func (s *site) standing(j *batchv1.Job) string {
	s.Helper()
	var out strings.Builder
	if s.get(j) {
		fmt.Fprintf(&out, "\njob: suspended %v, %+v", *j.Spec.Suspend, j.Status)
	}
	if w := s.workload(j); w != nil {
		fmt.Fprintf(&out, "\nworkload: %+v\nchecks: %+v", w.Status.Conditions, w.Status.AdmissionChecks)
	}
	var requests provreq.ProvisioningRequestList
	s.list(&requests, client.InNamespace(s.name))
	for _, r := range requests.Items {
		fmt.Fprintf(&out, "\nrequest %s: %+v", r.Name, r.Status.Conditions)
	}
	var pods corev1.PodList
	s.list(&pods, client.InNamespace(s.name))
	for _, p := range pods.Items {
		fmt.Fprintf(&out, "\npod %s on %q: %s %v", p.Name, p.Spec.NodeName, p.Status.Phase, p.Spec.NodeSelector)
	}
	for _, n := range s.nodes() {
		fmt.Fprintf(&out, "\nnode %s: cordoned %v %v", n.Name, n.Spec.Unschedulable, n.Labels)
	}
	return out.String()
}

// complete waits until the job has, and checks that it was never deactivated:
// what Kueue has deactivated stays so until somebody activates it.
func (s *site) complete(j *batchv1.Job) {
	s.Helper()
	s.eventually("completion of job "+j.Name, func() bool {
		return s.get(j) && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	}, func() any { return s.standing(j) })
	s.active(j)
}

func (s *site) active(j *batchv1.Job) {
	s.Helper()
	if w := s.workload(j); w == nil || w.Spec.Active != nil && !*w.Spec.Active {
		s.Fatalf("the workload of job %s was deactivated: %s", j.Name, s.standing(j))
	}
}

// evictions are the reasons for which Kueue has stopped the job's workload.
func (s *site) evictions(j *batchv1.Job) (reasons []string) {
	s.Helper()
	if w := s.workload(j); w != nil && w.Status.SchedulingStats != nil {
		for _, e := range w.Status.SchedulingStats.Evictions {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

func (s *site) nodes() []corev1.Node {
	s.Helper()
	var nodes corev1.NodeList
	s.list(&nodes, client.MatchingLabels{siteLabel: s.name})
	return nodes.Items
}

// machines of the site, those included that have ended and are still on record.
func (s *site) machines() []kwokv1alpha1.Machine {
	s.Helper()
	var machines kwokv1alpha1.MachineList
	s.list(&machines)
	return slices.DeleteFunc(machines.Items, func(m kwokv1alpha1.Machine) bool { return m.Spec.Node.Labels[siteLabel] != s.name })
}

// lost waits until a machine of the site has come and gone again.
func (s *site) lost() {
	s.Helper()
	seen := map[string]bool{}
	s.eventually("a machine is lost", func() bool {
		present := map[string]bool{}
		for _, n := range s.nodes() {
			present[n.Name], seen[n.Name] = true, true
		}
		return len(present) < len(seen)
	}, func() any { return seen })
}

// empty waits until nothing is left of the machines and requests of the site.
func (s *site) empty() {
	s.Helper()
	var left []string
	s.eventually("no request, machine or node is left", func() bool {
		left = nil
		var requests provreq.ProvisioningRequestList
		s.list(&requests, client.InNamespace(s.name))
		for _, r := range requests.Items {
			left = append(left, "request/"+r.Name)
		}
		for _, m := range s.machines() {
			if m.Status.Phase != kwokv1alpha1.MachineTerminated {
				left = append(left, "machine/"+m.Name)
			}
		}
		for _, n := range s.nodes() {
			left = append(left, "node/"+n.Name)
		}
		return len(left) == 0
	}, func() any { return left })
}
