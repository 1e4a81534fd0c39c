// Package advice reads from the cloud how likely a launch is to get its machines.
package advice

import (
	"context"
	"errors"
	"fmt"
	"math"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Of groups is the chance of a number of machines in each, for Spot machines: of others the cloud
// says nothing. What it cannot say of one group does not keep it from the others.
func Of(ctx context.Context, cloud *api.Client, groups []*v1alpha1.NodeGroup, count int) (map[string]cloudprovider.Advice, error) {
	out := map[string]cloudprovider.Advice{}
	var errs []error
	for _, g := range groups {
		if g.Spec.GCP == nil || g.Spec.CapacityType != v1alpha1.Spot {
			continue
		}
		answer, err := cloud.Advice(ctx, g.Spec.GCP.Project, api.Region(g.Spec.Zone), adviceRequest(g, count))
		if err != nil {
			errs = append(errs, fmt.Errorf("asking for advice on NodeGroup %s: %w", g.Name, err))
			continue
		}
		for _, r := range answer.GetRecommendations()[:min(1, len(answer.GetRecommendations()))] {
			if r.GetScores() != nil && r.GetScores().Obtainability != nil {
				chance := int32(math.Round(r.GetScores().GetObtainability() * 1000))
				out[g.Name] = cloudprovider.Advice{Chance: max(0, min(chance, 1000)), Source: "advice.capacity"}
			}
		}
	}
	return out, errors.Join(errs...)
}

// adviceRequest requests that many machines of the group at once, in its zone.
func adviceRequest(g *v1alpha1.NodeGroup, count int) *computepb.CapacityAdviceRequest {
	return &computepb.CapacityAdviceRequest{
		Size: new(int32(count)),
		DistributionPolicy: &computepb.CapacityAdviceRequestDistributionPolicy{
			TargetShape: new("ANY_SINGLE_ZONE"),
			Zones:       []*computepb.CapacityAdviceRequestDistributionPolicyZoneConfiguration{{Zone: new("zones/" + g.Spec.Zone)}},
		},
		InstanceFlexibilityPolicy: &computepb.CapacityAdviceRequestInstanceFlexibilityPolicy{
			InstanceSelections: map[string]*computepb.CapacityAdviceRequestInstanceFlexibilityPolicyInstanceSelection{
				"all": {MachineTypes: []string{g.Spec.GCP.MachineType}},
			},
		},
		InstanceProperties: &computepb.CapacityAdviceRequestInstanceProperties{
			Scheduling: &computepb.CapacityAdviceRequestInstancePropertiesScheduling{ProvisioningModel: new(template.Spot)},
		},
	}
}
