package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/test/testbed"
)

// forgery is a change by which a user would start a job that waits in a queue. A field that only takes effect later may be set at the
// creation.
type forgery struct {
	name  string
	later bool
	write func(*kinds.Kind, *unstructured.Unstructured)
}

var forgeries = []forgery{
	{"it runs", false, func(k *kinds.Kind, o *unstructured.Unstructured) { k.Resume(o) }},
	{"it runs, in no queue", true, func(k *kinds.Kind, o *unstructured.Unstructured) {
		k.Resume(o)
		o.SetLabels(nil)
	}},
	{"it runs, as it ran before", false, func(k *kinds.Kind, o *unstructured.Unstructured) {
		k.Resume(o)
		o.SetAnnotations(map[string]string{"muster.dev/started": "{}"})
	}},
	{"it was started before", false, func(_ *kinds.Kind, o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"muster.dev/started": "{}"})
	}},
	{"it runs, and what controls it queues", false, func(k *kinds.Kind, o *unstructured.Unstructured) {
		k.Resume(o)
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "nobody", UID: "nobody",
			Controller: new(true)}})
	}},
}

// ways are how a user writes it, at the beginning or later.
var ways = []struct {
	name  string
	later bool
	write func(c client.Client, t *testing.T, was, forged *unstructured.Unstructured) error
}{
	{"create", false, func(c client.Client, t *testing.T, _, forged *unstructured.Unstructured) error {
		return c.Create(t.Context(), forged)
	}},
	{"first apply", false, applied},
	{"update", true, func(c client.Client, t *testing.T, _, forged *unstructured.Unstructured) error {
		return c.Update(t.Context(), forged)
	}},
	{"JSON patch", true, func(c client.Client, t *testing.T, _, forged *unstructured.Unstructured) error {
		metadata, _ := forged.Object["metadata"].(map[string]any)
		operations := []map[string]any{{"op": "add", "path": "/spec", "value": forged.Object["spec"]}}
		for _, field := range []string{"labels", "annotations", "ownerReferences"} {
			operations = append(operations, map[string]any{"op": "add", "path": "/metadata/" + field, "value": metadata[field]})
		}
		data, err := json.Marshal(operations)
		if err != nil {
			return err
		}
		return c.Patch(t.Context(), forged, client.RawPatch(types.JSONPatchType, data))
	}},
	{"merge patch", true, func(c client.Client, t *testing.T, was, forged *unstructured.Unstructured) error {
		return c.Patch(t.Context(), forged, client.MergeFrom(was))
	}},
	{"apply", true, applied},
}

// applied writes by a forced server-side apply, which needs no resourceVersion.
func applied(c client.Client, t *testing.T, _, forged *unstructured.Unstructured) error {
	forged.SetManagedFields(nil)
	forged.SetResourceVersion("")
	forged.SetUID("")
	data, err := json.Marshal(forged)
	if err != nil {
		return err
	}
	return c.Patch(t.Context(), forged, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.FieldOwner("tenant"))
}

