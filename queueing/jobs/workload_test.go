package jobs_test

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
}

// TestWhatTheServerAddsToPodsIsCounted: default requests and overhead need quota
// and room as much as what the Job itself requests.
func TestWhatTheServerAddsToPodsIsCounted(t *testing.T) {
	ranges := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: "default"}}
	ranges.Spec.Limits = []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePod, DefaultRequest: amounts("64", "64Gi")},
		{Type: corev1.LimitTypeContainer, DefaultRequest: amounts("3", "3Gi")},
	}
	kata := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Overhead: &nodev1.Overhead{PodFixed: amounts("250m", "120Mi")}}
	g := newRig(t, suspendedJob(func(j *batchv1.Job) {
		j.Spec.Template.Spec.RuntimeClassName = new("kata")
		j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
		j.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	}), ranges, kata)
	g.settle()
	spec := g.workload().Spec.PodSets[0].Template.Spec
	if got := spec.Containers[0].Resources.Requests; len(got) != 1 || got.Cpu().String() != "1" {
		t.Errorf("requests of the container that asks itself: %v", got)
	}
	if got := spec.InitContainers[0].Resources.Requests; got.Cpu().String() != "3" || got.Memory().String() != "3Gi" {
		t.Errorf("requests of the container that asks for nothing: %v", got)
	}
	if got := spec.Overhead.Cpu().String(); got != "250m" {
		t.Errorf("overhead: %v", spec.Overhead)
	}
	g.status(admit)
	g.settle()
	if template := g.job().Spec.Template.Spec; isSuspended(g.job()) || template.Overhead != nil ||
		template.InitContainers[0].Resources.Requests != nil {
		t.Errorf("suspended: %v; what the server adds was written into the Job: %+v", isSuspended(g.job()), template)
	}
}

func TestRuntimeClassesThatCannotBeFollowed(t *testing.T) {
	sends := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"sandboxed": "yes"}}}
	for name, c := range map[string]struct {
		class    []client.Object
		selector map[string]string
		want     string
	}{
		"there is none":                  {want: "doesn't exist"},
		"it sends pods to certain nodes": {class: []client.Object{sends}},
		"the Job sends its pods elsewhere": {class: []client.Object{sends}, selector: map[string]string{"sandboxed": "no"},
			want: "selects nodes with sandboxed=yes, and the job's pods those with sandboxed=no"},
		"the Job sends its pods there":   {class: []client.Object{sends}, selector: map[string]string{"sandboxed": "yes"}},
		"it says nothing, like nvidia's": {class: []client.Object{&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}}}},
	} {
		g := newRig(t, append(c.class, suspendedJob(func(j *batchv1.Job) {
			j.Spec.Template.Spec.RuntimeClassName, j.Spec.Template.Spec.NodeSelector = new("kata"), c.selector
		}))...)
		g.settle()
		if got := g.workload().Annotations[workload.RefusedAnnotation]; (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: refused because of %q, want %q", name, got, c.want)
		}
	}
}

// TestSystemClassesGiveNoPriorityInAQueue: any user may name them. A WorkloadPriorityClass is an administrator's.
func TestSystemClassesGiveNoPriorityInAQueue(t *testing.T) {
	node := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2_000_001_000}
	high := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10}
	for name, c := range map[string]struct {
		label    string
		refused  bool
		priority int32
	}{
		"of its pods alone":                {refused: true},
		"beside one of an administrator's": {label: "high", priority: 10},
	} {
		g := newRig(t, node, high, suspendedJob(func(j *batchv1.Job) {
			j.Spec.Template.Spec.PriorityClassName = node.Name
			if c.label != "" {
				j.Labels[PriorityClassLabel] = c.label
			}
		}))
		g.settle()
		w := g.workload()
		why := w.Annotations[workload.RefusedAnnotation]
		if refused := strings.Contains(why, node.Name); refused != c.refused || workload.Priority(w) != c.priority {
			t.Errorf("%s: priority %d, refused because of %q", name, workload.Priority(w), why)
		}
	}
}

// TestARefusedWorkloadIsReported in an Event: users do not read Muster's log.
func TestARefusedWorkloadIsReported(t *testing.T) {
	g := newRig(t, suspendedJob())
	*g.r.Client() = interceptor.NewClient((*g.r.Client()).(client.WithWatch), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Workload"}, o.GetName(), nil)
		},
	})
	if _, err := g.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g.job())}); err == nil {
		t.Error("the creation is not tried again")
	}
	select {
	case e := <-g.events.Events:
		if !strings.Contains(e, "Warning") || !strings.Contains(e, "cannot be queued") {
			t.Error(e)
		}
	default:
		t.Error("no event")
	}
}

