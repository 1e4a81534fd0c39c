package feed

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
)

func TestARequestThatWasMadeAgainWhileAWatchWasBroken(t *testing.T) {
	m := model.New(testingclock.NewFakePassiveClock(time.Now()), transaction.KnownClasses)
	request := func(uid types.UID, version string) *provreq.ProvisioningRequest {
		return &provreq.ProvisioningRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: uid, ResourceVersion: version},
			Spec:       provreq.ProvisioningRequestSpec{ProvisioningClassName: transaction.ClassAtomicScaleUp},
		}
	}
	first, second := request("first", "1"), request("second", "2")
	h := handle(m, nil)
	h.OnAdd(first, true)
	h.OnUpdate(first, second)
	if due := m.Due(nil); len(due) != 1 || due[0].UID != "second" {
		t.Errorf("%d requests are there, want the second alone", len(due))
	}
}

// TestWhatARestoredEtcdHasCounts, and not what Muster has seen or written since the backup.
func TestWhatARestoredEtcdHasCounts(t *testing.T) {
	m := model.New(testingclock.NewFakePassiveClock(time.Now()), transaction.KnownClasses)
	h := handle(m, nil)
	meta := func(version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "gpu", Namespace: "ns", UID: "uid", ResourceVersion: version}
	}
	group := func(version string, machines int32) *v1alpha1.NodeGroup {
		return &v1alpha1.NodeGroup{ObjectMeta: meta(version), Status: v1alpha1.NodeGroupStatus{Machines: machines}}
	}
	request := func(version, reason string) *provreq.ProvisioningRequest {
		r := &provreq.ProvisioningRequest{ObjectMeta: meta(version),
			Spec: provreq.ProvisioningRequestSpec{ProvisioningClassName: transaction.ClassAtomicScaleUp}}
		r.Status.Conditions = []metav1.Condition{{Type: provreq.Accepted, Status: metav1.ConditionTrue, Reason: reason}}
		return r
	}
	node := func(version string, cordoned bool) *corev1.Node {
		return &corev1.Node{ObjectMeta: meta(version), Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	}
	h.OnAdd(group("10", 1), true)
	h.OnAdd(request("10", "before"), true)
	h.OnAdd(node("10", false), true)
	h.OnUpdate(group("10", 1), group("20", 2))
	h.OnUpdate(request("10", "before"), request("20", "after"))
	h.OnUpdate(node("10", false), node("20", true))
	m.Written(group("30", 3))
	h.OnUpdate(group("20", 2), group("11", 4))
	h.OnUpdate(request("20", "after"), request("11", "restored"))
	h.OnUpdate(node("20", true), node("11", false))
	if got := m.Group("gpu"); got.ResourceVersion != "11" || got.Status.Machines != 4 {
		t.Errorf("the group is that of version %s with %d machines, want the restored one", got.ResourceVersion, got.Status.Machines)
	}
	if e, ok := m.Request("uid"); !ok || e.Object.Status.Conditions[0].Reason != "restored" {
		t.Errorf("the request is there: %t, and not as it was restored", ok)
	}
	if n := m.Node("gpu"); n == nil || n.ResourceVersion != "11" {
		t.Errorf("the node is not the restored one")
	}
	h.OnUpdate(group("11", 4), group("12", 5))
	if got := m.Group("gpu"); got.Status.Machines != 5 {
		t.Errorf("%d machines after the next change, want 5", got.Status.Machines)
	}
}

// expecting is a cloud that counts calls of Expect.
type expecting struct{ times int }

func (*expecting) Watch(context.Context, func(cloudprovider.Machine), func()) error { return nil }
func (e *expecting) Expect()                                                        { e.times++ }

// TestALaunchForAnAutoscalerIsLookedForAtOnce: another process makes the launch, and records it before and after its call.
func TestALaunchForAnAutoscalerIsLookedForAtOnce(t *testing.T) {
	m := model.New(testingclock.NewFakePassiveClock(time.Now()), transaction.KnownClasses)
	aws, gcp := &expecting{}, &expecting{}
	h := handle(m, map[v1alpha1.Provider]cloudprovider.Watcher{v1alpha1.ProviderAWS: aws, v1alpha1.ProviderGCP: gcp})
	group := func(version, record string) *v1alpha1.NodeGroup {
		g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid", ResourceVersion: version}}
		g.Spec.Provider, g.Annotations = v1alpha1.ProviderAWS, map[string]string{v1alpha1.AutoscalerLaunchesAnnotation: record}
		return g
	}
	h.OnAdd(group("1", ""), true)
	h.OnUpdate(group("1", ""), group("2", ""))
	if aws.times != 0 {
		t.Error("machines are expected without a launch")
	}
	h.OnUpdate(group("2", ""), group("3", `{"last":1,"open":[{"number":1,"count":2}]}`))
	h.OnUpdate(group("3", `{"last":1,"open":[{"number":1,"count":2}]}`), group("4", `{"last":1}`))
	if aws.times != 2 || gcp.times != 0 {
		t.Errorf("machines are expected %d times in the cloud of the group and %d in the other, want 2 and 0", aws.times, gcp.times)
	}
}
