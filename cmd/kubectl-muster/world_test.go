package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
)

const gpu = "nvidia.com/gpu"

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at is some minutes before noon.
func at(minutes int) metav1.Time {
	return metav1.NewTime(noon.Add(-time.Duration(minutes) * time.Minute))
}

// meta makes the UID follow from the name, so that names are all that tests need.
func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: at(60), Generation: 1}
}

// pictureOf is that of a cluster with these objects, at noon, in a namespace
// default with a LocalQueue main that feeds ClusterQueue team.
func pictureOf(missing []view.Right, objects ...client.Object) *view.Picture {
	defaults, err := view.LoadSettings("")
	if err != nil {
		panic(err) // without a file there is nothing to go wrong
	}
	return view.New(clocktesting.NewFakePassiveClock(noon), defaults,
		&view.Reading{Objects: slices.Concat(everywhere(), objects), Missing: missing})
}

// everywhere are the objects that all clusters have.
func everywhere() []client.Object {
	return []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "ns"}}, localQueue("main", "team")}
}

func localQueue(name, cq string) *kueue.LocalQueue {
	out := &kueue.LocalQueue{ObjectMeta: meta(name)}
	out.Spec.ClusterQueue = kueue.ClusterQueueReference(cq)
	return out
}

// flavor is of the nodes of the pool of its name.
func flavor(name string) *kueue.ResourceFlavor {
	out := &kueue.ResourceFlavor{ObjectMeta: meta(name)}
	out.Spec.NodeLabels = map[string]string{"pool": name}
	return out
}

// team is a ClusterQueue with so many GPUs on each flavor, given as NAME=GPUS.
func team(name string, change func(*kueue.ClusterQueueSpec), quotas ...string) *kueue.ClusterQueue {
	out := &kueue.ClusterQueue{ObjectMeta: meta(name)}
	out.Spec.NamespaceSelector = &metav1.LabelSelector{}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{gpu}}
	for _, q := range quotas {
		name, amount, _ := strings.Cut(q, "=")
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{
			{Name: gpu, NominalQuota: resource.MustParse(amount)},
		}})
	}
	out.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	if change != nil {
		change(&out.Spec)
	}
	return out
}

// checked has a ClusterQueue request machines.
func checked(spec *kueue.ClusterQueueSpec) {
	spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
}

func check(name, controller, policy string) *kueue.AdmissionCheck {
	out := &kueue.AdmissionCheck{ObjectMeta: meta(name)}
	out.Spec.ControllerName = controller
	if policy != "" {
		out.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group,
			Kind: "CapacityPolicy", Name: policy}
	}
	return out
}

// capacity is the check of team.
func capacity() *kueue.AdmissionCheck { return check("capacity", cache.CapacityController, "") }

// group is a NodeGroup of machines of 8 GPUs in the pool of its name, at 10 USD an hour.
func group(name string, most int32, change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	out := &v1alpha1.NodeGroup{ObjectMeta: meta(name)}
	out.Spec = v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: most, CapacityType: v1alpha1.OnDemand, Zone: "zone-a",
		PricePerHour: new(resource.MustParse("10")),
		Template: v1alpha1.NodeTemplate{Labels: map[string]string{"pool": name}, Capacity: corev1.ResourceList{
			"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"), gpu: resource.MustParse("8"),
		}},
	}
	if change != nil {
		change(out)
	}
	return out
}

// dry is a group that had a stockout ten minutes ago and is left alone for five more.
func dry(g *v1alpha1.NodeGroup) {
	const short = "only 3 of 4 machines"
	g.Status.Attempts = []v1alpha1.LaunchAttempt{{Time: at(10), Requested: 4, Got: 3, Class: v1alpha1.Stockout, Message: short}}
	g.Status.Backoffs = []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 1, Until: at(-5), Message: short}}
}