// TestAPriorityClassThatComesLate wakes the Jobs that name it, and those that
// would have it as default.
func TestAPriorityClassThatComesLate(t *testing.T) {
	named := func(name, class string) client.Object {
		return suspendedJob(func(j *batchv1.Job) { j.Name, j.UID, j.Spec.Template.Spec.PriorityClassName = name, "u", class })
	}
	g := newRig(t, named("train", "gold"), named("plain", ""), named("other", "silver"),
		suspendedJob(func(j *batchv1.Job) { j.Name, j.Labels[PriorityClassLabel] = "of-queue", "bronze" }))
	g.settle()
	if got := g.workload().Annotations[workload.RefusedAnnotation]; !strings.Contains(got, "gold") {
		t.Errorf("without the class it says %q", got)
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Value: 7}
	if err := g.c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	var woken []string
	for _, r := range JobsOfPriority(g.r, t.Context(), class) {
		woken = append(woken, r.Name)
	}
	if got := strings.Join(woken, " "); got != "plain train" {
		t.Errorf("woken: %s", got)
	}
	if got := JobsOfClass(g.r, t.Context(), &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "bronze"}}); len(got) != 1 ||
		got[0].Name != "of-queue" {
		t.Errorf("woken by a WorkloadPriorityClass: %v", got)
	}
	g.settle()
	if w := g.workload(); *w.Spec.Priority != 7 || w.Annotations[workload.RefusedAnnotation] != "" {
		t.Errorf("priority %v, refused because of %q", w.Spec.Priority, w.Annotations[workload.RefusedAnnotation])
	}
}

// TestATopologyIsRequestedOnTheTemplate: the annotations are the request of the Workload, also
// when they come after it, and bad ones are refused on the job.
func TestATopologyIsRequestedOnTheTemplate(t *testing.T) {
	g := newRig(t, suspendedJob())
	g.settle()
	request := g.workload().Spec.PodSets[0].TopologyRequest
	if request == nil || *request.PodIndexLabel != batchv1.JobCompletionIndexAnnotation || request.Required != nil {
		t.Errorf("a Job that asks for nothing: %+v", request)
	}
	annotate := func(key, value string) {
		job := g.job()
		metav1.SetMetaDataAnnotation(&job.Spec.Template.ObjectMeta, key, value)
		if err := g.c.Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		g.settle()
	}
	annotate(kueue.PodSetRequiredTopologyAnnotation, "example.com/rack")
	if request = g.workload().Spec.PodSets[0].TopologyRequest; request == nil || request.Required == nil ||
		*request.Required != "example.com/rack" {
		t.Errorf("a Job that asks for a rack: %+v", request)
	}
	annotate(kueue.PodSetSliceSizeAnnotation, "4")
	if got := g.workload().Annotations[workload.RefusedAnnotation]; !strings.Contains(got, kueue.PodSetSliceSizeAnnotation) {
		t.Errorf("a size of slices without a level is refused because of %q", got)
	}
}

// TestALabelThatPodsCannotHave refuses the job before its machines are requested.
func TestALabelThatPodsCannotHave(t *testing.T) {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) {
		j.Spec.Template.Labels = map[string]string{"app": "not a label"}
	}))
	g.settle()
	const want = "the pod template of podSet main is invalid: metadata.labels"
	if why := g.workload().Annotations[workload.RefusedAnnotation]; !strings.Contains(why, want) {
		t.Errorf("it is refused because of %q", why)
	}
}

// TestTheUserOfAJobIsThatOfItsWorkload, also of one that something else has created and that names another user.
func TestTheUserOfAJobIsThatOfItsWorkload(t *testing.T) {
	by := func(user string) map[string]string { return map[string]string{workload.SubmittedByAnnotation: user} }
	g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Annotations = by("alice") }))
	g.settle()
	if got := g.workload().Annotations[workload.SubmittedByAnnotation]; got != "alice" {
		t.Errorf("it has the user %q", got)
	}
	g.updateJob(func(j *batchv1.Job) { j.Annotations = nil })
	if g.settle(); g.workload().Annotations[workload.SubmittedByAnnotation] != "" {
		t.Error("it has a user that its job does not have any more")
	}
	g = newRig(t, suspendedJob(naming("mine"), func(j *batchv1.Job) { j.Annotations = by("alice") }),
		prebuilt("mine", func(w *kueue.Workload) { w.Annotations = by("bob") }))
	g.settle()
	if got := g.named("mine").Annotations[workload.SubmittedByAnnotation]; got != "alice" {
		t.Errorf("a prebuilt Workload has the user %q", got)
	}
}
