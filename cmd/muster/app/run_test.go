package app

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	provisioningmetrics "github.com/muster-dev/muster/provisioning/controller/metrics"
)

// workload of one podSet, with conditions that are true.
func workload(conditions ...string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	w.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1}}
	for _, c := range conditions {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return w
}

func TestTheClusterIsIdentifiedByItsSystemNamespace(t *testing.T) {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u-1"}}
	if uid, err := clusterUID(t.Context(), fake.NewClientBuilder().WithObjects(system).Build()); err != nil || uid != "u-1" {
		t.Errorf("the UID is %q (%v), want u-1", uid, err)
	}
	if uid, err := clusterUID(t.Context(), fake.NewClientBuilder().Build()); err == nil {
		t.Errorf("the UID is %q without the namespace, want an error", uid)
	}
}

func TestTheQueueOfARequestIsThatOfItsWorkload(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	created := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	w := workload()
	w.Namespace, w.CreationTimestamp, w.Spec.QueueName = "team", created, "gpus"
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w).Build()
	ownedBy := func(kind, name string) *provreq.ProvisioningRequest {
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "request"}}
		if kind != "" {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		}
		return r
	}
	for name, tt := range map[string]struct {
		request *provreq.ProvisioningRequest
		want    provisioningmetrics.Queued
	}{
		"made for a Workload":        {ownedBy("Workload", "a"), provisioningmetrics.Queued{Queue: "gpus", Since: created.Time}},
		"whose Workload has gone":    {ownedBy("Workload", "b"), provisioningmetrics.Queued{}},
		"made for something else":    {ownedBy("Job", "a"), provisioningmetrics.Queued{}},
		"made by somebody, directly": {ownedBy("", ""), provisioningmetrics.Queued{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := queued(kube, Options{Queueing: true})(t.Context(), tt.request)
			if got.Queue != tt.want.Queue || !got.Since.Equal(tt.want.Since) {
				t.Errorf("it is %+v, want %+v", got, tt.want)
			}
		})
	}
	if queued(kube, Options{}) != nil {
		t.Errorf("Workloads are read though the queues are somebody else's")
	}
}