// TestNoUserStartsAJobOfAnyKind, neither at its creation nor later, in any way that the API has: what is written is refused, or the job
// waits in its queue all the same. The operators of the kinds are not there; their CustomResourceDefinitions take any object.
func TestNoUserStartsAJobOfAnyKind(t *testing.T) {
	t.Parallel()
	config := whole()
	config.Only = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager}
	s := &site{testbed.NewSite(t, started(t, "all-kinds", config))}
	samples := s.samples()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "jobs"}}
	for k := range samples {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{k.Group}, Resources: []string{k.Resource, k.Resource + "/scale"}, Verbs: []string{"*"},
		})
		s.serve(k)
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"*"},
		Resources: []string{"pods", "pods/resize", "pods/ephemeralcontainers", "pods/binding", "pods/eviction"}})
	queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "queue"}}
	queue.Spec.ClusterQueue = "queue"
	s.Create(role, queue)
	user := s.as("tenant", rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}, rbacv1.RoleRef{Kind: "Role", Name: role.Name})
	muster, err := s.As(&rest.ImpersonationConfig{UserName: "system:serviceaccount:muster-system:muster"})
	if err != nil {
		t.Fatal(err)
	}
	for k, sample := range samples {
		fresh := func(name string) *unstructured.Unstructured {
			o := sample.DeepCopy()
			o.SetNamespace(s.Name)
			o.SetName(name)
			return o
		}
		s.Eventually(k.Kind+"s are served, and wait", func() bool {
			o := fresh("probe")
			err := user.Create(t.Context(), o, client.DryRunAll)
			return err == nil && k.IsSuspended(o)
		}, func() string {
			o := fresh("probe")
			return fmt.Sprint(user.Create(t.Context(), o, client.DryRunAll), o)
		})
		for i, f := range forgeries {
			for j, w := range ways {
				if f.later && !w.later {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", k.Kind, f.name, w.name), func(t *testing.T) {
					o := fresh(fmt.Sprintf("job-%d-%d", i, j))
					if w.later {
						if err := user.Create(t.Context(), o); err != nil {
							t.Fatal(err)
						}
					}
					forged := o.DeepCopy()
					f.write(k, forged)
					err := w.write(user, t, o, forged)
					if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
						t.Fatalf("not refused, but failed: %v", err)
					}
					if getErr := s.Kube.Get(t.Context(), client.ObjectKeyFromObject(o), o); getErr != nil {
						if err == nil || !apierrors.IsNotFound(getErr) {
							t.Fatal(getErr)
						}
						return
					}
					if !k.IsSuspended(o) || o.GetAnnotations()["muster.dev/started"] != "" {
						t.Errorf("it is %v (%v)", o, err)
					}
				})
			}
		}
		s.keepsWhatHasStarted(user, muster, k, fresh)
	}
	s.keepsPods(t, user, muster)
}

// podForgeries are what a user writes into a pod of a queue.
var podForgeries = map[string]func(*corev1.Pod){
	"its gate goes":             func(p *corev1.Pod) { p.Spec.SchedulingGates = nil },
	"it leaves its queue":       func(p *corev1.Pod) { delete(p.Labels, "kueue.x-k8s.io/queue-name") },
	"it has no labels":          func(p *corev1.Pod) { p.Labels = nil },
	"it does not queue itself":  func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/managed"] = "false" },
	"a job has started it":      func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/job-uid"] = "forged" },
	"it is of another podSet":   func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/podset"] = "forged" },
	"it is in another group":    func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/pod-group-name"] = "forged" },
	"its group has other sizes": func(p *corev1.Pod) { p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "100000" },
	"it asks for more":          func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("64") },
	"it goes to a held machine": func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, cordonToleration) },
	"it has another owner": func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: new(true)}}
	},
}

// podWays are how a user writes it.
var podWays = map[string]func(ctx context.Context, c client.Client, was, forged *corev1.Pod) error{
	"update": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error { return c.Update(ctx, forged) },
	"merge patch": func(ctx context.Context, c client.Client, was, forged *corev1.Pod) error {
		return c.Patch(ctx, forged, client.MergeFrom(was))
	},
	"strategic merge patch": func(ctx context.Context, c client.Client, was, forged *corev1.Pod) error {
		return c.Patch(ctx, forged, client.StrategicMergeFrom(was))
	},
	"JSON patch": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error {
		data, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/labels", "value": forged.Labels}, {"op": "replace", "path": "/spec", "value": forged.Spec},
			{"op": "add", "path": "/metadata/annotations", "value": forged.Annotations},
			{"op": "add", "path": "/metadata/ownerReferences", "value": forged.OwnerReferences},
		})
		if err != nil {
			return err
		}
		return c.Patch(ctx, forged, client.RawPatch(types.JSONPatchType, data))
	},
	"apply": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error {
		forged.ManagedFields, forged.ResourceVersion, forged.UID = nil, "", ""
		forged.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		data, err := json.Marshal(forged)
		if err != nil {
			return err
		}
		return c.Patch(ctx, forged, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.FieldOwner("tenant"))
	},
	"status": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error {
		return c.Status().Update(ctx, forged)
	},
	"resize": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error {
		return c.SubResource("resize").Update(ctx, forged)
	},
	"ephemeral containers": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error {
		forged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "debug"}}}
		return c.SubResource("ephemeralcontainers").Update(ctx, forged)
	},
	"binding": func(ctx context.Context, c client.Client, _, forged *corev1.Pod) error {
		return c.SubResource("binding").Create(ctx, forged, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: forged.Name, Labels: forged.Labels, Annotations: forged.Annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "forged"}})
	},
}

