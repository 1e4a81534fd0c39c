package jobs_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/config"
	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/jobs/bindings"
	"github.com/muster-dev/muster/queueing/workload"
)

// everywhere selects the namespaces of a configuration that only says that all Jobs are to be
// queued.
func everywhere(t *testing.T) labels.Selector {
	t.Helper()
	c := config.Config{ManageJobsWithoutQueueName: true}
	c.SetDefaults("muster-system")
	selector, err := UnqueuedSelector(c)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// jobSet is a cluster of one kind and one object, a JobSet called real.
type jobSet struct {
	client.Reader
	reads int
}

func (r *jobSet) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.reads++
	kind := o.GetObjectKind().GroupVersionKind()
	if kind.GroupVersion().String() != "jobset.x-k8s.io/v1alpha2" || kind.Kind != "JobSet" {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	if key.Name != "real" {
		return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "jobsets"}, key.Name)
	}
	o.SetUID("real")
	return nil
}

func TestIsQueued(t *testing.T) {
	owned := func(version, kind, name string, uid types.UID) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: new(true)}}
		}
	}
	none := func(*batchv1.Job) {}
	unlabelled := func(j *batchv1.Job) { j.Labels = nil }
	all := config.Config{ManageJobsWithoutQueueName: true}
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	for name, c := range map[string]struct {
		job       func(*batchv1.Job)
		owned     func(*batchv1.Job)
		namespace string
		config    config.Config
		want      bool
	}{
		"it names a queue":                             {job: none, want: true},
		"it names none":                                {job: unlabelled},
		"it names an empty one":                        {job: func(j *batchv1.Job) { j.Labels[QueueLabel] = "" }},
		"it names none, and all are to queue":          {job: unlabelled, config: all, want: true},
		"in a namespace of the cluster's own":          {job: unlabelled, namespace: "kube-system", config: all},
		"in Muster's own namespace":                    {job: unlabelled, namespace: "muster-system", config: all},
		"it names a queue, in the cluster's namespace": {job: none, namespace: "kube-system", config: all, want: true},
		"in a namespace that is selected": {job: unlabelled, namespace: "blue",
			config: config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: team}, want: true},
		"in a namespace that is not selected": {job: unlabelled,
			config: config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: team}},
		"a selector alone changes nothing": {job: unlabelled, namespace: "blue",
			config: config.Config{ManagedJobsNamespaceSelector: team}},
		"part of a JobSet, which is queued whole": {job: unlabelled, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet", "real", "real"),
			config: all},
		"part of a JobSet that is not there": {job: unlabelled, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet", "invented", "real"),
			config: all, want: true},
		"part of a namesake of a JobSet": {job: unlabelled, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet", "real", "invented"),
			config: all, want: true},
		"of a kind that the cluster has not": {job: unlabelled, owned: owned("ray.io/v1", "RayJob", "real", "real"), config: all,
			want: true},
		"of a version that the kind has not": {job: unlabelled, owned: owned("jobset.x-k8s.io/v99", "JobSet", "real", "real"),
			config: all, want: true},
		"of a Deployment, which makes no Jobs": {job: unlabelled, owned: owned("apps/v1", "Deployment", "real", "real"), config: all,
			want: true},
		"of a CronJob, which is not queued": {job: unlabelled, owned: owned("batch/v1", "CronJob", "real", "real"), config: all,
			want: true},
		"of a kind that knows nothing of queues": {job: unlabelled, owned: owned("argoproj.io/v1alpha1", "Workflow", "real", "real"),
			config: all, want: true},
		"part of a JobSet, with the label that its operator has copied": {job: none, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet", "real", "real"),
			want: false},
	} {
		var objects []client.Object
		for _, n := range []string{"default", "kube-system", "muster-system"} {
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n,
				Labels: map[string]string{corev1.LabelMetadataName: n}}})
		}
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue", Labels: map[string]string{"team": "blue"}}})
		g := newRig(t, objects...)
		c.config.SetDefaults("muster-system")
		var err error
		if *g.r.Unqueued(), err = UnqueuedSelector(c.config); err != nil {
			t.Fatal(err)
		}
		job := suspendedJob(c.job)
		if c.owned != nil {
			c.owned(job)
		}
		if c.namespace != "" {
			job.Namespace = c.namespace
		}
		owners := &jobSet{}
		*g.r.Owners() = sets.New(schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, schema.GroupKind{Group: "ray.io", Kind: "RayJob"})
		*g.r.Live() = owners
		for range 3 {
			if got, err := IsQueued(g.r, t.Context(), job); got != c.want || err != nil {
				t.Errorf("%s: %v, error %v; want %v", name, got, err, c.want)
			}
		}
		if owners.reads > 1 {
			t.Errorf("%s: %d reads of its owner", name, owners.reads)
		}
	}
	if _, err := UnqueuedSelector(config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}}); err == nil || !strings.Contains(err.Error(), "managedJobsNamespaceSelector") {
		t.Errorf("a wrong selector: %v", err)
	}
}

