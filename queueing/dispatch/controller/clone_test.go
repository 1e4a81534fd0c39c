package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes/scheme"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/jobs/batch"
)

var me = self{origin: "multikueue", id: "m1"}

func ours(name string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: name, UID: "w1", CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
		Labels: map[string]string{"kueue.x-k8s.io/job-uid": "j1", "team": "a"},
		Annotations: map[string]string{
			"muster.dev/dispatch": "{}", "muster.dev/delegated": "true", "provreq.kueue.x-k8s.io/maxPrice": "3",
			"kubectl.kubernetes.io/last-applied-configuration": "{}",
		},
	}}
}

func TestACopySaysWhatItIsOf(t *testing.T) {
	c := me.copyFor(ours("job-train"), "")
	want := metav1.ObjectMeta{
		Namespace: "team-a", Name: "job-train", Labels: map[string]string{"team": "a", "kueue.x-k8s.io/multikueue-origin": "multikueue"},
		Annotations: map[string]string{
			"provreq.kueue.x-k8s.io/maxPrice": "3", "muster.dev/origin-uid": "w1", "muster.dev/origin-manager": "m1",
			"kueue.x-k8s.io/admission-gated-by": "muster.dev/grant",
			"muster.dev/queued-since":           "2026-11-20T12:00:00Z",
		},
	}
	if diff := cmp.Diff(want, c.ObjectMeta); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestOnlyWhatAWorkerHasJudgedIsARefusal: the condition for a closed gate stays for a moment after the gate was removed.
func TestOnlyWhatAWorkerHasJudgedIsARefusal(t *testing.T) {
	for reason, want := range map[string]dispatch.Reason{
		"": "", "AdmissionGated": "", "PendingEvaluation": "", "WaitingForPreemptedWorkloads": "", "WaitingForQuota": dispatch.NoQuota,
		"NoMatchingFlavor": dispatch.NoQuota, "Pending": dispatch.NoQuota,
	} {
		theirs := me.copyFor(ours("job-train"), "")
		delete(theirs.Annotations, "kueue.x-k8s.io/admission-gated-by")
		if reason != "" {
			theirs.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason}}
		}
		if got := me.copyOf(theirs, ours("job-train"), nil); got.Refused != want || got.Unclear != (reason == "Pending") {
			t.Errorf("a copy that says %q counts as %q, unclear %t, want %q", reason, got.Refused, got.Unclear, want)
		}
	}
}

// TestAClusterThatBuysNothingMoreIsLeft: a budget that is used up counts as missing capacity.
func TestAClusterThatBuysNothingMoreIsLeft(t *testing.T) {
	for reason, want := range map[string]dispatch.Reason{
		"CapacityIsNotFound": dispatch.NoCapacity, "PurchasesStopped": dispatch.NoCapacity, "FailedToCheckCapacity": "",
	} {
		theirs := me.copyFor(ours("job-train"), "")
		delete(theirs.Annotations, "kueue.x-k8s.io/admission-gated-by")
		r := &provreq.ProvisioningRequest{}
		r.Status.Conditions = []metav1.Condition{{Type: provreq.Provisioned, Status: metav1.ConditionFalse, Reason: reason}}
		if got := me.copyOf(theirs, ours("job-train"), []*provreq.ProvisioningRequest{r}); got.Refused != want {
			t.Errorf("a copy whose request says %s counts as %q, want %q", reason, got.Refused, want)
		}
	}
}

// TestWhatAWorkloadInAWorkerIs: a Workload that was not created by the manager is neither used nor deleted.
func TestWhatAWorkloadInAWorkerIs(t *testing.T) {
	for name, c := range map[string]struct {
		change                func(*kueue.Workload)
		foreign, stale, gated bool
	}{
		"its copy":                          {func(*kueue.Workload) {}, false, false, true},
		"without the gate":                  {func(w *kueue.Workload) { delete(w.Annotations, "kueue.x-k8s.io/admission-gated-by") }, false, false, false},
		"made for an earlier Workload":      {func(w *kueue.Workload) { w.Annotations["muster.dev/origin-uid"] = "w0" }, false, true, true},
		"made by Kueue, before Muster came": {func(w *kueue.Workload) { w.Annotations = nil }, false, false, false},
		"of another manager of that origin": {func(w *kueue.Workload) { w.Annotations["muster.dev/origin-manager"] = "m2" }, true, false, true},
		"whose label a user there edited":   {func(w *kueue.Workload) { w.Labels["kueue.x-k8s.io/multikueue-origin"] = "other" }, false, false, true},
		"made by Kueue of another origin": {func(w *kueue.Workload) {
			w.Annotations, w.Labels["kueue.x-k8s.io/multikueue-origin"] = nil, "other"
		}, true, false, false},
		"of a user there": {func(w *kueue.Workload) { w.Labels, w.Annotations = nil, nil }, true, false, false},
	} {
		theirs := me.copyFor(ours("job-train"), "")
		c.change(theirs)
		if got := me.copyOf(theirs, ours("job-train"), nil); got.Foreign != c.foreign || got.Stale != c.stale || got.Gated != c.gated {
			t.Errorf("%s: foreign %t, stale %t, gated %t; want %t, %t, %t", name, got.Foreign, got.Stale, got.Gated, c.foreign, c.stale, c.gated)
		}
	}
}