// node is a machine of 8 GPUs in the pool, of no group.
func node(name, pool string) *corev1.Node {
	out := &corev1.Node{ObjectMeta: meta(name)}
	out.Namespace, out.Labels = "", map[string]string{"pool": pool, "name": name}
	out.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("96"), gpu: resource.MustParse("8"),
		"pods": resource.MustParse("110")}
	out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return out
}

// bookedNode is a node of a group that a request of default has booked whole.
func bookedNode(name, group, request string) *corev1.Node {
	out := node(name, group)
	out.Labels[v1alpha1.NodeGroupLabel], out.Labels[state.BookingLabel(request)] = group, "default"
	out.Spec.Unschedulable = true
	return out
}

func podTemplate(gpus int64) corev1.PodTemplateSpec {
	var out corev1.PodTemplateSpec
	out.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
	}}}
	return out
}

// waiting is a Workload of so many pods of 8 GPUs that has been in queue main for an hour.
func waiting(name string, pods int32, change func(*kueue.Workload)) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: meta(name)}
	out.Spec.QueueName = "main"
	out.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: pods, Template: podTemplate(8)}}
	if change != nil {
		change(out)
	}
	return out
}

// reserved has a Workload hold its quota in the ClusterQueue, on flavor h100.
func reserved(name, cq string, pods int32, change func(*kueue.Workload)) *kueue.Workload {
	return waiting(name, pods, func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(cq), PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "h100"},
			ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(int64(pods)*8, resource.DecimalSI)},
		}}}
		condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "")
		if change != nil {
			change(w)
		}
	})
}

// running is one that has been admitted.
func running(name, cq string, pods int32, change func(*kueue.Workload)) *kueue.Workload {
	return reserved(name, cq, pods, func(w *kueue.Workload) {
		condition(w, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
		if change != nil {
			change(w)
		}
	})
}

func condition(w *kueue.Workload, kind string, status metav1.ConditionStatus, reason, message string) {
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: at(30)})
}

func priority(p int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Spec.Priority = &p }
}

func job(name string, labels map[string]string) *batchv1.Job {
	out := &batchv1.Job{ObjectMeta: meta(name)}
	out.Labels = labels
	return out
}

// ownedBy has a Job of the name control an object.
func ownedBy(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID(name), Controller: new(true)}
}

// request named train requests 4 pods of 8 GPUs of the pool h100, by a PodTemplate of its
// name.
func request() []client.Object {
	const name = "train"
	r := &provreq.ProvisioningRequest{ObjectMeta: meta(name)}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: name}, Count: 4}}
	t := &corev1.PodTemplate{ObjectMeta: meta(name), Template: podTemplate(8)}
	t.UID += "-template"
	t.Template.Spec.NodeSelector = map[string]string{"pool": "h100"}
	return []client.Object{r, t}
}

// lacks fails for the sentences that are not in the text.
func lacks(t *testing.T, text string, sentences ...string) {
	t.Helper()
	for _, s := range sentences {
		if !strings.Contains(text, s) {
			t.Errorf("the answer lacks %q:\n%s", s, text)
		}
	}
}

// printed returns what an answer prints, wide, and validates its JSON against the published schema.
func printed(t *testing.T, a answer) string {
	t.Helper()
	conforms(t, a)
	var out strings.Builder
	p := newPrinter(&out, asWide)
	if err := a.print(p); err != nil {
		t.Fatal(err)
	}
	if f, ok := a.(foretelling); ok {
		if err := f.foretell(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.printForecast(p)
	}
	return squeezed(out.String())
}

// toldOf is what a person reads of an explanation.
func toldOf(t *testing.T, e *view.Explanation) string {
	t.Helper()
	return printed(t, explanation{e})
}

// squeezed is the text with the space between columns reduced to one.
func squeezed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

func named(t *testing.T, p *view.Picture, name string) *kueue.Workload {
	t.Helper()
	for _, w := range p.Workloads {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("no workload %s", name)
	return nil
}
