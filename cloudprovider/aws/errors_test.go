package aws

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/kwok/pool"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// codes are all that AWS refuses launches by, with its texts.
var codes = []struct {
	code   string
	class  v1alpha1.ErrorClass
	status int
	text   string
}{
	{"InsufficientInstanceCapacity", v1alpha1.Stockout, 500, "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested."},
	{"InsufficientCapacity", v1alpha1.Stockout, 500, "There is not enough capacity."},
	{"InsufficientHostCapacity", v1alpha1.Stockout, 500, "There is not enough capacity on the host."},
	{"InsufficientReservedInstanceCapacity", v1alpha1.Stockout, 500, "Not enough reserved instances."},
	{"ReservationCapacityExceeded", v1alpha1.Stockout, 400, "The reservation is full."},
	{"UnfulfillableCapacity", v1alpha1.Stockout, 500, "Unable to fulfill capacity."},
	{"Unsupported", v1alpha1.Stockout, 400, "Your requested instance type is not supported in your requested Availability Zone."},
	{"SpotMaxPriceTooLow", v1alpha1.Stockout, 400, "Your Spot request price is lower than the minimum."},
	{"InsufficientFreeAddressesInSubnet", v1alpha1.Network, 400, "There are not enough free addresses in subnet 'subnet-a'."},
	{"VcpuLimitExceeded", v1alpha1.Quota, 400, "You have requested more vCPU capacity than your current limit of 768 allows."},
	{"InstanceLimitExceeded", v1alpha1.Quota, 400, "Your quota allows for 0 more running instances."},
	{"MaxSpotInstanceCountExceeded", v1alpha1.Quota, 400, "Max spot instance count exceeded."},
	{"MaxFleetCountExceeded", v1alpha1.Quota, 400, "Too many fleets."},
	{"RequestLimitExceeded", v1alpha1.Throttle, 503, "Request limit exceeded."},
	{"Throttling", v1alpha1.Throttle, 400, "Rate exceeded."},
	{"ThrottlingException", v1alpha1.Throttle, 400, "Rate exceeded."},
	{"EC2ThrottledException", v1alpha1.Throttle, 400, "Rate exceeded."},
	{"BandwidthLimitExceeded", v1alpha1.Throttle, 400, "Too much."},
	{"PriorRequestNotComplete", v1alpha1.Throttle, 400, "The prior request is not complete."},
	{"UnauthorizedOperation", v1alpha1.Auth, 403, "You are not authorized to perform this operation."},
	{"AuthFailure", v1alpha1.Auth, 401, "AWS was not able to validate the provided access credentials."},
	{"AuthFailure.ServiceLinkedRoleCreationNotPermitted", v1alpha1.Auth, 403, "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."},
	{"AccessDenied", v1alpha1.Auth, 403, "Not authorized."},
	{"ExpiredToken", v1alpha1.Auth, 403, "The security token included in the request is expired"},
	{"RequestExpired", v1alpha1.Auth, 400, "Request has expired."},
	{"InvalidParameterValue", v1alpha1.Config, 400, "Invalid value."},
	{"InvalidLaunchTemplateName.NotFoundException", v1alpha1.Config, 400, "The specified launch template does not exist."},
	{"InvalidLaunchTemplateId.NotFound", v1alpha1.Config, 400, "The specified launch template does not exist."},
	{"InvalidAMIID.NotFound", v1alpha1.Config, 400, "The image id '[ami-0]' does not exist"},
	{"InvalidKeyPair.NotFound", v1alpha1.Config, 400, "The key pair 'ops' does not exist"},
	{"EncryptedVolumesNotSupported", v1alpha1.Config, 400, "The type does not support encrypted volumes."},
	{"OperationNotPermitted", v1alpha1.Config, 400, "The operation is not permitted."},
	{"InvalidFleetConfiguration", v1alpha1.Config, 400, "The configuration is not valid."},
	{"InvalidFleetConfiguration", v1alpha1.Stockout, 400, "Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone (us-east-1a)."},
	{"VolumeLimitExceeded", v1alpha1.Quota, 400, "Maximum number of volumes exceeded."},
	{"TooManyRequestsException", v1alpha1.Throttle, 429, "Too many requests."},
	{"PendingVerification", v1alpha1.Auth, 400, "Your account is currently being verified."},
	{"Blocked", v1alpha1.Auth, 400, "Your account is currently blocked."},
	{"InvalidCapacityReservationState", v1alpha1.Config, 400, "The capacity reservation is in state 'expired'."},
	{"InvalidCapacityReservationState.Unavailable", v1alpha1.Stockout, 400, "The capacity reservation is being reclaimed."},
	{"InvalidCapacityReservationState.PendingActivation", v1alpha1.Outage, 400, "Your Capacity Block is not active yet."},
	{"InvalidCapacityReservationId.NotFound", v1alpha1.Config, 400, "The capacity reservation does not exist."},
}