// TestWhatOfACopyWasChanged: the message names the field. Fields that the worker may set are ignored.
func TestWhatOfACopyWasChanged(t *testing.T) {
	w := ours("job-train")
	w.Spec.QueueName = "gpus"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}},
		}}}}}
	for want, change := range map[string]func(*kueue.Workload){
		"": func(w *kueue.Workload) {
			w.Spec.Active, w.Spec.Priority = new(false), new(int32(3))
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2000m")
		},
		`spec.queueName of its copy is "other" there, and "gpus" here`: func(w *kueue.Workload) { w.Spec.QueueName = "other" },
		"spec.podSets[0].count of its copy is 1 there, and 2 here":     func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 },
		"spec.podSets of its copy is not what it is here":              func(w *kueue.Workload) { w.Spec.PodSets = nil },
		"spec.podSets[0].template.spec.containers[0].resources.requests.cpu of its copy is 1 there, and 2 here": func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
		},
		"spec.podSets[0].template.spec.nodeSelector of its copy is not what it is here": func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"a": "b"}
		},
		"The prebuilt workload is out of sync": func(w *kueue.Workload) {
			w.Status.Conditions = []metav1.Condition{{Type: "Finished", Status: "True", Reason: "OutOfSync",
				Message: "The prebuilt workload is out of sync"}}
		},
		"The workload's owner no longer exists": func(w *kueue.Workload) { // its job was deleted by hand
			w.Status.Conditions = []metav1.Condition{{Type: "Finished", Status: "True", Reason: "OwnerNotFound",
				Message: "The workload's owner no longer exists"}}
		},
	} {
		theirs := me.copyFor(w, "")
		change(theirs)
		if got := me.copyOf(theirs, w, nil).Changed; got != want {
			t.Errorf("changed: %q, want %q", got, want)
		}
		if got := (self{origin: me.origin}).copyOf(theirs, w, nil).Changed; got != "" {
			t.Errorf("a copy that Kueue has made: %q", got)
		}
	}
}

// TestAJobInAWorkerRunsByTheCopy, even if the copy's name is too long for a label.
func TestAJobInAWorkerRunsByTheCopy(t *testing.T) {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": map[string]any{
			"namespace": "team-a", "name": "train", "uid": "j1", "resourceVersion": "7", "finalizers": []any{"a/b"},
			"labels": map[string]any{"kueue.x-k8s.io/queue-name": "gpus"},
		},
		"spec": map[string]any{
			"managedBy": "kueue.x-k8s.io/multikueue", "suspend": false, "parallelism": int64(2),
			"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "resources": map[string]any{}}}}},
		},
		"status": map[string]any{"active": int64(2)},
	}}
	for _, name := range []string{"job-train", strings.Repeat("x", 64)} {
		got, err := me.jobFor(scheme.Scheme, batch.Kind{}, job, ours(name))
		if err != nil {
			t.Fatal(err)
		}
		if got.GetUID() != "" || got.GetResourceVersion() != "" || got.GetFinalizers() != nil || got.Object["status"] != nil {
			t.Errorf("it is bound to be refused: %v", got.Object)
		}
		if _, labelled := got.GetLabels()["kueue.x-k8s.io/prebuilt-workload-name"]; labelled != (len(name) <= 63) || prebuiltOf(got) != name {
			t.Errorf("it runs by %q, labelled %t", prebuiltOf(got), labelled)
		}
		typed := &batchv1.Job{}
		if err := scheme.Scheme.Convert(got, typed, nil); err != nil {
			t.Fatal(err)
		}
		if typed.Spec.ManagedBy != nil || !*typed.Spec.Suspend || *typed.Spec.Parallelism != 2 ||
			typed.Labels["kueue.x-k8s.io/queue-name"] != "gpus" {
			t.Errorf("it is %+v", typed.Spec)
		}
	}
	if by, _, _ := unstructured.NestedString(job.Object, "spec", "managedBy"); by == "" {
		t.Error("the job here was changed")
	}
}

func TestKubeconfigsThatAreRefused(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\n"
	for text, want := range map[string]string{
		"users: [{name: u, user: {tokenFile: /t}}]":                                                   "users[u].tokenFile is a path",
		"users: [{name: u, user: {client-certificate: /c}}]":                                          "users[u] has the path of a client certificate",
		"users: [{name: u, user: {username: a, password: b}}]":                                        "users[u] logs in by username and password",
		"users: [{name: u, user: {auth-provider: {name: gcp}}}]":                                      "users[u] runs a program to log in",
		"clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: /ca}}]":           "clusters[c].certificate-authority is a path",
		"clusters: [{name: c, cluster: {server: 'https://a', insecure-skip-tls-verify: true}}]":       "clusters[c].insecure-skip-tls-verify is true",
		"clusters: [{name: c, cluster: {server: 'http://a'}}]":                                        `clusters[c].server is "http://a"`,
		"clusters: [{name: c, cluster: {}}]":                                                          `clusters[c].server is ""`,
		"clusters: [{name: c, cluster: {server: 'https://a'}}]\nusers: [{name: u, user: {token: t}}]": "",
	} {
		err := validate([]byte(head + text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}
