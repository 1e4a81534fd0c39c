package gcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Advise implements cloudprovider.Advisor, for Spot machines: of others the cloud
// says nothing. What it cannot say of one group does not keep it from the others.
func (p *Provider) Advise(ctx context.Context, groups []*v1alpha1.NodeGroup, count int) (map[string]cloudprovider.Advice, error) {
	out := map[string]cloudprovider.Advice{}
	var errs []error
	for _, g := range groups {
		if g.Spec.GCP == nil || g.Spec.CapacityType != v1alpha1.Spot {
			continue
		}
		answer, err := p.advice.capacity(ctx, g.Spec.GCP.Project, regionOf(g.Spec.Zone), adviceRequest(g, count))
		if err != nil {
			errs = append(errs, fmt.Errorf("asking for advice on NodeGroup %s: %w", g.Name, refused(err)))
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

// advice is the method advice.capacity of the beta of Compute Engine. That of v1 has the same messages and refuses Spot, of which
// alone it is known to say anything; a client library of the whole beta would be as large as that of v1.
type advice struct {
	*http.Client
	endpoint string
}

func newAdvice(c *http.Client, endpoint string) *advice {
	return &advice{c, cmp.Or(endpoint, "https://compute.googleapis.com")}
}

func (a *advice) capacity(ctx context.Context, project, region string, in *computepb.CapacityAdviceRequest) (
	*computepb.CapacityAdviceResponse, error) {
	body, err := protojson.Marshal(in)
	if err != nil {
		return nil, err
	}
	at, err := url.JoinPath(a.endpoint, "compute/beta/projects", project, "regions", region, "advice/capacity")
	if err != nil {
		return nil, err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	call.Header.Set("Content-Type", "application/json")
	reply, err := a.Do(call)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	if err := googleapi.CheckResponse(reply); err != nil {
		return nil, err
	}
	if body, err = io.ReadAll(reply.Body); err != nil {
		return nil, err
	}
	out := &computepb.CapacityAdviceResponse{}
	return out, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, out)
}

// adviceRequest asks for that many machines of the group at once, in its zone.
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
			Scheduling: &computepb.CapacityAdviceRequestInstancePropertiesScheduling{ProvisioningModel: new(modelSpot)},
		},
	}
}
