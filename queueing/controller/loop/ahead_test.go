package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/workload"
)

// contested is a world in which low runs on all the quota and machines of a group could
// be launched. The queue is the first of the objects.
func contested(t *testing.T, objects ...client.Object) *world {
	check := objects[0].(*kueue.ClusterQueue).Spec.AdmissionChecksStrategy.AdmissionChecks[0].Name
	objects[0].(*kueue.ClusterQueue).Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	w := newWorld(t, nil, append(objects, workloadOf("low", "4"))...)
	w.run(5 * time.Second)
	w.answer(checks.RequestName("low", check, 1), metav1.ConditionTrue)
	w.run(5 * time.Second)
	if !workload.IsAdmitted(w.workload("low")) {
		t.Fatal("low does not run")
	}
	machine := nodegroups.Resources{corev1.ResourceCPU: 4000, corev1.ResourcePods: 110}
	w.machines = planner.NewSnapshot(start, nodeset.New(), []nodegroups.Group{{
		Name: "pool", CapacityType: v1alpha1.OnDemand, Max: 4, Promised: machine, Allocatable: machine,
	}}, nil)
	return w
}

func (w *world) high() *kueue.Workload {
	high := workloadOf("high", "4")
	high.Spec.Priority = new(int32(10))
	return high
}

// TestMachinesComeBeforeVictimsLeave, wherever the process dies.
func TestMachinesComeBeforeVictimsLeave(t *testing.T) {
	for n := range 12 {
		t.Run(fmt.Sprintf("the process dies at write %d", n), func(t *testing.T) {
			w := contested(t, queueOf("4", capacityRule)...)
			k := &killer{left: n, after: n%2 == 0}
			w.restart(k.wrap)
			w.create(w.high())
			provisioned := false
			w.die(k, 10*time.Second, func() {
				if !workload.IsAdmitted(w.workload("low")) && !provisioned {
					t.Fatal("low has left before the machines of high are there")
				}
			})
			w.answer("high-capacity-1", metav1.ConditionTrue)
			provisioned = true
			w.die(k, 10*time.Second, func() {})
			if high := w.workload("high"); !workload.IsAdmitted(high) {
				t.Errorf("high is not admitted: %v", high.Status.Conditions)
			}
			if c := apimeta.FindStatusCondition(w.workload("low").Status.Conditions, kueue.WorkloadPreempted); c == nil {
				t.Error("low was not preempted")
			}
			var requests autoscaling.ProvisioningRequestList
			if err := w.api.List(t.Context(), &requests); err != nil || len(requests.Items) != 1 || requests.Items[0].Name != "high-capacity-1" {
				t.Errorf("there are %d requests, not just that of high; error %v", len(requests.Items), err)
			}
		})
	}
}

// TestMachinesOfKueuesOwnCheckComeFirst, too, where they are to be launched.
func TestMachinesOfKueuesOwnCheckComeFirst(t *testing.T) {
	for class, ahead := range map[string]bool{autoscaling.ProvisioningClassBestEffortAtomicScaleUp: true,
		autoscaling.ProvisioningClassCheckCapacity: false} {
		t.Run(class, func(t *testing.T) {
			// The cluster has no check but Kueue's.
			objects := slices.DeleteFunc(machinesOf(), func(o client.Object) bool { return o.GetName() == "capacity" })
			objects[len(objects)-1].(*kueue.ProvisioningRequestConfig).Spec.ProvisioningClassName = class
			w := contested(t, objects...)
			w.restart(nil)
			w.create(w.high())
			w.run(5 * time.Second)
			if stays := workload.IsAdmitted(w.workload("low")); stays != ahead {
				t.Fatalf("low stays: %v, want %v", stays, ahead)
			}
			w.answer("high-machines-1", metav1.ConditionTrue)
			w.run(5 * time.Second)
			if high := w.workload("high"); !workload.IsAdmitted(high) {
				t.Errorf("high is not admitted: %v", high.Status.Conditions)
			}
		})
	}
}

// TestARequestAheadOfQuotaThatTheServerRefuses is tried again after a pause, and no other
// has left for it.
func TestARequestAheadOfQuotaThatTheServerRefuses(t *testing.T) {
	w := contested(t, queueOf("4", capacityRule)...)
	tries := 0
	w.restart(func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if r, ok := o.(*autoscaling.ProvisioningRequest); ok && strings.HasPrefix(r.Name, "high") {
					tries++
					return apierrors.NewInvalid(schema.GroupKind{Kind: "ProvisioningRequest"}, o.GetName(), nil)
				}
				return c.Create(ctx, o, opts...)
			},
		})
	})
	w.create(w.high())
	w.run(30 * time.Second)
	high := w.workload("high")
	if text := evictedBecause(high); tries != 1 || !strings.Contains(text, "could not be created") || !strings.Contains(text, "is invalid") {
		t.Errorf("after %d tries it says %q", tries, text)
	}
	if high.Status.RequeueState == nil || high.Status.RequeueState.RequeueAt == nil {
		t.Errorf("it does not pause: %v", high.Status.RequeueState)
	}
	if w.run(time.Minute); tries != 2 {
		t.Errorf("it was tried %d times, want 2", tries)
	}
	if !workload.IsAdmitted(w.workload("low")) {
		t.Error("low has left for nothing")
	}
}
