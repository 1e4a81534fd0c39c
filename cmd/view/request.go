package view

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model"
)

// ExplainRequest tells where a ProvisioningRequest stands.
func (p *Picture) ExplainRequest(r *provreq.ProvisioningRequest) *Explanation {
	out := &Explanation{Kind: "ProvisioningRequest", Namespace: r.Namespace, Name: r.Name, Missing: p.Missing}
	for _, end := range []struct{ condition, summary string }{
		{provreq.Failed, "has failed for good"},
		{provreq.CapacityRevoked, "has lost its machines"},
		{provreq.BookingExpired, "is over: its booking has ended"},
		{provreq.Provisioned, "is Provisioned: all of its machines are ready and booked"},
	} {
		if c := apimeta.FindStatusCondition(r.Status.Conditions, end.condition); c != nil && c.Status == metav1.ConditionTrue {
			out.Summary, out.Causes = end.summary, []string{c.Message}
			return out
		}
	}
	e, ok := p.machines.Request(r.UID)
	switch told := apimeta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); {
	case !p.served.Serves(r):
		out.Summary = fmt.Sprintf("is not Muster's: its class is %s, of processorInstance %q", r.Spec.ProvisioningClassName, r.Spec.Parameters[model.ParamProcessor])
		out.Unblock = []string{fmt.Sprintf("whoever serves that, or a new request of one of the classes %s", strings.Join(model.KnownClasses, ", "))}
	case !ok:
		out.Summary = "is being deleted"
	case told != nil && (!p.Decides() || e.Attempt.InFlight()):
		out.Summary, out.Causes = fmt.Sprintf("is under way, as Muster wrote %s ago", ago(p.Now, told.LastTransitionTime.Time)), []string{told.Message}
		if told.Status == metav1.ConditionFalse {
			out.Summary = fmt.Sprintf("waits for capacity, as Muster wrote %s ago", ago(p.Now, told.LastTransitionTime.Time))
		}
	case !p.Decides():
		out.Summary = "waits, and Muster has not written yet for what"
	default:
		p.explainPending(out, e.Request)
	}
	return out
}

// explainPending tells what Muster would do next for a request without capacity.
func (p *Picture) explainPending(out *Explanation, r *provisioning.Request) {
	step := provisioning.Next(r, p.machines.View(p.Snapshot, r))
	switch step.Do {
	case provisioning.Begin:
		out.Summary = "has its turn: Muster launches its machines next"
	case provisioning.Fail, provisioning.LookUp:
		out.Summary = "can never be served as it is"
	case provisioning.Report:
		out.Summary = "waits for capacity"
	default:
		out.Summary = "has its turn: Muster books its machines next"
	}
	if step.Condition.Message != "" {
		out.Causes = []string{step.Condition.Message}
	}
	if len(r.Missing) > 0 {
		out.Causes = append(out.Causes, fmt.Sprintf("PodTemplates %q do not exist in namespace %s: create them", r.Missing, r.Namespace))
		return
	}
	var pods []podsLike
	for i := range r.Gang.PodSets {
		ps := &r.Gang.PodSets[i]
		if ps.Template != nil {
			pods = append(pods, podsLike{ps.Count, fit.TemplateRequests(&ps.Template.Spec)})
		}
	}
	plan := provisioning.Plan(p.Snapshot, r.Gang, r.Policy)
	out.Capacity, out.Unblock = p.groupsFor("", pods, &plan)
	out.Machines = p.machinesTaken(&plan)
	if step.Do == provisioning.Report && !step.At.IsZero() && len(out.Unblock) == 0 {
		out.Unblock = append(out.Unblock, "time: Muster looks at it again "+in(p.Now, step.At))
	}
}
