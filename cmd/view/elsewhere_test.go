package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestPodsOfAnotherClusterAreFoundByTheCommands that are printed, whatever kind makes them, and so are their logs.
func TestPodsOfAnotherClusterAreFoundByTheCommands(t *testing.T) {
	of := func(version, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}
	}
	together := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name}
	}
	byLabel := func(label string) []string {
		return []string{"get pods -l " + label, "logs -l " + label + " --all-containers --prefix --tail=-1"}
	}
	for _, c := range []struct {
		owners []metav1.OwnerReference
		index  string
		want   []string
	}{
		{[]metav1.OwnerReference{of("batch/v1", "Job", "train")}, "",
			[]string{"get pods -l batch.kubernetes.io/job-name=train", "logs job/train --all-pods"}},
		{[]metav1.OwnerReference{of("v1", "Pod", "train")}, "", []string{"get pods train", "logs train --all-containers"}},
		{[]metav1.OwnerReference{together("a"), together("b")}, "", []string{"get pods a b", "logs a --all-containers"}},
		{[]metav1.OwnerReference{of("apps/v1", "StatefulSet", "db")}, "", []string{"get pods db-0 db-1", "logs statefulset/db --all-pods"}},
		{[]metav1.OwnerReference{of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm")}, "1",
			byLabel("leaderworkerset.sigs.k8s.io/group-index=1,leaderworkerset.sigs.k8s.io/name=llm")},
		{[]metav1.OwnerReference{of("jobset.x-k8s.io/v1alpha2", "JobSet", "train")}, "", byLabel("jobset.sigs.k8s.io/jobset-name=train")},
		{[]metav1.OwnerReference{of("trainer.kubeflow.org/v1alpha1", "TrainJob", "train")}, "", byLabel("jobset.sigs.k8s.io/jobset-name=train")},
		{[]metav1.OwnerReference{of("ray.io/v1", "RayCluster", "train")}, "", byLabel("ray.io/cluster=train")},
		{[]metav1.OwnerReference{of("ray.io/v1", "RayJob", "train")}, "",
			byLabel("ray.io/originated-from-cr-name=train,ray.io/originated-from-crd=RayJob")},
		{[]metav1.OwnerReference{of("kubeflow.org/v1", "PyTorchJob", "train")}, "", byLabel("training.kubeflow.org/job-name=train")},
		{[]metav1.OwnerReference{of("workload.codeflare.dev/v1beta2", "AppWrapper", "train")}, "", byLabel("workload.codeflare.dev/appwrapper=train")},
		{[]metav1.OwnerReference{of("example.com/v1", "Other", "train")}, "", nil},
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "w", OwnerReferences: c.owners,
			Annotations: map[string]string{"kueue.x-k8s.io/component-workload-index": c.index}}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
		var got []string
		for _, line := range elsewhere(w, "west", "gke-west")[1:] {
			_, command, _ := strings.Cut(line, ": kubectl --context gke-west -n team ")
			got = append(got, command)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.owners[0].Kind, diff)
		}
	}
}
