package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/provisioning/when"
)

const rackLabel = "example.com/rack"

// racks configures the racks of a group's machines: mostly dealt out one by one, reported late, and now and then lost as a whole.
func (a *generator) racks(g *v1alpha1.NodeGroup) {
	g.Spec.Template.Capacity, g.Spec.Template.Taints = gpuMachine, []corev1.Taint{gpuTaint}
	g.Spec.MaxNodes = 4 + a.random.Int32N(9)
	g.Spec.MinNodes = 0
	g.Spec.Kwok.Holds = nil
	d := &v1alpha1.KwokDomains{NodeLabel: rackLabel, LabelDelay: seconds(a.random.Int64N(8))}
	if a.oneIn(10) {
		d.LabelDelay = seconds(600) // longer than any machine is waited for
	}
	d.Placement = oneOf(a, v1alpha1.PlacedScattered, v1alpha1.PlacedScattered, v1alpha1.PlacedOverflow, v1alpha1.PlacedTogether)
	most := int32(0)
	for i := range 2 + a.random.IntN(3) {
		size := 1 + a.random.Int32N(6)
		d.Of = append(d.Of, v1alpha1.KwokDomain{Name: fmt.Sprintf("rack-%d", i), Machines: size})
		most = max(most, size)
	}
	g.Spec.Kwok.Domains = d
	level := v1alpha1.TopologyLevel{NodeLabel: rackLabel}
	if a.oneIn(2) {
		level.MachinesPerDomain = most
	}
	g.Spec.Topology = []v1alpha1.TopologyLevel{level}
	if a.oneIn(3) {
		from := a.within(scenarioTime / 2)
		g.Spec.Kwok.Faults = append(g.Spec.Kwok.Faults, v1alpha1.KwokFault{
			Type: v1alpha1.FaultDomainLoss, Domains: []string{d.Of[a.random.IntN(len(d.Of))].Name},
			From: &metav1.Duration{Duration: from}, Until: &metav1.Duration{Duration: from + a.within(scenarioTime/2)},
		})
	}
}

// bind requires one rack for all pods of a gang, or for each pair of pods, or prefers one.
func (a *generator) bind(g *gang) {
	g.podSets = []podSet{{spec: podSpec(4, 4), count: 2 + a.random.IntN(4)}}
	if a.withClaims {
		g.podSets[0].spec = a.claiming(g.podSets[0].spec)
	}
	switch a.random.IntN(6) {
	case 0:
		g.topology = map[string]string{"kueue.x-k8s.io/podset-preferred-topology": rackLabel}
	case 1:
		g.podSets[0].count, g.slice = 4, 2
		g.topology = map[string]string{"kueue.x-k8s.io/podset-slice-required-topology": rackLabel, "kueue.x-k8s.io/podset-slice-size": "2"}
	default:
		g.slice = g.pods()
		g.topology = map[string]string{"kueue.x-k8s.io/podset-required-topology": rackLabel}
	}
}

// losesWhileItRuns has the gang lose nodes, one or two at once, and wants it stopped for that if it cannot be repaired.
func (a *generator) losesWhileItRuns(g *gang, at time.Time, parameters map[string]string) {
	parameters[v1alpha1.ParamOnMachineLoss] = string(v1alpha1.LossRevoke)
	g.absent, g.fails, g.runFor, g.giveUpAfter = 0, 0, 2*time.Minute, 2*time.Minute+a.within(time.Minute)
	for i := range 1 + a.random.IntN(2) {
		many := 1 + a.random.IntN(2)
		a.plan(at.Add(10*time.Second+a.within(80*time.Second)), fmt.Sprintf("gang %s loses nodes %d", g, i), func() {
			for _, p := range all[*corev1.Pod](a.store) {
				n := find[*corev1.Node](a.store, "", p.Spec.NodeName)
				if many > 0 && n != nil && isBound(p) && p.Namespace == g.namespace &&
					p.Annotations[provreq.ProvisioningRequestPodAnnotationKey] == g.request {
					many--
					a.lose(n)
				}
			}
		})
	}
}

