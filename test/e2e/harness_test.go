package e2e

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
	"github.com/muster-dev/muster/queueing/cache"
)

// patience is how long a test waits for something that should come.
const patience = 60 * time.Second

// site is a test's own part of the cluster: a namespace, and groups, flavors and
// queues of the same name, whose nodes nobody else's pods select.
type site struct {
	*testing.T
	name string
}

// newSite makes one. A test that only looks at what is its own says t.Parallel(); those
// that kill, pause or look at the whole run before, one after another.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, name: siteName(t)}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	return s
}

// siteName is the test's, as a name that namespaces may have.
func siteName(t *testing.T) string {
	name := strings.ToLower(strings.NewReplacer("Test", "", "/", "-").Replace(t.Name()))
	return strings.TrimRight(name[:min(len(name), 50)], "-")
}

func (s *site) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := kube.Create(s.Context(), o); err != nil {
			s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (s *site) delete(o client.Object) {
	s.Helper()
	if err := kube.Delete(s.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

func (s *site) get(o client.Object) bool {
	s.Helper()
	err := kube.Get(s.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		s.Logf("reading %T %s: %v", o, o.GetName(), err) // the API server may be starting again
	}
	return err == nil
}

// eventually waits until the condition holds; what says how things stand.
func (s *site) eventually(wish string, holds func() bool, what func() string) {
	s.Helper()
	s.within(patience, wish, holds, what)
}

// within is eventually for what takes so long.
func (s *site) within(most time.Duration, wish string, holds func() bool, what func() string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), most)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			s.Fatalf("not within %s: %s. %s", most, wish, what())
		case <-ticker.C:
		}
	}
}

// machine is 96 cores, 1 TiB and 8 GPUs behind a taint.
var machine = corev1.ResourceList{
	"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"), "nvidia.com/gpu": resource.MustParse("8"),
}

// siteLabel keeps the pods of one site on its own nodes.
const siteLabel = "e2e.muster.dev/site"

var gpuTaint = corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}

// group creates a pool of eight machines that boot in half a second.
func (s *site) group(suffix string, change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	s.Helper()
	g := s.newGroup(suffix, change)
	s.create(g)
	return g
}

func (s *site) newGroup(suffix string, change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	price := resource.MustParse("98.32")
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.name + suffix}}
	g.Spec = v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: 8, CapacityType: v1alpha1.OnDemand, Zone: "zone-a", PricePerHour: &price,
		JoinTimeout: &metav1.Duration{Duration: 30 * time.Second}, IdleTimeout: &metav1.Duration{Duration: time.Second},
		Template: v1alpha1.NodeTemplate{Labels: map[string]string{siteLabel: s.name}, Taints: []corev1.Taint{gpuTaint}, Capacity: machine},
		Kwok:     &v1alpha1.KwokPool{BootDelay: metav1.Duration{Duration: 500 * time.Millisecond}},
	}
	if change != nil {
		change(g)
	}
	return g
}

// podSpec asks for a whole machine of the site.
func (s *site) podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{siteLabel: s.name},
		Tolerations:   []corev1.Toleration{{Key: gpuTaint.Key, Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("8")},
		}}},
	}
}

// request asks for count whole machines, directly.
func (s *site) request(name string, count int32, change func(*provreq.ProvisioningRequest), pods ...func(*corev1.PodSpec)) *provreq.ProvisioningRequest {
	s.Helper()
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}
	template.Template.Spec = s.podSpec()
	for _, p := range pods {
		p(&template.Template.Spec)
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}
	r.Spec = provreq.ProvisioningRequestSpec{
		ProvisioningClassName: model.ClassAtomicScaleUp,
		PodSets:               []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: name}, Count: count}},
	}
	if change != nil {
		change(r)
	}
	s.create(template, r)
	return r
}

// condition waits until the request has the condition in the status, and returns it.
func (s *site) condition(r *provreq.ProvisioningRequest, kind string, status metav1.ConditionStatus) metav1.Condition {
	s.Helper()
	var c *metav1.Condition
	s.eventually(fmt.Sprintf("%s=%s of request %s", kind, status, r.Name), func() bool {
		if !s.get(r) {
			return false
		}
		c = meta.FindStatusCondition(r.Status.Conditions, kind)
		return c != nil && c.Status == status
	}, func() string { return fmt.Sprintf("conditions: %v", r.Status.Conditions) })
	return *c
}

// queue is a ClusterQueue with a LocalQueue of the site's name. Its flavors are
// one for each of the groups, in their order; with our capacity check.
func (s *site) queue(groups ...*v1alpha1.NodeGroup) {
	s.Helper()
	s.capacityCheck()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	rg := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"}}
	for _, g := range groups {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		flavor.Spec.NodeLabels = map[string]string{v1alpha1.NodeGroupLabel: g.Name}
		s.create(flavor)
		rg.Flavors = append(rg.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(g.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("768")},
			{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("64")},
		}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{rg}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.name)
	s.create(cq, lq)
}

// capacityCheck is our AdmissionCheck, which all sites share.
func (s *site) capacityCheck() {
	s.Helper()
	c := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity"}}
	c.Spec.ControllerName = cache.CapacityController
	if err := kube.Create(s.Context(), c); client.IgnoreAlreadyExists(err) != nil {
		s.Fatal(err)
	}
}

// job is a queued Job of count pods, each of a whole machine for a second.
func (s *site) job(name string, count int32, change func(*batchv1.Job)) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.name}}}
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Spec = s.podSpec()
	if change != nil {
		change(j)
	}
	s.create(j)
	return j
}

// workload is the job's, if there is one yet.
func (s *site) workload(j *batchv1.Job) *kueue.Workload {
	var list kueue.WorkloadList
	if err := kube.List(s.Context(), &list, client.InNamespace(j.Namespace)); err != nil {
		return nil
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.UID == j.UID {
			return &list.Items[i]
		}
	}
	return nil
}

func (s *site) complete(j *batchv1.Job) {
	s.Helper()
	s.eventually("completion of job "+j.Name, func() bool {
		return s.get(j) && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	}, func() string {
		if w := s.workload(j); w != nil {
			return fmt.Sprintf("workload: %v; checks: %v", w.Status.Conditions, w.Status.AdmissionChecks)
		}
		return "it has no workload"
	})
}

// machines and nodes of a group that are left, by name.
func (s *site) left(group string) (names []string) {
	var machines kwokv1alpha1.MachineList
	var nodes corev1.NodeList
	if kube.List(s.Context(), &machines) != nil || kube.List(s.Context(), &nodes) != nil {
		return []string{"(the API server does not answer)"}
	}
	for _, m := range machines.Items {
		if m.Spec.Group == group && m.Status.Phase != kwokv1alpha1.MachineTerminated {
			names = append(names, "machine/"+m.Name)
		}
	}
	for _, n := range nodes.Items {
		if n.Labels[v1alpha1.NodeGroupLabel] == group {
			names = append(names, "node/"+n.Name)
		}
	}
	return names
}

// empty waits until nothing of the group is left.
func (s *site) empty(group string) {
	s.Helper()
	s.eventually("no machine or node of group "+group, func() bool { return len(s.left(group)) == 0 },
		func() string { return fmt.Sprint("left: ", s.left(group)) })
}
