package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

func TestNodeGroupsAreValidated(t *testing.T) {
	s := newSite(t)
	amount := func(v string) *resource.Quantity {
		q := resource.MustParse(v)
		return &q
	}
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.NodeGroup)
		want   string
	}{
		{"negative-count", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = -1 }, "spec.maxNodes"},
		{"more-least-than-most", func(g *v1alpha1.NodeGroup) { g.Spec.MinNodes = 9 }, "minNodes must not be greater than maxNodes"},
		{"no-capacity", func(g *v1alpha1.NodeGroup) { g.Spec.Template.Capacity = nil }, "spec.template.capacity"},
		{"no-memory", func(g *v1alpha1.NodeGroup) {
			g.Spec.Template.Capacity = corev1.ResourceList{"cpu": *amount("1")}
		}, "capacity must name cpu and memory"},
		{"nothing-of-it", func(g *v1alpha1.NodeGroup) {
			g.Spec.Template.Capacity = testbed.Machine()
			g.Spec.Template.Capacity["cpu"] = *amount("0")
		}, "must be greater than 0"},
		{"paid-to-take-it", func(g *v1alpha1.NodeGroup) { g.Spec.PricePerHour = amount("-1") }, "a price must not be negative"},
		{"unknown-provider", func(g *v1alpha1.NodeGroup) { g.Spec.Provider = "moon" }, "spec.provider"},
		{"no-script", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok = nil }, "spec.kwok"},
		{"a-fault-of-two-minds", func(g *v1alpha1.NodeGroup) {
			percent := int32(10)
			g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}, Percent: &percent}}
		}, "not both"},
		{"an-error-without-one", func(g *v1alpha1.NodeGroup) {
			g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLaunchError}}
		}, "needs the field error"},
		{"a-stock-of-no-drought", func(g *v1alpha1.NodeGroup) {
			g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Holds: 3}}
		}, "holds belongs to faults of type Dry"},
		{"less-than-a-drought", func(g *v1alpha1.NodeGroup) {
			g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultDry, Holds: -1}}
		}, "spec.kwok.faults[0].holds"},
		{"a-label-of-ours", func(g *v1alpha1.NodeGroup) {
			g.Spec.Template.Labels = map[string]string{"booked.muster.dev/x": "y"}
		}, "set by Muster alone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := s.NewGroup("-"+tc.name, tc.change)
			err := s.Kube.Create(t.Context(), g)
			if err == nil {
				_ = s.Kube.Delete(t.Context(), g)
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the refusal does not speak of %q: %v", tc.want, err)
			}
		})
	}
	t.Run("no-devices", func(t *testing.T) {
		g := s.NewGroup("-no-devices", func(g *v1alpha1.NodeGroup) { g.Spec.Template.Capacity["vpc.amazonaws.com/efa"] = *amount("0") })
		if err := s.Kube.Create(t.Context(), g); err != nil {
			t.Errorf("a device that nodes do not offer is refused: %v", err)
		}
	})
}

func TestRequestsThatCannotBeServedSaySo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 4 })
	for _, tc := range []struct {
		name   string
		count  int32
		change func(*provreq.ProvisioningRequest)
		reason string
		want   string
	}{
		{"no-template", 1, func(r *provreq.ProvisioningRequest) { r.Spec.PodSets[0].PodTemplateRef.Name = "nowhere" },
			transaction.ReasonFailedToCreatePods, `["nowhere"]`},
		{"larger-than-any-pool", 5, nil, transaction.ReasonCapacityIsNotFound, "1 short"},
		{"no-such-time", 1, func(r *provreq.ProvisioningRequest) {
			r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamValidUntil: "soon"}
		}, transaction.ReasonCapacityIsNotFound, "ValidUntilSeconds"},
		{"neither-yes-nor-no", 1, func(r *provreq.ProvisioningRequest) {
			r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamNoRetry: "maybe"}
		}, transaction.ReasonCapacityIsNotFound, "noRetry"},
		{"not-now-not-ever", 4, func(r *provreq.ProvisioningRequest) {
			r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
			r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamNoRetry: "true"}
		}, transaction.ReasonCapacityIsNotFound, "0 of the 4 pods"},
		{"out-of-time", 4, func(r *provreq.ProvisioningRequest) {
			r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
			r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamValidUntil: "2"}
		}, transaction.ReasonExpired, "ValidUntilSeconds"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := s.in(t)
			r := in.request(tc.name, tc.count, tc.change)
			if c := in.condition(r, provreq.Failed, metav1.ConditionTrue); c.Reason != tc.reason || !strings.Contains(c.Message, tc.want) {
				t.Errorf("%s: %s; want %s speaking of %q", c.Reason, c.Message, tc.reason, tc.want)
			}
			in.Delete(r)
		})
	}
}

func TestATemplateMayComeAMomentAfterItsRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "early"}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: "late"}, Count: 1}}
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "late"}}
	template.Template.Spec = s.podSpec()
	s.Create(r)
	time.Sleep(time.Second) //nolint:forbidigo // the passing of time is what is tested
	s.Create(template)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.Delete(r)
	s.Empty(g.Name)
}

func TestARequestWaitsForItsPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	r := s.request("careful", 1, func(r *provreq.ProvisioningRequest) {
		r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamPolicy: provreq.Parameter(s.Name)}
	})
	if c := s.condition(r, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "CapacityPolicy") {
		t.Errorf("the request says: %s", c.Message)
	}
	s.Create(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.Delete(r)
	s.Empty(g.Name)
}

func TestAnUnservedClassIsReportedInAnEvent(t *testing.T) {
	s := newSite(t)
	r := s.request("elsewhere", 1, func(r *provreq.ProvisioningRequest) { r.Spec.ProvisioningClassName = "teleport.example.com" })
	var note string
	s.Eventually("an Event about the class", func() bool {
		var list eventsv1.EventList
		if err := s.Kube.List(t.Context(), &list, client.InNamespace(s.Name)); err != nil {
			return false
		}
		for _, e := range list.Items {
			if e.Regarding.UID == r.UID && e.Reason == "NotServed" {
				note = e.Note
			}
		}
		return note != ""
	}, func() string { return "" })
	if !strings.Contains(note, "teleport.example.com") || !strings.Contains(note, transaction.ClassAtomicScaleUp) {
		t.Errorf("the Event says: %s", note)
	}
	if s.Get(r); len(r.Status.Conditions) > 0 {
		t.Errorf("the status of another provisioner's request was written: %v", r.Status.Conditions)
	}
}
