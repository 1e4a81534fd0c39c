package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

// half returns a cluster with one half of Muster, and without the CRDs of the other.
func half(t *testing.T, which deploy.Half) *site {
	t.Helper()
	c := cluster.Config{Progress: os.Stderr}
	sandbox.FillHalf(&c, which)
	c.Only = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Muster}
	return &site{testbed.NewSite(t, started(t, string(which), c))}
}

// TestTheAdmitterAlone needs neither NodeGroups nor ProvisioningRequests, and
// gives way to a Kueue that leads.
func TestTheAdmitterAlone(t *testing.T) {
	t.Parallel()
	s := half(t, deploy.Queueing)
	if err := s.Kube.List(t.Context(), &provreq.ProvisioningRequestList{}); !meta.IsNoMatchError(err) {
		t.Errorf("the cluster knows ProvisioningRequests: %v", err)
	}
	s.cpuQueue()
	j := s.job("plain", 1, func(j *batchv1.Job) {
		j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *amount("1")}},
		}}}
	})
	s.Eventually("the Job is started", func() bool { return s.Get(j) && j.Spec.Suspend != nil && !*j.Spec.Suspend },
		func() string { return fmt.Sprint(s.Workload(j)) })

	seconds, holder := int32(3600), "kueue-controller-manager-0"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "c1f6bfd2.kueue.x-k8s.io"}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
		RenewTime: &metav1.MicroTime{Time: time.Now()}}
	s.Create(lease)
	s.Eventually("muster gives way to Kueue", func() bool {
		w := s.of5(fmt.Sprintf("probe-%d", time.Now().UnixMilli()))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		<-ctx.Done() // a Workload that fits is admitted in much less, if at all
		s.Get(w)
		s.Delete(w)
		return len(w.Status.Conditions) == 0
	}, func() string { return "it goes on to admit" })
	waiting := s.of5("waiting")
	s.Delete(lease)
	s.workloadIs(waiting, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}

// TestTheProvisionerAlone needs nothing of Kueue's API.
func TestTheProvisionerAlone(t *testing.T) {
	t.Parallel()
	s := half(t, deploy.Provisioning)
	if err := s.Kube.List(t.Context(), &kueue.WorkloadList{}); !meta.IsNoMatchError(err) {
		t.Errorf("the cluster knows Workloads: %v", err)
	}
	r := s.request("direct", 1, func(r *provreq.ProvisioningRequest) {
		r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
		r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamNoRetry: "true"}
	})
	s.condition(r, provreq.Failed, metav1.ConditionTrue)
}