// keepsPods: no user frees a pod that waits, nor changes what one runs by.
func (s *site) keepsPods(t *testing.T, user, muster client.Client) {
	s.Helper()
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name, Labels: map[string]string{
			"kueue.x-k8s.io/queue-name": "queue", "kueue.x-k8s.io/pod-group-name": "group"},
			Annotations: map[string]string{"kueue.x-k8s.io/pod-group-total-count": "2"}}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
		return p
	}
	for state, create := range map[string]func(*corev1.Pod) error{
		"waiting": func(p *corev1.Pod) error { return user.Create(t.Context(), p) },
		"started": func(p *corev1.Pod) error {
			if err := user.Create(t.Context(), p); err != nil {
				return err
			}
			gated := p.DeepCopy()
			p.Spec.SchedulingGates, p.Labels["kueue.x-k8s.io/podset"] = nil, "main"
			return muster.Patch(t.Context(), p, client.StrategicMergeFrom(gated))
		},
	} {
		number := 0
		for what, forge := range podForgeries {
			for way, write := range podWays {
				if state == "waiting" && strings.Contains(what, "group") || state == "started" && way == "binding" {
					continue // until it starts its group is up to its user; a scheduler binds it then, and may write its labels
				}
				number++
				t.Run(fmt.Sprintf("pod/%s/%s/%s", state, what, way), func(t *testing.T) {
					was := pod(fmt.Sprint(state, "-", number))
					if err := create(was); err != nil || isGatedPod(was) != (state == "waiting") {
						t.Fatal(err, was.Spec.SchedulingGates)
					}
					forged := was.DeepCopy()
					forge(forged)
					err := write(t.Context(), user, was, forged)
					if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
						t.Fatalf("not refused, but failed: %v", err)
					}
					now := was.DeepCopy()
					if !s.Get(now) {
						t.Fatal("the pod is gone")
					}
					told := func(p *corev1.Pod) []any {
						cpu := p.Spec.Containers[0].Resources.Requests.Cpu()
						return []any{p.Labels, p.Annotations["kueue.x-k8s.io/pod-group-total-count"], p.Spec.SchedulingGates, p.Spec.NodeName, cpu.String()}
					}
					if diff := cmp.Diff(told(was), told(now)); diff != "" {
						t.Errorf("%v (-was +now):\n%s", err, diff)
					}
				})
			}
		}
	}
}

