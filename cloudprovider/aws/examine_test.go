package aws

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestMissingPermissions(t *testing.T) {
	tests := map[string][]string{
		"none": nil,
		"some": {"autoscaling:LaunchInstances", "ec2:CreateFleet", "pricing:GetProducts"},
		"all":  Permissions(),
	}
	for _, p := range Permissions() {
		tests[p] = []string{p}
	}
	for name, denied := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Denied = denied }))
			missing, err := s.provider().MissingPermissions(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(denied, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
			if len(s.world.Instances(true)) > 0 || s.reservedPlaces() > 0 {
				t.Error("the examination has made something")
			}
		})
	}
	if !slices.IsSorted(Permissions()) {
		t.Error("the permissions are in no order")
	}
}

func TestAnExaminationWithoutCredentialsIsNone(t *testing.T) {
	s := newSim(t, plenty(func(c *cloudsim.Config) {
		c.Calls = []cloudsim.CallFault{{Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallRefused,
			Error: &cloudsim.Error{Status: 403, Code: "ExpiredToken", Message: "The security token included in the request is expired"}}}
	}), account())
	missing, err := s.provider().MissingPermissions(context.Background())
	if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Auth || missing != nil {
		t.Errorf("got %v and %v, want AWS's word on the credentials", missing, err)
	}
	s = newSim(t, plenty(fault("", cloudsim.CallLost)), account())
	if _, err := s.provider().MissingPermissions(context.Background()); err == nil {
		t.Error("AWS was out of reach, and nothing is said")
	}
}
