package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/config"
	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/jobs/bindings"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/workload"
)

// everywhere selects the namespaces of a configuration that only says that all Jobs are to be
// queued.
func everywhere(t *testing.T) labels.Selector {
	t.Helper()
	c := config.Config{ManageJobsWithoutQueueName: true}
	c.SetDefaults("muster-system")
	selector, err := bindings.Selector(c)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// owners is a cluster of JobSets and Jobs that control jobs. The name of each is its UID: the first word says whether it is queued, and
// the rest is the UID of the JobSet that controls it.
type owners struct {
	client.Reader
	reads int
	// queued, held and ended are of all that have an owner's name, whatever the name says.
	queued, held, ended bool
}

func (r *owners) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.reads++
	if _, ok := o.(*unstructured.Unstructured); !ok && key.Name == "train" || isWorkload(o) {
		return r.Reader.Get(context.Background(), key, o)
	}
	kind := "Job"
	if u, ok := o.(*unstructured.Unstructured); ok {
		kind = u.GetKind()
	}
	if kind != "JobSet" && kind != "Job" {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}}
	}
	if key.Namespace != "default" && key.Namespace != "blue" || key.Name == "invented" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	own, above, _ := strings.Cut(key.Name, "-")
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	o.SetUID(types.UID(key.Name))
	if own == "queued" || r.queued {
		o.SetLabels(map[string]string{QueueLabel: "main"})
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object["spec"] = map[string]any{"suspend": r.held || r.queued}
	}
	if j, ok := o.(*batchv1.Job); ok {
		if j.Spec.Suspend = &r.held; r.ended {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}
	}
	if above != "" {
		o.SetOwnerReferences(ownedBy("jobset.x-k8s.io/v1alpha2", "JobSet", above, types.UID(above)))
	}
	return nil
}

func isWorkload(o client.Object) bool { _, is := o.(*kueue.Workload); return is }

func ownedBy(version, kind, name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: new(true)}}
}

