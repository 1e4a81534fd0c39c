package aws

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/permissions"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// untried are the permissions that no call without effect can show.
var untried = []string{
	"iam:CreateServiceLinkedRole", "kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext",
	"kms:ReEncryptFrom", "kms:ReEncryptTo",
}

func TestMissingPermissions(t *testing.T) {
	tests := map[string][]string{"some": {"autoscaling:LaunchInstances", "ec2:CreateFleet", "pricing:GetProducts"}}
	for _, p := range permissions.Names() {
		tests[p] = []string{p}
	}
	for name, denied := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, plenty(), account(func(c *simaws.Config) { c.ReservationDelay.Duration = time.Hour }))
			p := s.provider()
			s.front.Grow(group, 1)
			if _, err := p.Launch(context.Background(), together(nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand), 1, token, "")); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Launch(context.Background(), request(nodeGroup(v1alpha1.AWSReservation, v1alpha1.OnDemand), 1, token+"r")); err == nil {
				t.Fatal("the reservation is not pending")
			}
			made, reserved := len(s.world.Instances(true)), s.reservedPlaces()
			s.front.Deny(denied...)
			missing, err := p.MissingPermissions(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			want := denied
			if slices.Contains(untried, denied[0]) {
				want = nil
			}
			if diff := cmp.Diff(want, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
			if len(s.world.Instances(true)) > made || s.live() != made || s.reservedPlaces() != reserved {
				t.Error("the examination has made or ended something")
			}
		})
	}
	if !slices.IsSorted(permissions.Names()) {
		t.Error("the permissions are in no order")
	}
}

// Where there is nothing yet that bears the cluster's tag, the policy grants nothing on it, and
// that is no lack.
func TestAnEmptyAccountLacksNothing(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Groups = nil }))
	if missing, err := s.provider().MissingPermissions(context.Background()); err != nil || missing != nil {
		t.Errorf("got %v and %v, want that nothing is missing", missing, err)
	}
}

// What launches need beside the permissions of their own calls.
func TestPermissionsBehindALaunch(t *testing.T) {
	for _, tc := range []struct {
		denied string
		way    int
		code   string
	}{
		{"iam:PassRole", 0, "UnauthorizedOperation"},
		{"iam:PassRole", 3, "UnauthorizedOperation"},
		{"iam:CreateServiceLinkedRole", 1, "AuthFailure.ServiceLinkedRoleCreationNotPermitted"},
		{"ec2:CreateFleet", 4, "AccessDenied"},
		{"ec2:DescribeLaunchTemplateVersions", 4, "AccessDenied"},
		{"ec2:RunInstances", 0, "UnauthorizedOperation"},
		{"ec2:CreateTags", 0, "UnauthorizedOperation"},
		{"ec2:CreateTags", 3, "UnauthorizedOperation"},
	} {
		t.Run(tc.denied+" "+ways[tc.way].name, func(t *testing.T) {
			s, g := way(t, tc.way, plenty(), account(func(c *simaws.Config) { c.Denied = []string{tc.denied} }))
			_, err := s.provider().Launch(context.Background(), request(g, 4, token))
			if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Auth || refused.Code != tc.code {
				t.Errorf("got %v, want a refusal of class Auth with code %s", err, tc.code)
			}
			if s.live() > 0 || s.ownReserved() > 0 {
				t.Errorf("%d machines and %d reserved places are left", s.live(), s.ownReserved())
			}
		})
	}
	t.Run("kms:CreateGrant", func(t *testing.T) {
		s, g := way(t, 0, plenty(), account(func(c *simaws.Config) { c.Denied = []string{"kms:CreateGrant"} }))
		p := s.provider()
		if _, err := p.Launch(context.Background(), request(g, 1, token)); err != nil {
			t.Fatal(err)
		}
		if list := s.listed(p); len(list) != 1 || list[0].State != cloudprovider.Terminated || list[0].Class != v1alpha1.Config ||
			!strings.Contains(list[0].Reason, "rights on the key") {
			t.Errorf("listed is %+v, want a machine that has ended for its key", list)
		}
	})
}

func TestAnExaminationWithoutCredentialsIsNone(t *testing.T) {
	s := newSim(t, plenty(func(c *cloudsim.Config) {
		c.Calls = []cloudsim.CallFault{{Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallRefused,
			Error: &cloudsim.Error{Status: 403, Code: "ExpiredToken", Message: "The security token included in the request is expired"}}}
	}), account())
	missing, err := s.provider().MissingPermissions(context.Background())
	if cause := cloudprovider.CauseOf(err); cause == nil || cause.Class != v1alpha1.Auth || missing != nil {
		t.Errorf("got %v and %v, want AWS's word on the credentials", missing, err)
	}
	s = newSim(t, plenty(fault("", cloudsim.CallLost)), account())
	if _, err := s.provider().MissingPermissions(context.Background()); err == nil {
		t.Error("AWS was out of reach, and nothing is said")
	}
}
