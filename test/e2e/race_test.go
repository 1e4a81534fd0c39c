package e2e

import (
	"flag"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// races is how often two requests race for the last GPUs.
var races = flag.Int("races", 40, "how often two requests race for the last GPUs")

// lanes are how many races run at a time, each for a node of its own.
const lanes = 20

func TestOfTwoRequestsForTheLastGPUsExactlyOneWins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes, g.Spec.MinNodes = lanes, lanes
	})
	// A booking that stays unused: its machines stay.
	all := s.request("all", lanes, func(r *provreq.ProvisioningRequest) {
		r.Spec.Parameters = map[string]provreq.Parameter{v1alpha1.ParamBookingTimeout: "1s"}
	})
	s.condition(all, provreq.BookingExpired, metav1.ConditionTrue)
	nodes := s.nodes(g.Name)

	var running sync.WaitGroup
	for lane := range lanes {
		running.Go(func() {
			s.free(nodes[lane].Name)
			for i := range (*races + lanes - 1 - lane) / lanes {
				s.race(fmt.Sprintf("lane-%d-%d", lane, i), nodes[lane].Name)
			}
		})
	}
	running.Wait()
	s.idleAtOnce(g)
	s.Empty(g.Name)
}

// race makes two requests for all GPUs of the node at the same moment. They fail rather than wait.
func (s *site) race(name, node string) {
	both := make([]*provreq.ProvisioningRequest, 2)
	var creating sync.WaitGroup
	for i := range both {
		creating.Go(func() {
			template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("%s-%d", name, i)}}
			template.Template.Spec = s.podSpec()
			template.Template.Spec.NodeSelector[corev1.LabelHostname] = node
			both[i] = &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: template.Name}}
			both[i].Spec = provreq.ProvisioningRequestSpec{
				ProvisioningClassName: transaction.ClassCheckCapacity,
				PodSets:               []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: template.Name}, Count: 1}},
				Parameters:            map[string]provreq.Parameter{transaction.ParamNoRetry: "true"},
			}
			for _, err := range []error{s.Kube.Create(s.Context(), template), s.Kube.Create(s.Context(), both[i])} {
				if err != nil {
					s.Errorf("race %s: %v", name, err)
				}
			}
		})
	}
	creating.Wait()
	won, lost := 0, 0
	s.soon("both requests of race "+name+" are decided", func() bool {
		won, lost = 0, 0
		for _, r := range both {
			switch {
			case !s.Get(r):
			case meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned):
				won++
			case meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Failed):
				lost++
			}
		}
		return won+lost == 2
	})
	if won != 1 {
		s.Errorf("race %s: %d of two requests won: %v; %v", name, won, both[0].Status.Conditions, both[1].Status.Conditions)
	}
	for _, r := range both {
		s.Delete(r)
	}
	s.free(node)
}

// free waits until Muster has uncordoned the node.
func (s *site) free(name string) {
	s.soon("node "+name+" is free", func() bool {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return s.Get(n) && !n.Spec.Unschedulable
	})
}

// soon is eventually for goroutines beside the test's own, which may not end it.
func (s *site) soon(wish string, holds func() bool) {
	ctx, cancel := pressure.WithTimeout(s.Context(), testbed.Patience)
	defer cancel()
	if err := testbed.Poll(ctx, holds); err != nil {
		s.Errorf("%v: %s", err, wish)
	}
}
