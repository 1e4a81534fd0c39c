package bench

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
)

// jobSets is a CRD of JobSets that takes all that their own takes.
const jobSets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: jobsets.jobset.x-k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a benchmark"}}
spec:
  group: jobset.x-k8s.io
  names: {kind: JobSet, listKind: JobSetList, plural: jobsets, singular: jobset}
  scope: Namespaced
  versions:
  - name: v1alpha2
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// BenchmarkJobSets creates 1,000 JobSets of two podSets at once in a queue with room for all of them, and measures until all are started:
// by a stock Kueue, and by Muster. No operator runs, so the admitter makes all writes to them.
func BenchmarkJobSets(b *testing.B) {
	n := 1_000 / *scale
	for _, c := range []contender{stockWith("batch/job", "jobset.x-k8s.io/jobset"), contenders[muster]} {
		b.Run(fmt.Sprintf("%s/jobsets=%d", c.name, n), func(b *testing.B) {
			for b.Loop() {
				newArena(b, c).jobSets(n)
			}
		})
	}
}

func (a *arena) jobSets(n int) {
	crds, err := deploy.Decode([]byte(jobSets))
	if err != nil {
		a.Fatal(err)
	}
	a.create(crds[0])
	q := queue("queue", fmt.Sprint(10*n))
	a.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}})
	a.queue(q)
	// Both check from time to time whether the kind is served.
	a.poll("the kind is served", func() bool { return a.kube.Create(a.Context(), newJobSet("probe", q.Name)) == nil })
	a.poll("the kind is queued", func() bool { return a.started(q.Name) == 1 })
	before, began := a.count(), time.Now()
	var g errgroup.Group
	g.SetLimit(floorWriters)
	for i := range n {
		g.Go(func() error { return a.kube.Create(a.Context(), newJobSet(fmt.Sprintf("jobset-%d", i), q.Name)) })
	}
	if err := g.Wait(); err != nil {
		a.Fatal(err)
	}
	a.poll("all are started", func() bool { return a.started(q.Name) == n+1 })
	a.report(before, time.Since(began), n)
}

// started is how many JobSets of a namespace are.
func (a *arena) started(namespace string) (count int) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("jobset.x-k8s.io/v1alpha2")
	list.SetKind("JobSetList")
	if err := a.kube.List(a.Context(), list, client.InNamespace(namespace)); err != nil {
		a.Fatal(err)
	}
	for i := range list.Items {
		if suspended, _, _ := unstructured.NestedBool(list.Items[i].Object, "spec", "suspend"); !suspended {
			count++
		}
	}
	return count
}

// newJobSet has a driver and two workers.
func newJobSet(name, queue string) *unstructured.Unstructured {
	job := func(name string, pods int64) any {
		return map[string]any{"name": name, "replicas": int64(1), "template": map[string]any{"spec": map[string]any{
			"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": map[string]any{"spec": map[string]any{
				"restartPolicy": "Never",
				"containers": []any{map[string]any{"name": "main", "image": "main", "resources": map[string]any{
					"requests": map[string]any{"cpu": "1"}}}},
			}},
		}}}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"suspend": true, "replicatedJobs": []any{job("driver", 1), job("workers", 2)}}}}
	o.SetAPIVersion("jobset.x-k8s.io/v1alpha2")
	o.SetKind("JobSet")
	o.SetNamespace(queue)
	o.SetName(name)
	o.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": queue})
	return o
}
