package externalgrpc

import (
	"cmp"
	"context"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// template is a node of the group.
func template(g *v1alpha1.NodeGroup) *corev1.Node {
	name := "template-" + g.Name
	labels := maps.Clone(nodegroups.Labels(g))
	labels[corev1.LabelHostname] = name
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: g.Spec.Template.Taints},
		Status: corev1.NodeStatus{
			Capacity:    nodegroups.Capacity(g.Spec.Template),
			Allocatable: nodegroups.GroupFrom(g, g.Status, 0).Allocatable.List(),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// PricingNodePrice returns the price of a node of a group, or of a template node.
func (s *server) PricingNodePrice(ctx context.Context, req *protos.PricingNodePriceRequest) (*protos.PricingNodePriceResponse, error) {
	name := req.GetNode().GetLabels()[v1alpha1.NodeGroupLabel]
	if m, ok := s.machines.byID(req.GetNode().GetProviderID()); ok {
		name = m.Group
	}
	g, err := s.group(ctx, s.Client, name)
	if err != nil {
		return nil, err
	}
	if g.Spec.PricePerHour == nil {
		return nil, status.Errorf(codes.Unimplemented, "the price of NodeGroup %s is not known: set its spec.pricePerHour", g.Name)
	}
	hours := hoursOf(cmp.Or(req.GetStartTimestamp(), req.GetOldStart()), cmp.Or(req.GetEndTimestamp(), req.GetOldEnd()))
	return &protos.PricingNodePriceResponse{Price: g.Spec.PricePerHour.AsApproximateFloat64() * hours}, nil
}

// PricingPodPrice returns the cost of a pod on the group in which its share of a machine is the cheapest.
func (s *server) PricingPodPrice(ctx context.Context, req *protos.PricingPodPriceRequest) (*protos.PricingPodPriceResponse, error) {
	bytes := req.GetPodBytes()
	if len(bytes) == 0 {
		bytes = req.GetOldPod()
	}
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(bytes); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the pod cannot be read: %v", err)
	}
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	price, ok := cheapest(groups, fit.TemplateRequests(&pod.Spec))
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "no NodeGroup whose price is known (spec.pricePerHour) has machines for pod %s/%s",
			pod.Namespace, pod.Name)
	}
	hours := hoursOf(cmp.Or(req.GetStartTimestamp(), req.GetOldStart()), cmp.Or(req.GetEndTimestamp(), req.GetOldEnd()))
	return &protos.PricingPodPriceResponse{Price: price * hours}, nil
}

func hoursOf(start, end *timestamppb.Timestamp) float64 {
	return max(0, end.AsTime().Sub(start.AsTime()).Hours())
}

// cheapest returns the lowest price per hour of the requests, in USD; ok is false if no group with a known price has machines of that
// size.
func cheapest(groups []*v1alpha1.NodeGroup, requests nodegroups.Resources) (price float64, ok bool) {
	for _, ng := range groups {
		g := nodegroups.GroupFrom(ng, ng.Status, 0)
		if _, _, short := g.Allocatable.Short(requests); short || g.PriceUnknown {
			continue
		}
		share := 0.0
		for name, v := range requests {
			if all := g.Allocatable[name]; all > 0 {
				share = max(share, float64(v)/float64(all))
			}
		}
		if p := share * ng.Spec.PricePerHour.AsApproximateFloat64(); !ok || p < price {
			price, ok = p, true
		}
	}
	return price, ok
}
