package removal

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// booked is what a start adds to all pods here.
const booked = "booked.muster.dev/train"

// TestJobsAreAsTheyWere has samples of kinds that were started, and evicted before what the
// start had added was taken off.
func TestJobsAreAsTheyWere(t *testing.T) {
	for _, sample := range []string{"jobset", "pytorchjob", "mpijob", "rayjob", "raycluster", "sparkapplication"} {
		t.Run(sample, func(t *testing.T) {
			text, err := os.ReadFile("../../../deploy/samples/kinds/" + sample + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{}
			text, err = yaml.YAMLToJSON(text)
			if err == nil {
				err = object.UnmarshalJSON(text) // which knows integers
			}
			if err != nil {
				t.Fatal(err)
			}
			kind := kindOf(t, object)
			kind.Suspend(object)
			want := object.DeepCopy()
			started(t, kind, object)
			running := object.DeepCopy()
			running.SetName("running")
			kind.Suspend(object)

			kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(object, running).Build()
			r := &Removal{Kube: kube, Waiting: Keep, Out: io.Discard}
			if on, err := r.runningOn(t.Context()); err != nil || len(on) != 1 || len(on[booked]) != 1 {
				t.Errorf("pods run on %v (%v), want the label %s for one job", on, err, booked)
			}
			do(t, r)
			got := read(t, kube, object)
			if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if jobs.WasStarted(got) || jobs.WasStarted(read(t, kube, running)) {
				t.Error("the record of the start is still there")
			}
			r.Waiting = Release
			do(t, r)
			if kind.IsSuspended(read(t, kube, object)) {
				t.Error("it waits though it was to be released")
			}
		})
	}
}

// settings describe a kind of a cluster's own.
const settings = `apiVersion: config.muster.dev/v1alpha1
kind: Configuration
queueing:
  jobKinds:
  - group: acme.io
    version: v1
    kind: TrainRun
    suspend: {path: /spec/state, held: Pending, running: null}
    podSets:
    - {path: /spec/workers, name: "'workers'", count: self.replicas, template: /template}
    succeeded: self.?status.?phase.orValue('') == 'Done'
    failed: self.?status.?phase.orValue('') == 'Broken'
`

// TestJobsOfAClustersOwnKindsAreAsTheyWere, whose description is in the settings of Muster's
// Deployment, or in a file.
func TestJobsOfAClustersOwnKindsAreAsTheyWere(t *testing.T) {
	names := deploy.DefaultNames
	c, _, err := configuration.Parse("muster.yaml", []byte(settings), names.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	kind := c.Queueing.Kinds[0]
	spec := `{"apiVersion": "acme.io/v1", "kind": "TrainRun", "metadata": {"namespace": "default", "name": "llm"}, "spec": {"workers":
		{"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "main"}]}}}}}`
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: "release",
		Labels: map[string]string{nameLabel: "muster"}}}
	deployment.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "tmp"},
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
	in := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: "settings"},
		Data: map[string]string{musterSettings: settings}}
	for name, tc := range map[string]struct {
		there []client.Object
		file  []*kinds.Kind
		known bool
	}{
		"in the settings":           {[]client.Object{deployment, in}, nil, true},
		"in a file":                 {nil, []*kinds.Kind{kind}, true},
		"in both":                   {[]client.Object{deployment, in}, []*kinds.Kind{kind}, true},
		"in settings that are gone": {[]client.Object{deployment}, nil, false},
		"in none":                   {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON([]byte(spec)); err != nil {
				t.Fatal(err)
			}
			kind.Suspend(object)
			want := object.DeepCopy()
			started(t, kind, object)
			kind.Suspend(object)
			kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(append(tc.there, object)...).Build()
			r := &Removal{Kube: kube, Waiting: Keep, Kinds: tc.file, Out: io.Discard, names: names}
			do(t, r)
			got := read(t, kube, object)
			if restored := cmp.Equal(want.Object["spec"], got.Object["spec"]) && !jobs.WasStarted(got); restored != tc.known {
				t.Errorf("restored: %t, want %t:\n%s", restored, tc.known, cmp.Diff(want.Object, got.Object))
			}
			all, err := r.jobKinds(t.Context())
			if err != nil || len(all) != len(kinds.All())+map[bool]int{true: 1}[tc.known] {
				t.Errorf("%d kinds (%v) beside %d", len(all), err, len(kinds.All()))
			}
		})
	}
	in.Data[musterSettings] = strings.Replace(settings, "self.replicas", "self.", 1)
	r := &Removal{Kube: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(deployment, in).Build(), names: names}
	if _, err := r.jobKinds(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap muster-system/settings") {
		t.Errorf("settings that cannot be read: %v", err)
	}
}

func kindOf(t *testing.T, object client.Object) jobs.Kind {
	t.Helper()
	for _, k := range kinds.All() {
		if k.GroupVersionKind() == object.GetObjectKind().GroupVersionKind() {
			return k
		}
	}
	t.Fatalf("%s is no kind that is queued", object.GetObjectKind().GroupVersionKind())
	return nil
}

// started starts an object as a check of capacity has it.
func started(t *testing.T, kind jobs.Kind, object client.Object) {
	t.Helper()
	podSets, refusals := kind.PodSets(object)
	if len(refusals) > 0 {
		t.Fatal(refusals)
	}
	placements := make([]templates.Placement, len(podSets))
	for i := range podSets {
		placements[i] = templates.Placement{Count: podSets[i].Count,
			Updates: []kueue.PodSetUpdate{{NodeSelector: map[string]string{booked: "default"}}}}
	}
	record, err := kind.Start(object, placements)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	object.SetAnnotations(map[string]string{jobs.StartedAnnotation: string(text)})
}

func do(t *testing.T, r *Removal) {
	t.Helper()
	items, err := r.jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		if err := it.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", it.what, err)
		}
	}
}

func read(t *testing.T, kube client.Client, of *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(of.GroupVersionKind())
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(of), out); err != nil {
		t.Fatal(err)
	}
	return out
}