func TestIsQueued(t *testing.T) {
	owned := func(version, kind, name string, uid types.UID) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.OwnerReferences = ownedBy(version, kind, name, uid)
		}
	}
	jobSet := func(name string) func(*batchv1.Job) {
		return owned("jobset.x-k8s.io/v1alpha2", "JobSet", name, types.UID(name))
	}
	launcher := func(name string) func(*batchv1.Job) { return owned("batch/v1", "Job", name, types.UID(name)) }
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
		"part of a JobSet where all are to queue": {job: unlabelled, owned: jobSet("own"), config: all},
		"part of a JobSet that is not there": {job: unlabelled, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet", "invented", "own"),
			config: all, want: true},
		"part of a namesake of a JobSet": {job: unlabelled, owned: owned("jobset.x-k8s.io/v1alpha2", "JobSet", "own", "another"),
			config: all, want: true},
		"of a kind that the cluster has not": {job: unlabelled, owned: owned("ray.io/v1", "RayJob", "own", "own"), config: all,
			want: true},
		"of a version that the cluster has not": {job: unlabelled, owned: owned("jobset.x-k8s.io/v99", "JobSet", "own", "own"), config: all},
		"of a Deployment, which makes no Jobs": {job: unlabelled, owned: owned("apps/v1", "Deployment", "queued", "queued"), config: all,
			want: true},
		"of a CronJob, which is not queued": {job: unlabelled, owned: owned("batch/v1", "CronJob", "queued", "queued"), config: all,
			want: true},
		"of a kind that knows nothing of queues": {job: unlabelled, owned: owned("argoproj.io/v1alpha1", "Workflow", "queued", "queued"), config: all,
			want: true},
		"part of a queued JobSet, with the label that its operator has copied": {job: none, owned: jobSet("queued")},
		"part of a JobSet that is in no queue, with a label of its own":        {job: none, owned: jobSet("own"), want: true},
		"part of a JobSet that is in no queue":                                 {job: unlabelled, owned: jobSet("own")},
		"part of a JobSet of another namespace":                                {job: none, namespace: "kube-system", owned: jobSet("queued"), want: true},
		"what a JobSet that is in no queue has from a queued one":              {job: none, owned: jobSet("own-queued")},
		"what a queued JobSet has from one that is in no queue":                {job: none, owned: jobSet("queued-own")},
		"below ten owners of which the last is queued":                         {job: none, owned: jobSet(strings.Repeat("own-", 9) + "queued")},
		"below eleven": {job: none, owned: jobSet(strings.Repeat("own-", 10) + "queued"), want: true},
		"of a queued Job, which has no quota for it": {job: none, owned: launcher("queued")},
		"of a Job that is in no queue":               {job: none, owned: launcher("own"), want: true},
		"of a Job of a queued JobSet":                {job: none, owned: launcher("own-queued")},
		"of a queued Job, where all have to queue":   {job: none, owned: launcher("queued"), config: all, want: true},
		"of a queued Job, where others have to": {job: none, owned: launcher("queued"),
			config: config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: team}},
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
		if *g.r.Unqueued(), err = bindings.Selector(c.config); err != nil {
			t.Fatal(err)
		}
		job := suspendedJob(c.job)
		job.ResourceVersion = "1"
		if c.owned != nil {
			c.owned(job)
		}
		if c.namespace != "" {
			job.Namespace = c.namespace
		}
		owners := &owners{}
		*g.r.Owners() = ByGroupKind(kinds.All())
		*g.r.Live() = owners
		for range 3 {
			if got, err := IsQueued(g.r, t.Context(), job); got != c.want || err != nil {
				t.Errorf("%s: %v, error %v; want %v", name, got, err, c.want)
			}
		}
		if owners.reads > 10 || owners.reads > 3 && !strings.HasPrefix(name, "below") {
			t.Errorf("%s: %d reads of its owners", name, owners.reads)
		}
	}
	if _, err := bindings.Selector(config.Config{ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: &metav1.LabelSelector{
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
	if !strings.Contains(g.newEvents(), "names no queue") {
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
		if slices.Contains([]string{bindings.Default, bindings.Unqueued, bindings.Owners}, o.GetName()) &&
			strings.HasSuffix(o.GetKind(), "Binding") {
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

// TestThePoliciesForQueuesActInManagedNamespaces: a job that names a queue elsewhere runs, as in Kueue. Users are recorded
// there, too, if at all.
func TestThePoliciesForQueuesActInManagedNamespaces(t *testing.T) {
	want := []string{"muster-jobs-suspend", "muster-jobs-start", "muster-jobs-refused", "muster-pods-gate", "muster-pods-gates",
		"muster-serving", "muster-serving-leaderworkersets", "muster-jobs-defaults", "muster-jobs-delegate"}
	blue := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	for _, c := range []struct {
		config config.Config
		want   []string
	}{
		{config.Config{ManagedJobsNamespaceSelector: blue}, want},
		{config.Config{ManagedJobsNamespaceSelector: blue, RecordUsers: true}, append(slices.Clone(want), bindings.Users)},
	} {
		if diff := cmp.Diff(slices.Sorted(slices.Values(c.want)), boundTo(t, c.config, blue)); diff != "" {
			t.Errorf("recordUsers %t (-want +got):\n%s", c.config.RecordUsers, diff)
		}
	}
}

// boundTo are the policies that act in the selected namespaces, in order and without that of the default queue.
func boundTo(t *testing.T, c config.Config, namespaces *metav1.LabelSelector) (got []string) {
	t.Helper()
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		t.Fatal(err)
	}
	var bound []client.Object
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "Binding") && !strings.Contains(o.GetKind(), "Role") {
			bound = append(bound, o)
		}
	}
	g := newRig(t, bound...)
	if err := (&bindings.Binder{Client: g.c, Config: c}).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mutating admissionv1.MutatingAdmissionPolicyBindingList
	var validating admissionv1.ValidatingAdmissionPolicyBindingList
	if err := errors.Join(g.c.List(t.Context(), &mutating), g.c.List(t.Context(), &validating)); err != nil {
		t.Fatal(err)
	}
	note := func(name string, m *admissionv1.MatchResources) {
		if m != nil && cmp.Equal(m.NamespaceSelector, namespaces) && name != bindings.Default {
			got = append(got, name)
		}
	}
	for i := range mutating.Items {
		note(mutating.Items[i].Name, mutating.Items[i].Spec.MatchResources)
	}
	for i := range validating.Items {
		note(validating.Items[i].Name, validating.Items[i].Spec.MatchResources)
	}
	slices.Sort(got)
	return got
}

// TestJobsOfOtherNamespacesAreLeftAlone, though they name a queue.
func TestJobsOfOtherNamespacesAreLeftAlone(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "red"}}}
	for name, suspended := range map[string]bool{"one that runs": false, "one that its user has suspended": true} {
		g := newRig(t, namespace, suspendedJob(func(j *batchv1.Job) { j.Spec.Suspend = &suspended }))
		*g.r.Managed() = labels.SelectorFromSet(labels.Set{"team": "blue"})
		g.settle()
		if g.writes != 0 || isSuspended(g.job()) != suspended {
			t.Errorf("%s: %d writes, suspended: %v", name, g.writes, isSuspended(g.job()))
		}
		*g.r.Managed() = labels.SelectorFromSet(labels.Set{"team": "red"})
		if g.settle(); g.writes == 0 {
			t.Errorf("%s: in a managed namespace nothing is done", name)
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
	for _, set := range []struct {
		setting string
		field   *bool
	}{{"manageJobsWithoutQueueName", &c.ManageJobsWithoutQueueName}, {"recordUsers", &c.RecordUsers}} {
		*set.field = true
		if err := (&bindings.Binder{Client: g.c, Config: c}).Start(t.Context()); err == nil ||
			!strings.HasPrefix(err.Error(), set.setting+" is true, which needs the policies in deploy/charts/muster/files/policies/jobs.yaml") {
			t.Errorf("%s: error %v", set.setting, err)
		}
		*set.field = false
	}
	c.RecordUsers = true
	if err := (&bindings.Binder{Client: g.c, Config: c, Webhook: true}).Start(t.Context()); err != nil {
		t.Errorf("with a webhook: %v", err)
	}
}

// TestTheRightsOfTheChartBefore do not have the binding that records users, which an upgrade of the chart adds: without it Muster starts
// where users are not recorded, and nowhere else.
func TestTheRightsOfTheChartBefore(t *testing.T) {
	for _, tt := range []struct {
		forbidden string
		config    config.Config
		starts    bool
	}{
		{bindings.Users, config.Config{}, true},
		{bindings.Users, config.Config{RecordUsers: true}, false},
		{bindings.Unqueued, config.Config{}, false},
		{bindings.Default, config.Config{}, false},
	} {
		g := newRig(t)
		kube := interceptor.NewClient(g.c, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object,
			patch client.Patch, options ...client.PatchOption) error {
			if o.GetName() == tt.forbidden {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicybindings"}, o.GetName(), nil)
			}
			return c.Patch(ctx, o, patch, options...)
		}})
		tt.config.SetDefaults("muster-system")
		if err := (&bindings.Binder{Client: kube, Config: tt.config}).Start(t.Context()); (err == nil) != tt.starts {
			t.Errorf("without the right to %s, and recordUsers %t: %v", tt.forbidden, tt.config.RecordUsers, err)
		}
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
	g := partOf(t, "jobset.x-k8s.io/v1alpha2", "JobSet", "queued", func(j *batchv1.Job) {
		j.Annotations = map[string]string{StartedAnnotation: "{}"}
		j.Spec.Suspend = new(false)
	})
	g.settle()
	if g.writes != 0 || isSuspended(g.job()) {
		t.Errorf("%d writes, suspended: %v", g.writes, isSuspended(g.job()))
	}
}

