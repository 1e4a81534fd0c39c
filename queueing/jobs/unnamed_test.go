package jobs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/config"
)

// everywhere selects the namespaces that an administrator gets who only says that
// all Jobs are to queue.
func everywhere(t *testing.T) labels.Selector {
	t.Helper()
	selector, err := unnamedSelector(config.Config{ManageJobsWithoutQueueName: true})
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func TestIsQueued(t *testing.T) {
	owned := func(version, kind string) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}}
		}
	}
	none := func(*batchv1.Job) {}
	unlabelled := func(j *batchv1.Job) { j.Labels = nil }
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	for name, c := range map[string]struct {
		job       func(*batchv1.Job)
		owned     func(*batchv1.Job)
		namespace string
		config    config.Config
		want      bool
	}{
		"it names a queue":                              {job: none, want: true},
		"it names none":                                 {job: unlabelled},
		"it names an empty one":                         {job: func(j *batchv1.Job) { j.Labels[QueueLabel] = "" }},
		"it names none, and all are to queue":           {job: unlabelled, config: config.Config{ManageJobsWithoutQueueName: true}, want: true},
		"in a namespace of the cluster's own":           {job: unlabelled, namespace: "kube-system", config: config.Config{ManageJobsWithoutQueueName: true}},
		"in Muster's own namespace":                     {job: unlabelled, namespace: "muster-system", config: config.Config{ManageJobsWithoutQueueName: true}},
		"it names a queue, in the cluster's namespace":  {job: none, namespace: "kube-system", config: config.Config{ManageJobsWithoutQueueName: true}, want: true},
		"in a namespace that is selected":               {job: unlabelled, namespace: "blue", config: config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: team}, want: true},
		"in a namespace that is not selected":           {job: unlabelled, config: config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: team}},
		"a selector alone changes nothing":              {job: unlabelled, namespace: "blue", config: config.Config{ManagedJobsNamespaceSelector: team}},
		"part of a JobSet, which is queued whole":       {job: unlabelled, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet"), config: config.Config{ManageJobsWithoutQueueName: true}},
		"of a CronJob, which is not":                    {job: unlabelled, owned: owned("batch/v1", "CronJob"), config: config.Config{ManageJobsWithoutQueueName: true}, want: true},
		"of somebody who knows nothing of queues":       {job: unlabelled, owned: owned("argoproj.io/v1alpha1", "Workflow"), config: config.Config{ManageJobsWithoutQueueName: true}, want: true},
		"part of a JobSet, but with a queue of its own": {job: none, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet"), want: true},
	} {
		var objects []client.Object
		for _, n := range []string{"default", "kube-system", "muster-system"} {
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{corev1.LabelMetadataName: n}}})
		}
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue", Labels: map[string]string{"team": "blue"}}})
		g := newRig(t, objects...)
		var err error
		if g.r.unnamed, err = unnamedSelector(c.config); err != nil {
			t.Fatal(err)
		}
		job := suspendedJob(c.job)
		if c.owned != nil {
			c.owned(job)
		}
		if c.namespace != "" {
			job.Namespace = c.namespace
		}
		if got, err := g.r.isQueued(t.Context(), job); got != c.want || err != nil {
			t.Errorf("%s: %v, error %v; want %v", name, got, err, c.want)
		}
	}
	if _, err := unnamedSelector(config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}}); err == nil || !strings.Contains(err.Error(), "managedJobsNamespaceSelector") {
		t.Errorf("a wrong selector: %v", err)
	}
}

// TestAJobThatNamesNoQueue waits where all Jobs are to queue, and says what it
// needs; with it, it goes on.
func TestAJobThatNamesNoQueue(t *testing.T) {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Labels = nil }), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	g.r.unnamed = everywhere(t)
	g.settle()
	if why := g.workload().Annotations[queueing.RefusedAnnotation]; !strings.Contains(why, "set its label "+QueueLabel) {
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
	if w := g.workload(); w.Spec.QueueName != "main" || w.Annotations[queueing.RefusedAnnotation] != "" {
		t.Errorf("with the label it is in queue %q, refused because of %q", w.Spec.QueueName, w.Annotations[queueing.RefusedAnnotation])
	}
}

// TestTheBindingFollowsTheConfiguration, however often Muster starts.
func TestTheBindingFollowsTheConfiguration(t *testing.T) {
	g := newRig(t)
	start := func(c config.Config) *admissionv1.MutatingAdmissionPolicyBinding {
		t.Helper()
		if err := (&binder{g.c, c}).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := &admissionv1.MutatingAdmissionPolicyBinding{}
		if err := g.c.Get(t.Context(), client.ObjectKey{Name: unnamedPolicy}, out); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			t.Fatal(err)
		}
		return out
	}
	if start(config.Config{}) != nil {
		t.Error("there is a binding although Jobs without a queue run as ever")
	}
	blue := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"team": "blue"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "batch", Operator: metav1.LabelSelectorOpExists}},
	}
	for name, c := range map[string]struct{ set, want *metav1.LabelSelector }{
		"selected": {blue, blue},
		"by default": {nil, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "muster-system"},
		}}}},
	} {
		for range 2 {
			b := start(config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: c.set})
			if b == nil || b.Spec.PolicyName != unnamedPolicy {
				t.Fatalf("%s: binding %v", name, b)
			}
			if diff := cmp.Diff(c.want, b.Spec.MatchResources.NamespaceSelector); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", name, diff)
			}
		}
	}
	if start(config.Config{}) != nil {
		t.Error("the binding stays although Jobs without a queue are to run")
	}
}

// TestPoliciesAndControllerAgree on which Jobs are queued as a part of something,
// and on names.
func TestPoliciesAndControllerAgree(t *testing.T) {
	objects, err := deploy.Manifests()
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
	for _, name := range []string{unnamedPolicy, "muster-jobs-default-queue"} {
		list := "in [ '" + strings.Join(queuedOwners, "', '") + "']"
		if policies[name] == "" || !strings.Contains(policies[name], list) {
			t.Errorf("policy %s has another list than %s", name, list)
		}
	}
	if policies[startPolicy] == "" {
		t.Errorf("there is no policy %s", startPolicy)
	}
}