// offerLabels has the labels of a node come that it did not register with.
func (w *world) offerLabels(n *corev1.Node, offer func(option)) {
	m := find[*kwokv1alpha1.Machine](w.store, "", n.Name)
	if m == nil || m.Spec.Node.LateLabels == nil {
		return
	}
	late := m.Spec.Node.LateLabels
	for key := range late.Labels {
		if n.Labels[key] != "" {
			return
		}
	}
	offer(option{key: "node " + n.Name + " gets its late labels", at: n.CreationTimestamp.Add(late.After.Duration),
		within: agentTime, do: func() {
			change(w.store, n, func(n *corev1.Node) {
				if n.Labels == nil {
					n.Labels = map[string]string{}
				}
				for key, value := range late.Labels {
					n.Labels[key] = value
				}
			})
		}})
}

// judgeRack: pods of a gang, or of a slice, that must be in one rack are bound in one. Those on nodes that are gone, or whose machine is,
// do not count, nor those of an earlier request of that name, of one that was withdrawn, or of one whose booking key others have.
func (w *world) judgeRack(o client.Object, deleted bool) {
	p, ok := o.(*corev1.Pod)
	if !ok || deleted || !isBound(p) {
		return
	}
	name := p.Annotations[provreq.ProvisioningRequestPodAnnotationKey]
	for _, g := range w.gangs {
		if g.slice == 0 || g.namespace != p.Namespace || g.request != name {
			continue
		}
		r := find[*provreq.ProvisioningRequest](w.store, g.namespace, g.request)
		if r == nil || slices.ContainsFunc(w.gangs, func(o *gang) bool {
			return o != g && o.namespace == g.namespace && state.BookingKey(o.request) == state.BookingKey(g.request)
		}) {
			continue // nodes with its label may be booked for another one by now
		}
		racks := map[string]int{}
		for _, o := range all[*corev1.Pod](w.store) {
			n := find[*corev1.Node](w.store, "", o.Spec.NodeName)
			if o.Namespace == p.Namespace && o.Annotations[provreq.ProvisioningRequestPodAnnotationKey] == name && isBound(o) &&
				n != nil && !outlives(n) && !o.CreationTimestamp.Before(&r.CreationTimestamp) {
				racks[n.Labels[rackLabel]]++
			}
		}
		needed := 0
		for _, count := range racks {
			needed += (count + g.slice - 1) / g.slice
		}
		if racks[""] > 0 || needed > max(1, g.pods()/g.slice) {
			w.failure = fmt.Errorf("each %d pods of gang %s must be in one rack, and they are in %v", g.slice, g, racks)
		}
		w.feature("pod bound in one rack")
	}
}

func isBound(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

// scatter is what machines that were not where the others are have cost.
type scatter struct {
	machines     int
	total, worst time.Duration
}

// mostScattered bounds how long such a machine is billed after its rack is known.
const mostScattered = time.Minute

// noteScattered records how long a machine is billed after it is known to be in another rack than the rest of its attempt, or after its
// attempt was given up for that reason.
func (s *simulator) noteScattered(m *kwokv1alpha1.Machine) {
	if s.ended[m.Name] {
		return
	}
	for _, r := range all[*provreq.ProvisioningRequest](s.store) {
		known := time.Time{}
		a := attemptOf(r)
		for _, rep := range a.Replacements {
			if rep.Level != "" && slices.Contains(rep.Lost, transaction.LostMachine{Group: m.Spec.Group, Name: m.Name, Launch: m.Spec.Launch}) {
				known = rep.Started
			}
		}
		if f := a.Failure; f != nil && f.Class == v1alpha1.Scattered && state.AttemptToken(m.Spec.Launch) == state.Token(r.UID, a.Number) {
			known = when.Earliest(known, f.Time)
		}
		if known.IsZero() {
			continue
		}
		s.ended[m.Name] = true
		billed := time.Since(known)
		s.scatter.machines++
		s.scatter.total += billed
		if s.usedByOthers[m.Name] { // it is left to them
			continue
		}
		able := when.Latest(s.up, s.world.outages[m.Spec.Group].until) // nothing is terminated while muster or the cloud is away
		if able.After(known) {
			billed = max(0, time.Since(able))
		}
		s.scatter.worst = max(s.scatter.worst, billed)
		s.feature("machine of another rack terminated")
	}
}