// partOf is a Job that something controls.
func partOf(t *testing.T, version, kind, name string, change func(*batchv1.Job)) *rig {
	g := newRig(t, suspendedJob(func(j *batchv1.Job) {
		j.OwnerReferences = ownedBy(version, kind, name, types.UID(name))
		change(j)
	}))
	*g.r.Live() = &owners{Reader: g.c}
	*g.r.Owners() = ByGroupKind(kinds.All())
	return g
}

// TestAPartOfWhatIsInNoQueue queues by itself, and says so to the policies; when that is queued
// after all, it goes with it.
func TestAPartOfWhatIsInNoQueue(t *testing.T) {
	g := partOf(t, "jobset.x-k8s.io/v1alpha2", "JobSet", "own", func(*batchv1.Job) {})
	g.settle()
	if w := g.workload(); w.Spec.QueueName != "main" || g.job().Annotations[AloneAnnotation] != "own" {
		t.Errorf("queue %q, annotations %v", w.Spec.QueueName, g.job().Annotations)
	}
	if !strings.Contains(g.newEvents(), "QueuesAlone JobSet own") {
		t.Error("no event says so")
	}
	writes := g.writes
	g.settle()
	if g.writes != writes {
		t.Errorf("%d more writes", g.writes-writes)
	}
	*g.r.Live() = &owners{Reader: g.c, queued: true}
	g.settle()
	if (len(g.names()) > 0) || g.job().Annotations[AloneAnnotation] != "" || !isSuspended(g.job()) {
		t.Errorf("its Workload is there: %v, annotations %v", (len(g.names()) > 0), g.job().Annotations)
	}
}