// keepsWhatHasStarted: no user takes a job that runs out of its queue, or leaves its pods behind.
func (s *site) keepsWhatHasStarted(user, muster client.Client, k *kinds.Kind, fresh func(string) *unstructured.Unstructured) {
	s.Helper()
	o := fresh("started")
	s.Create(o)
	was := o.DeepCopy()
	podSets, _ := k.PodSets(o) // those of a TrainJob are in its JobSet, which is not there
	placements := make([]templates.Placement, len(podSets))
	for i := range placements {
		placements[i].Labels = map[string]string{"kueue.x-k8s.io/job-uid": string(o.GetUID()), "kueue.x-k8s.io/podset": string(podSets[i].Name)}
	}
	if len(podSets) > 0 {
		if _, err := k.Start(o, placements); err != nil {
			s.Fatal(err)
		}
	}
	k.Resume(o)
	annotations := map[string]string{"muster.dev/started": "{}"}
	maps.Copy(annotations, o.GetAnnotations())
	o.SetAnnotations(annotations)
	if err := muster.Patch(s.Context(), o, client.MergeFrom(was)); err != nil || k.IsSuspended(o) {
		s.Fatalf("Muster does not start a %s: %v", k.Kind, err)
	}
	for what, patch := range map[string]string{
		"its finalizers":        `{"metadata":{"finalizers":["example.com/theirs"]}}`,
		"a label of others":     `{"metadata":{"labels":{"example.com/theirs":"x"}}}`,
		"another field":         `{"spec":{"forged":"x"}}`,
		"the image of its pods": forgedImage(o),
	} {
		err := muster.Patch(s.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Muster may change of "+k.Kind) {
			s.Errorf("Muster changes of a started %s %s: %v, want a refusal", k.Kind, what, err)
		}
	}
	stopped := was.DeepCopy()
	stopped.SetResourceVersion(o.GetResourceVersion())
	if err := muster.Patch(s.Context(), stopped, client.MergeFrom(o), client.DryRunAll); err != nil {
		s.Errorf("Muster does not stop a %s: %v", k.Kind, err)
	}
	labelled := func(labels map[string]string) error {
		changed := o.DeepCopy()
		changed.SetLabels(labels)
		return user.Patch(s.Context(), changed, client.MergeFrom(o))
	}
	for what, err := range map[string]error{
		"it leaves its queue":            labelled(nil),
		"it goes to another queue":       labelled(map[string]string{"kueue.x-k8s.io/queue-name": "another"}),
		"it is deleted without its pods": user.Delete(s.Context(), o, client.PropagationPolicy(metav1.DeletePropagationOrphan)),
		"its pods are scaled":            scale(s.Context(), user, o, 50),
		"its record of the start is gone": user.Patch(s.Context(), o.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			s.Errorf("a started %s: %s: %v, want a refusal", k.Kind, what, err)
		}
	}
}

// scale writes the subresource by which autoscalers change the number of pods of an object.
func scale(ctx context.Context, c client.Client, o *unstructured.Unstructured, replicas int32) error {
	of := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
	of.Spec.Replicas = replicas
	return c.SubResource("scale").Update(ctx, o.DeepCopy(), client.WithSubResourceBody(of))
}

// forgedImage is a merge patch of the first image that an object names; of a TrainJob, which names none, of its runtime.
func forgedImage(o *unstructured.Unstructured) string {
	spec, _ := o.DeepCopy().Object["spec"].(map[string]any)
	if !forgeImage(spec) {
		spec["runtimeRef"] = map[string]any{"name": "forged"}
	}
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(data)
}

// forgeImage reports whether it has changed an image below a value.
func forgeImage(value any) bool {
	switch x := value.(type) {
	case map[string]any:
		if _, ok := x["image"].(string); ok {
			x["image"] = "forged"
			return true
		}
		for _, v := range x {
			if forgeImage(v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(x, forgeImage)
	}
	return false
}

// samples are those of all kinds but batch/Job.
func (s *site) samples() map[*kinds.Kind]*unstructured.Unstructured {
	s.Helper()
	out := map[*kinds.Kind]*unstructured.Unstructured{}
	files, err := filepath.Glob("../../deploy/samples/kinds/*.yaml")
	if err != nil {
		s.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.Fatal(err)
		}
		documents, err := deploy.Decode(text)
		if err != nil {
			s.Fatal(err)
		}
		for _, o := range documents {
			for _, k := range kinds.BuiltIn() {
				if k.GroupVersionKind() == o.GroupVersionKind() {
					out[k] = o
				}
			}
		}
	}
	if len(out) < len(kinds.BuiltIn()) {
		s.Fatalf("of %d kinds only %d have samples", len(kinds.BuiltIn()), len(out))
	}
	return out
}

// serve has the API server take any object of a kind.
func (s *site) serve(k *kinds.Kind) {
	s.Helper()
	crd := &unstructured.Unstructured{}
	text := fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: %[2]s, kind: %[3]s}
  versions:
  - name: %[4]s
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.scaled, statusReplicasPath: .status.scaled}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, k.Group, k.Resource, k.Kind, k.Version)
	if err := yaml.Unmarshal(text, crd); err != nil {
		s.Fatal(err)
	}
	s.Create(crd)
}