// TestAJobThatNamesNoQueue waits where all Jobs are to queue, and says what it
// needs; with it, it goes on.
func TestAJobThatNamesNoQueue(t *testing.T) {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Labels = nil }), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	*g.r.Unqueued() = everywhere(t)
	g.settle()
	if why := g.workload().Annotations[workload.RefusedAnnotation]; !strings.Contains(why, "set its label "+QueueLabel) {
		t.Errorf("it waits because of %q", why)
	}
	if !strings.Contains(g.told(), "names no queue") {
		t.Error("no event says so")
	}
	g.updateJob(func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
	g.settle()
	if !isSuspended(g.job()) {
		t.Error("a user started it")
	}
	g.updateJob(func(j *batchv1.Job) {
		j.Spec.Suspend = new(false)
		j.Annotations = map[string]string{BreakGlassAnnotation: "I may, since no policy looks at Jobs without a queue"}
	})
	g.settle()
	if !isSuspended(g.job()) {
		t.Error("a user broke the glass")
	}
	g.updateJob(func(j *batchv1.Job) { j.Labels = map[string]string{QueueLabel: "main"} })
	g.settle()
	if w := g.workload(); w.Spec.QueueName != "main" || w.Annotations[workload.RefusedAnnotation] != "" {
		t.Errorf("with the label it is in queue %q, refused because of %q", w.Spec.QueueName, w.Annotations[workload.RefusedAnnotation])
	}
}

// TestTheBindingsFollowTheConfiguration, however often Muster starts. As they are
// installed they select what they do if nothing is said.
func TestTheBindingsFollowTheConfiguration(t *testing.T) {
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		t.Fatal(err)
	}
	var bound []client.Object
	for _, o := range objects {
		if slices.Contains([]string{bindings.Default, bindings.Unqueued, bindings.Owners}, o.GetName()) && strings.HasSuffix(o.GetKind(), "Binding") {
			bound = append(bound, o)
		}
	}
	g := newRig(t, bound...)
	// selected are the namespaces of the default queue, of Jobs without a queue and of
	// their owners.
	selected := func() (out [3]*metav1.LabelSelector) {
		t.Helper()
		var byDefault, unnamed admissionv1.MutatingAdmissionPolicyBinding
		var owners admissionv1.ValidatingAdmissionPolicyBinding
		for name, o := range map[string]client.Object{bindings.Default: &byDefault, bindings.Unqueued: &unnamed, bindings.Owners: &owners} {
			if err := g.c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
				t.Fatal(err)
			}
		}
		if byDefault.Spec.ParamRef == nil || unnamed.Spec.PolicyName != bindings.Unqueued || owners.Spec.PolicyName != bindings.Owners {
			t.Error("the bindings bind other policies than before")
		}
		return [3]*metav1.LabelSelector{byDefault.Spec.MatchResources.NamespaceSelector, unnamed.Spec.MatchResources.NamespaceSelector,
			owners.Spec.MatchResources.NamespaceSelector}
	}
	blue := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"team": "blue"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "batch", Operator: metav1.LabelSelectorOpExists}},
	}
	most := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "muster-system"},
	}}}
	if diff := cmp.Diff([3]*metav1.LabelSelector{most, bindings.Nowhere, bindings.Nowhere}, selected()); diff != "" {
		t.Errorf("as installed: (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		name   string
		config config.Config
		want   [3]*metav1.LabelSelector
	}{
		{"all Jobs of some namespaces", config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: blue},
			[3]*metav1.LabelSelector{blue, blue, blue}},
		{"all Jobs", config.Config{ManageJobsWithoutQueueName: true}, [3]*metav1.LabelSelector{most, most, most}},
		{"Jobs of some namespaces", config.Config{ManagedJobsNamespaceSelector: blue}, [3]*metav1.LabelSelector{blue, bindings.Nowhere, bindings.Nowhere}},
		{"nothing is said", config.Config{}, [3]*metav1.LabelSelector{most, bindings.Nowhere, bindings.Nowhere}},
	} {
		c.config.SetDefaults("muster-system")
		for range 2 {
			if err := (&bindings.Binder{Client: g.c, Config: c.config}).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, selected()); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", c.name, diff)
			}
		}
	}
}

// TestBindingsThatAreMissing stop Muster only where they are needed.
func TestBindingsThatAreMissing(t *testing.T) {
	g := newRig(t)
	c := config.Config{}
	c.SetDefaults("muster-system")
	if err := (&bindings.Binder{Client: g.c, Config: c}).Start(t.Context()); err != nil {
		t.Error(err)
	}
	c.ManageJobsWithoutQueueName = true
	if err := (&bindings.Binder{Client: g.c, Config: c}).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "deploy/policies/jobs.yaml") {
		t.Errorf("error %v", err)
	}
}

// TestPoliciesAndControllerAgree on which Jobs are queued as a part of something,
// and on names.
func TestPoliciesAndControllerAgree(t *testing.T) {
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]string{}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(o.GetKind(), "AdmissionPolicy") {
			policies[o.GetName()] = strings.Join(strings.Fields(strings.ReplaceAll(string(text), `\n`, " ")), " ")
		}
	}
	if policies[batch.Kind{}.StartPolicy()] == "" {
		t.Errorf("there is no policy %s", batch.Kind{}.StartPolicy())
	}
}

// TestWhatAnOwnerQueuesIsLeftAlone, also with what its operator has copied to it: the label of
// the queue, and the record of the owner's start.
func TestWhatAnOwnerQueuesIsLeftAlone(t *testing.T) {
	job := suspendedJob(func(j *batchv1.Job) {
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "real", UID: "real", Controller: new(true)}}
		j.Annotations = map[string]string{StartedAnnotation: "{}"}
		j.Spec.Suspend = new(false)
	})
	g := newRig(t, job)
	*g.r.Live() = &jobSet{}
	*g.r.Owners() = sets.New(schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"})
	g.settle()
	if g.writes != 0 || isSuspended(g.job()) {
		t.Errorf("%d writes, suspended: %v", g.writes, isSuspended(g.job()))
	}
}