// TestAPartOfAQueuedJob has no Workload, and runs while that Job does, as in Kueue.
func TestAPartOfAQueuedJob(t *testing.T) {
	g := partOf(t, "batch/v1", "Job", "queued", func(*batchv1.Job) {})
	parent := &owners{Reader: g.c}
	*g.r.Live() = parent
	for _, step := range []struct {
		held, ended bool
		want        string
	}{{false, false, "Started"}, {true, false, "Stopped"}, {false, false, "Started"}, {false, true, "Stopped"}} {
		parent.held, parent.ended = step.held, step.ended
		for range 2 {
			g.settle()
			if (len(g.names()) > 0) || isSuspended(g.job()) != (step.held || step.ended) {
				t.Errorf("%+v: its Workload is there: %v, suspended: %v", step, (len(g.names()) > 0), isSuspended(g.job()))
			}
		}
		if told := g.newEvents(); !strings.Contains(told, step.want+" Job queued") {
			t.Errorf("%+v: told %q", step, told)
		}
	}
}

// TestAPartComesAfterTheStart of its Job, of which no event is left to come.
func TestAPartComesAfterTheStart(t *testing.T) {
	g := partOf(t, "batch/v1", "Job", "queued", func(*batchv1.Job) {})
	if !ConcernsQueues(g.r).Create(event.CreateEvent{Object: g.job()}) {
		t.Error("nobody asks for it")
	}
}

// TestPartsOfPartsFollow the Job at the top, also where the one between is in no queue, and changes with none.
func TestPartsOfPartsFollow(t *testing.T) {
	g := partOf(t, "batch/v1", "Job", "between", func(*batchv1.Job) {})
	between := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "between", UID: "between"}}
	between.OwnerReferences = ownedBy("batch/v1", "Job", "queued", "queued")
	if err := g.c.Create(t.Context(), between); err != nil {
		t.Fatal(err)
	}
	before := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "queued", UID: "queued"}}
	before.Spec.Suspend = new(true)
	after := before.DeepCopy()
	after.Spec.Suspend = new(false)
	want := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g.job())}
	if asked := Asks(g.r, before, after); !slices.Contains(asked, any(want)) {
		t.Errorf("asked for %v", asked)
	}
}

// TestPartsFollowTheirJob as it starts, stops and ends, and at nothing else.
func TestPartsFollowTheirJob(t *testing.T) {
	g := partOf(t, "batch/v1", "Job", "queued", func(*batchv1.Job) {})
	parent := func(suspended bool, conditions int) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "queued", UID: "queued"}}
		j.Spec.Suspend, j.Status.Conditions = &suspended, make([]batchv1.JobCondition, conditions)
		return j
	}
	for _, c := range []struct {
		before, after *batchv1.Job
		want          int
	}{
		{parent(true, 0), parent(false, 0), 1}, {parent(false, 0), parent(true, 0), 1}, {parent(false, 0), parent(false, 1), 1},
		{parent(false, 0), parent(false, 0), 0}, {nil, parent(true, 0), 1},
	} {
		var before client.Object
		if c.before != nil {
			before = c.before
		}
		asked := 0
		for _, a := range Asks(g.r, before, c.after) {
			if a.(reconcile.Request).Name == "train" {
				asked++
			}
		}
		if min(asked, 1) != c.want {
			t.Errorf("from %v to %v it is asked for %d times, want %d", c.before, c.after, asked, c.want)
		}
	}
}
