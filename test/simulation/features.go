package simulation

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// feature notes that the scenario shows something that has to be tested.
func (s *simulator) feature(name string) { s.features[name] = true }

// observe notes which features a change shows.
func (s *simulator) observe(o any, deleted bool) {
	switch o := o.(type) {
	case *provreq.ProvisioningRequest:
		s.observeRequest(o, deleted)
	case *kwokv1alpha1.Machine:
		if o.Status.Phase == kwokv1alpha1.MachineTerminated || deleted {
			s.noteScattered(o)
		}
		if o.Status.Phase == kwokv1alpha1.MachineTerminated {
			s.feature("machine " + o.Status.Reason)
		} else if deleted {
			s.feature("machine terminated")
			if slices.ContainsFunc(all[*provreq.ProvisioningRequest](s.store), func(r *provreq.ProvisioningRequest) bool {
				return r.UID == state.TokenUID(o.Spec.Launch) && isTrue(r, provreq.Provisioned) && !over(r)
			}) {
				s.feature("machine of a gang that has found room without")
			}
		}
	case *corev1.Node:
		if o.Annotations[kwokv1alpha1.VanishedAnnotation] != "" {
			s.feature("devices vanished")
		}
		if deleted && outlives(o) {
			s.feature("node without a machine deleted")
		}
		if reason := o.Annotations[v1alpha1.CordonedAnnotation]; reason != "" {
			s.feature("cordon " + reason)
		}
		if len(state.BookingsOn(o.Labels, o.Annotations)) > 1 {
			s.feature("node booked by several")
		}
	case *corev1.Pod:
		if o.Status.Phase == corev1.PodFailed {
			s.feature("pod failed")
		}
		if o.Namespace == unbookedNamespace && o.Spec.NodeName != "" {
			s.feature("stranger on a node")
			s.usedByOthers[o.Spec.NodeName] = true
		}
	case *corev1.PodTemplate:
		if deleted {
			s.feature("template deleted")
		}
	}
}

func (s *simulator) observeRequest(r *provreq.ProvisioningRequest, deleted bool) {
	for _, c := range r.Status.Conditions {
		if c.Status == metav1.ConditionTrue || c.Type == provreq.Provisioned {
			s.feature(c.Type + "=" + string(c.Status) + " " + c.Reason)
		}
	}
	if p := transaction.RepairOf(r); p.Number > 0 {
		switch {
		case !over(r):
			s.feature("gang under repair")
		case isTrue(r, provreq.CapacityRevoked):
			s.feature("gang stopped after a repair began")
		default:
			s.feature("gang repaired")
			if slices.ContainsFunc(p.Lost, func(l transaction.LostPods) bool { return l.Elsewhere != "" }) {
				s.feature("slice lost as a whole, and gang repaired")
			}
			for _, g := range s.world.gangs {
				if g.slice == 0 && g.namespace == r.Namespace && g.request == r.Name {
					s.feature("gang repaired in any rack")
				}
			}
		}
	}
	a := attemptOf(r)
	if a.Number == 0 {
		return
	}
	if a.Domain != "" && transaction.RepairOf(r).Number == 0 {
		s.feature("machine for a gang that has begun")
	}
	s.feature("attempt " + string(a.Phase))
	if len(a.Launches) > 1 {
		s.feature("attempt in several groups")
	}
	if len(a.Shares) > 0 {
		s.feature("attempt shares machines")
		if len(a.Launches) > 0 {
			s.feature("attempt launches and shares machines")
		}
	}
	if a.Number > 1 {
		s.feature("second attempt")
	}
	if len(a.Replacements) > 0 {
		s.feature("machine replaced")
	}
	if a.Failure != nil {
		s.feature("rollback because of " + cmp.Or(string(a.Failure.Class), "others"))
		if a.Failure.Kept > 0 {
			s.feature("rollback leaves a machine to pods of others")
		}
	}
	if deleted && a.InFlight() {
		s.feature("request deleted in flight")
	}
}
