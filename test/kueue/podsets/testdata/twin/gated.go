package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	kftrainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kftrainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	kftrainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	leaderworkersetv1 "sigs.k8s.io/lws/api/leaderworkerset/v1"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobs/leaderworkerset"
	"sigs.k8s.io/kueue/pkg/controller/jobs/pod"
	"sigs.k8s.io/kueue/pkg/controller/jobs/statefulset"
	"sigs.k8s.io/kueue/pkg/controller/jobs/trainjob"
	"sigs.k8s.io/kueue/pkg/util/expectations"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"
)

// builder is that of a cluster with all kinds and indexes that the integrations here read.
func builder() (*fake.ClientBuilder, client.FieldIndexer) {
	b := utiltesting.NewClientBuilder(appsv1.AddToScheme, leaderworkersetv1.AddToScheme, kftrainer.AddToScheme, jobsetapi.AddToScheme)
	index := utiltesting.AsIndexer(b)
	must(pod.SetupIndexes(context.Background(), index))
	return b, index
}

// made answers with the Workloads that the reconciler of a kind makes.
func made(kind string, text []byte) (answer, error) {
	ctx := context.Background()
	b, index := builder()
	var o client.Object
	newReconciler := statefulset.NewReconciler
	switch kind {
	case "Pod":
		return grouped([]json.RawMessage{text})
	case "StatefulSet":
		o = &appsv1.StatefulSet{}
	case "LeaderWorkerSet":
		o, newReconciler = &leaderworkersetv1.LeaderWorkerSet{}, leaderworkerset.NewReconciler
	}
	if err := json.Unmarshal(text, o); err != nil {
		return answer{}, err
	}
	c := b.WithObjects(o).Build()
	r, err := newReconciler(ctx, c, index, &utiltesting.EventRecorder{})
	if err != nil {
		return answer{}, err
	}
	if _, err := r.(reconcile.Reconciler).Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		return answer{}, err
	}
	var list kueue.WorkloadList
	must(c.List(ctx, &list))
	slices.SortFunc(list.Items, func(a, b kueue.Workload) int { return cmp.Compare(a.Name, b.Name) })
	var out answer
	for _, w := range list.Items {
		out.Workloads = append(out.Workloads, w.Name)
		out.PodSets = append(out.PodSets, w.Spec.PodSets...)
	}
	return out, nil
}

// answerForList answers for pods of a group, or for a TrainJob after its runtime.
func answerForList(items []json.RawMessage) (answer, error) {
	var first object
	must(json.Unmarshal(items[0], &first))
	if first.Kind == "Pod" {
		return grouped(items)
	}
	return trained(items[0], items[1])
}

// grouped answers for a pod, or for those of one group.
func grouped(items []json.RawMessage) (answer, error) {
	ctx := context.Background()
	b, _ := builder()
	var first corev1.Pod
	for i, item := range items {
		var p corev1.Pod
		must(json.Unmarshal(item, &p))
		if b = b.WithObjects(&p); i == 0 {
			first = p
		}
	}
	c := b.Build()
	key := client.ObjectKeyFromObject(&first)
	if name := cmp.Or(first.Annotations["kueue.x-k8s.io/pod-group-name"], first.Labels["kueue.x-k8s.io/pod-group-name"]); name != "" {
		key = types.NamespacedName{Namespace: "group/" + first.Namespace, Name: name}
	}
	p := pod.NewPod(pod.WithExcessPodExpectations(expectations.NewStore("twin")))
	if _, err := p.Load(ctx, c, &key); err != nil {
		return answer{}, err
	}
	w, err := p.ConstructComposableWorkload(ctx, c, &utiltesting.EventRecorder{}, nil, nil)
	if err != nil {
		return answer{}, err
	}
	return answer{PodSets: w.Spec.PodSets, Workloads: []string{w.Name}}, nil
}

// trained answers for a TrainJob, with the JobSet that Trainer's own code makes of it.
func trained(runtime, job json.RawMessage) (answer, error) {
	ctx := context.Background()
	var r kftrainer.ClusterTrainingRuntime
	j := trainjob.NewJob()
	must(json.Unmarshal(runtime, &r))
	must(json.Unmarshal(job, j.Object()))
	b, index := builder()
	c := b.WithObjects(&r).Build()
	all, err := kftrainercore.New(ctx, c, index, nil)
	if err != nil {
		return answer{}, err
	}
	podSets, err := j.PodSets(ctx, c)
	if err != nil {
		return answer{}, err
	}
	trainJob := j.Object().(*kftrainer.TrainJob)
	objects, err := all[kftrainerruntime.RuntimeRefToRuntimeRegistryKey(trainJob.Spec.RuntimeRef)].NewObjects(ctx, trainJob)
	if err != nil {
		return answer{}, err
	}
	out := answer{PodSets: podSets}
	for _, o := range objects {
		text, err := json.Marshal(o)
		must(err)
		var made object
		must(json.Unmarshal(text, &made))
		if made.Kind == "JobSet" {
			out.JobSet = json.RawMessage(text)
		}
	}
	if out.JobSet == nil {
		return out, fmt.Errorf("Trainer makes no JobSet of %s", trainJob.Name)
	}
	return out, nil
}