// Each code through the wire, as the error of a call and as one of a fleet's errors in
// an answer that is a success to HTTP.
func TestErrorCodes(t *testing.T) {
	for _, c := range codes {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			call := func(world *cloudsim.Config) {
				world.Calls = []cloudsim.CallFault{{
					Cloud: v1alpha1.ProviderAWS, Action: "CreateFleet", Type: cloudsim.CallRefused,
					Error: &cloudsim.Error{Status: c.status, Code: c.code, Message: c.text},
				}}
			}
			fleet := func(world *cloudsim.Config) {
				for i := range world.Pools {
					world.Pools[i].Script.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLaunchError, Error: &v1alpha1.KwokError{
						Class: c.class, Code: c.code, Message: c.text,
					}}}
				}
			}
			wheres := map[string]func(*cloudsim.Config){"call": call, "fleet": fleet}
			if c.code == pool.CodeNoCapacity {
				delete(wheres, "fleet") // the simulated cloud has a code of its own for it
			}
			for where, world := range wheres {
				s := newSim(t, plenty(world), account())
				p := s.provider()
				machines, err := p.Launch(context.Background(), request(nodeGroup(v1alpha1.AWSFleet, v1alpha1.Spot), 4, token))
				refused := cloudprovider.Refusal(err)
				if refused == nil {
					t.Fatalf("%s: got %v, want a refusal", where, err)
				}
				want := cloudprovider.Error{Class: c.class, Code: c.code, Message: c.text}
				if *refused != want {
					t.Errorf("%s: got %+v, want %+v", where, *refused, want)
				}
				if want := fmt.Sprintf("%s (%s): %s", c.code, c.class, c.text); refused.Error() != want {
					t.Errorf("%s: a user sees %q, want %q", where, refused, want)
				}
				tries := int64(1)
				if where == "call" && c.class == v1alpha1.Throttle {
					tries = 3
				}
				if n := s.world.Calls(v1alpha1.ProviderAWS)["CreateFleet"]; n != tries {
					t.Errorf("%s: CreateFleet was called %d times, want %d", where, n, tries)
				}
				if len(machines) > 0 || len(s.alive()) > 0 {
					t.Errorf("%s: %d machines, alive %v", where, len(machines), s.alive())
				}
			}
		})
	}
}

// What says nothing about the launch is no refusal: the call is to be repeated.
func TestErrorsOfTheCloudItselfAreNoRefusals(t *testing.T) {
	for _, code := range []string{"InternalError", "Unavailable", "ServiceUnavailable", "InternalFailure"} {
		s := newSim(t, plenty(func(c *cloudsim.Config) {
			c.Calls = []cloudsim.CallFault{{
				Cloud: v1alpha1.ProviderAWS, Action: "CreateFleet", Type: cloudsim.CallRefused, Calls: []int64{0, 1, 2},
				Error: &cloudsim.Error{Status: 500, Code: code, Message: "An internal error has occurred"},
			}}
		}), account())
		p := s.provider()
		g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.Spot)
		if _, err := p.Launch(context.Background(), request(g, 4, token)); err == nil || cloudprovider.Refusal(err) != nil {
			t.Errorf("%s: got %v, want an error that is no refusal", code, err)
		}
		if machines, err := p.Launch(context.Background(), request(g, 4, token)); err != nil || len(machines) != 4 {
			t.Errorf("%s: once more: got %d machines and %v", code, len(machines), err)
		}
	}
}

func TestWrongRegionAndLackOfCredentials(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Region = "eu-west-1" }))
	_, err := s.provider().Discover(context.Background())
	if cause := cloudprovider.CauseOf(err); cause == nil || cause.Class != v1alpha1.Auth {
		t.Errorf("got %v, want AWS's word on the region", err)
	}
	for want, c := range map[string]Config{
		"region is empty: give the region of the cluster, for example us-east-1":                     {Cluster: cluster},
		"cluster is empty: give the name of the cluster, as in the tag kubernetes.io/cluster/<name>": {Region: region},
	} {
		if _, err := New(context.Background(), c); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.provider().Discover(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the call was cancelled", err)
	}
}
