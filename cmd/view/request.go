package view

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// ExplainRequest reports the state of a ProvisioningRequest and what holds it there.
func (p *Picture) ExplainRequest(r *provreq.ProvisioningRequest) *Explanation {
	out := &Explanation{Kind: "ProvisioningRequest", Namespace: r.Namespace, Name: r.Name, Missing: p.Missing}
	for _, end := range []struct{ condition, summary string }{
		{provreq.Failed, "has failed"},
		{provreq.CapacityRevoked, "has lost its machines"},
		{provreq.BookingExpired, "has ended: its booking is over"},
		{provreq.Provisioned, "is Provisioned: all of its machines are ready and booked"},
	} {
		if c := apimeta.FindStatusCondition(r.Status.Conditions, end.condition); c != nil && c.Status == metav1.ConditionTrue {
			out.Summary, out.Causes = end.summary, []string{c.Message}
			if why := blockedBy(r); why != "" {
				out.Causes = append(out.Causes, why)
			}
			if w := p.holderOf(r); w != nil && awaitsPlaces(w) {
				out.Causes = append(out.Causes, fmt.Sprintf("Workload %s does not start yet: %s", w.Name, p.whyNoPlaces(w)))
				out.Unblock = p.unblockPlaces(w)
			}
			return out
		}
	}
	e, ok := p.machines.Request(r.UID)
	switch provisioned := apimeta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); {
	case !p.served.Serves(r):
		out.Summary = "is not served by this Muster: its class is " + r.Spec.ProvisioningClassName
		if instance := r.Spec.Parameters[transaction.ParamProcessor]; instance != "" {
			out.Summary += fmt.Sprintf(", its parameter %s %q", transaction.ParamProcessor, instance)
		}
		out.Unblock = []string{fmt.Sprintf("run a provisioner for it, or create a request of one of the classes %s",
			strings.Join(transaction.KnownClasses, ", "))}
	case !ok:
		out.Summary = "is being deleted"
	case provisioned != nil && (!p.Decides() || e.Attempt.InFlight()):
		out.Summary, out.Causes = "is in progress", []string{provisioned.Message}
		if ok && e.Attempt.InFlight() {
			out.Summary += fmt.Sprintf(": attempt %d began %s ago", e.Attempt.Number, ago(p.Now, e.Attempt.Started))
		}
		if provisioned.Status == metav1.ConditionFalse {
			out.Summary = fmt.Sprintf("waits for capacity, as recorded %s ago", ago(p.Now, provisioned.LastTransitionTime.Time))
		}
	case !p.Decides():
		out.Summary = "waits; Muster has not recorded a reason yet"
	default:
		p.explainPending(out, e.Request)
	}
	return out
}

// blockedBy returns why pods of a request cannot start; empty if none is kept from starting.
func blockedBy(r *provreq.ProvisioningRequest) string {
	if c := apimeta.FindStatusCondition(r.Status.Conditions, transaction.PodsBlocked); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return ""
}

// explainPending reports Muster's next step for a request without capacity.
func (p *Picture) explainPending(out *Explanation, r *transaction.Request) {
	step := transaction.Next(r, p.machines.View(p.Snapshot, r))
	switch step.Do {
	case transaction.Begin:
		out.Summary = "is next: Muster is about to launch its machines"
	case transaction.Fail, transaction.LookUp:
		out.Summary = "cannot be served as specified"
	case transaction.Report:
		out.Summary = "waits for capacity"
	default:
		out.Summary = "is next: Muster is about to book its machines"
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
			pods = append(pods, podsOf(ps.Template, ps.Count))
		}
	}
	plan := planner.Plan(p.Snapshot, r.Gang, r.Policy)
	out.Capacity, out.Unblock = p.groupsFor("", pods, &plan)
	out.Machines = p.machinesTaken(&plan)
	if step.Do == transaction.Report && !step.At.IsZero() && len(out.Unblock) == 0 {
		out.Unblock = append(out.Unblock, "time: Muster retries "+in(p.Now, step.At))
	}
}
