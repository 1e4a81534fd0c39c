package e2e

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
)

// rayClusters is a CRD that takes all that KubeRay's does. Its operator does not run.
const rayClusters = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rayclusters.ray.io}
spec:
  group: ray.io
  names: {kind: RayCluster, listKind: RayClusterList, plural: rayclusters, singular: raycluster}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

const rayCluster = `
apiVersion: ray.io/v1
kind: RayCluster
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head, image: ray, resources: {requests: {cpu: "1"}}}]}}}
  workerGroupSpecs: [{groupName: workers, replicas: 1, minReplicas: 0, maxReplicas: 5,
    template: {spec: {containers: [{name: worker, image: ray, resources: {requests: {cpu: "1"}}}]}}}]
`

// TestOnlyAnElasticRayClusterGrowsWhileItRuns, and that only in the number of its pods.
func TestOnlyAnElasticRayClusterGrowsWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	// KubeRay adds a container with a memory request to the workers.
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.edit(cq, func() {
		g := &cq.Spec.ResourceGroups[0]
		g.CoveredResources = append(g.CoveredResources, "memory")
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: "memory", NominalQuota: resource.MustParse("64Gi")})
	})
	decode := func(text string) *unstructured.Unstructured {
		all, err := deploy.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	crd := decode(rayClusters)
	s.Create(crd)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), crd) })
	newCluster := func(name, elastic string) *unstructured.Unstructured {
		o := decode(rayCluster)
		o.SetNamespace(s.Name)
		o.SetName(name)
		o.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": s.Name})
		o.SetAnnotations(map[string]string{"kueue.x-k8s.io/elastic-job": elastic})
		s.Eventually("RayClusters are served", func() bool { return s.Kube.Create(s.Context(), o) == nil },
			func() string { return "they are not" })
		return o
	}
	replicas := func(count int, image string) client.Patch {
		return client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": %d},
			{"op": "replace", "path": "/spec/workerGroupSpecs/0/template/spec/containers/0/image", "value": %q}]`, count, image))
	}
	for _, elastic := range []string{"true", "false"} {
		o := newCluster("elastic-"+elastic, elastic)
		if held, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); !held {
			t.Fatalf("it is created as %v", o.Object["spec"])
		}
		s.Eventually("it is started", func() bool {
			held, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
			return s.Get(o) && !held
		}, func() string { return fmt.Sprint(s.workloads()) })
		if elastic == "false" {
			continue
		}
		changed := o.DeepCopy()
		if err := s.Kube.Patch(s.Context(), changed, replicas(3, "ray")); err != nil {
			t.Errorf("it does not grow: %v", err)
		}
		if held, _, _ := unstructured.NestedBool(changed.Object, "spec", "suspend"); held {
			t.Error("as it grows it is suspended")
		}
	}
	// One that is not queues again as it is then: no pod of it is made without quota.
	revised := newCluster("revised", "false")
	s.Eventually("it is started", func() bool {
		held, _, _ := unstructured.NestedBool(revised.Object, "spec", "suspend")
		return s.Get(revised) && !held
	}, func() string { return fmt.Sprint(s.workloads()) })
	if err := s.Kube.Patch(s.Context(), revised, replicas(3, "other")); err != nil {
		t.Errorf("it does not change: %v", err)
	}
	if held, _, _ := unstructured.NestedBool(revised.Object, "spec", "suspend"); !held {
		t.Errorf("it runs on with other pods: %v", revised.Object["spec"])
	}
	// One that KubeRay has made of something else has no Workload of its own.
	part := decode(strings.ReplaceAll(rayCluster, "{spec: {containers", "{metadata: {labels: {kueue.x-k8s.io/podset: x}}, spec: {containers"))
	part.SetNamespace(s.Name)
	part.SetName("part")
	whole := decode(rayCluster)
	whole.SetNamespace(s.Name)
	whole.SetName("elastic-false")
	if !s.Get(whole) {
		t.Fatal("it is gone")
	}
	part.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(whole, whole.GroupVersionKind())})
	s.Create(part)
	tenant := s.as("tenant-of-a-part", rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"})
	if err := tenant.Patch(s.Context(), part.DeepCopy(), replicas(3, "ray")); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "is part of RayCluster elastic-false") {
		t.Errorf("a tenant adds workers to what a started job is made of: %v", err)
	}
	if err := s.Kube.Patch(s.Context(), part.DeepCopy(), replicas(3, "ray")); err != nil {
		t.Errorf("what may update the status of its owner adds workers: %v", err)
	}
	s.Eventually("the other pods are asked for", func() bool {
		all := s.workloads()
		return len(all) == 4 && strings.Contains(strings.Join(all, "\n"), "head×1,workers×3")
	}, func() string { return fmt.Sprint(s.workloads()) })
}
