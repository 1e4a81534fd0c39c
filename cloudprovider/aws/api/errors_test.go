package api

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestBlame(t *testing.T) {
	points := Shortfall{unfulfillable, "Failed to fulfill capacity. Please review errors for more information."}
	for name, c := range map[string]struct {
		list []Shortfall
		want cloudprovider.Error
	}{
		"the pointer hides the real error": {
			[]Shortfall{points, {"VcpuLimitExceeded", "too many"}}, cloudprovider.Error{Class: v1alpha1.Quota, Code: "VcpuLimitExceeded",
				Message: "too many"}},
		"throttling hides the rest": {
			[]Shortfall{{"InsufficientInstanceCapacity", "none"}, {"RequestLimitExceeded", "slow"}},
			cloudprovider.Error{Class: v1alpha1.Throttle, Code: "RequestLimitExceeded", Message: "slow"}},
		"the pointer alone": {
			[]Shortfall{points}, cloudprovider.Error{Class: v1alpha1.Stockout, Code: unfulfillable, Message: points.Message}},
		"an image that was deleted": {
			[]Shortfall{points, {"InvalidAMIID.NotFound", "gone"}}, cloudprovider.Error{Class: v1alpha1.Config,
				Code: "InvalidAMIID.NotFound", Message: "gone"}},
		"a code that the adapter does not know": {
			[]Shortfall{points, {"Novel", "new"}}, cloudprovider.Error{Class: v1alpha1.Config, Code: "Novel", Message: "new"}},
		"a lack of something new": {
			[]Shortfall{points, {"InsufficientNovelty", "new"}}, cloudprovider.Error{Class: v1alpha1.Stockout,
				Code: "InsufficientNovelty", Message: "new"}},
		"an error of the cloud itself": {
			[]Shortfall{points, {"InternalError", "oops"}}, cloudprovider.Error{Class: v1alpha1.Outage, Code: "InternalError", Message: "oops"}},
		"an error without a code": {
			[]Shortfall{{"", "oops"}}, cloudprovider.Error{Class: v1alpha1.Stockout, Message: "oops"}},
		"nothing said": {
			nil, cloudprovider.Error{Class: v1alpha1.Stockout, Code: unfulfillable, Message: "AWS gave fewer machines and did not say why"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Blame(c.list); *got != c.want {
				t.Errorf("got %+v, want %+v", *got, c.want)
			}
		})
	}
}

func TestPricingRegion(t *testing.T) {
	for region, want := range map[string]string{"us-west-2": "us-east-1", "eu-west-3": "eu-central-1", "ap-east-1": "ap-south-1",
		"cn-north-1": "cn-northwest-1", "sa-east-1": "us-east-1"} {
		if got := pricingRegion(region); got != want {
			t.Errorf("%s: got %s, want %s", region, got, want)
		}
	}
}

// published are the codes that EC2 and Auto Scaling publish of what concerns launches, with their HTTP status, their class, and how often
// a call is tried that is answered so.
// EC2: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (common, client and server errors).
// Auto Scaling: https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html, and the errors of the calls in use.
var published = []struct {
	status int
	class  v1alpha1.ErrorClass
	tries  int64
	codes  []string
}{
	{500, v1alpha1.Stockout, 1, []string{
		"InsufficientAddressCapacity", "InsufficientCapacity", "InsufficientCapacityOnOutpost", "InsufficientHostCapacity",
		"InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity", "InsufficientVolumeCapacity",
		"UnfulfillableCapacity",
	}},
	{400, v1alpha1.Stockout, 1, []string{
		"InvalidCapacityReservationState.Unavailable", "ReservationCapacityExceeded", "SpotMaxPriceTooLow", "UnavailableHostRequirements",
		"Unsupported",
	}},
	{400, v1alpha1.Network, 1, []string{
		"InsufficientFreeAddressesInSubnet",
	}},
	{400, v1alpha1.Quota, 1, []string{
		"AddressLimitExceeded", "InstanceLimitExceeded", "LimitExceeded", "MaxFleetCountExceeded", "MaxIOPSLimitExceeded",
		"MaxSpotInstanceCountExceeded", "PlacementGroupLimitExceeded", "ResourceCountExceeded",
		"ResourceCountLimitExceeded", "ResourceLimitExceeded", "VcpuLimitExceeded", "VolumeIOPSLimit",
		"VolumeLimitExceeded",
	}},
	{503, v1alpha1.Throttle, 3, []string{
		"BandwidthLimitExceeded", "RequestLimitExceeded",
	}},
	{400, v1alpha1.Throttle, 3, []string{
		"EC2ThrottledException", "PriorRequestNotComplete", "RequestThrottled", "Throttling", "ThrottlingException",
		"TooManyRequestsException",
	}},
	{500, v1alpha1.Outage, 3, []string{
		"InternalError", "InternalFailure", "ResourceContention", "ServerInternal", "ServiceLinkedRoleFailure",
	}},
	{503, v1alpha1.Outage, 3, []string{
		"ServiceUnavailable", "Unavailable",
	}},
	{400, v1alpha1.Outage, 1, []string{
		"ConcurrentTagAccess", "IdempotentParameterMismatch", "IdempotentParameterMismatchError", "IncorrectInstanceState",
		"IncorrectState", "InvalidCapacityReservationState.PendingActivation", "ResourceInUse", "ScalingActivityInProgress",
	}},
	{403, v1alpha1.Auth, 1, []string{
		"AccessDenied", "AccessDeniedException", "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "Blocked",
		"ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId",
		"MissingAuthenticationToken", "NotAuthorized", "OptInRequired", "PendingVerification", "UnauthorizedOperation",
		"UnrecognizedClientException",
	}},
	{400, v1alpha1.Config, 1, []string{
		"DefaultVpcDoesNotExist", "EncryptedVolumesNotSupported", "FilterLimitExceeded", "InvalidAMIID.Malformed",
		"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAction", "InvalidAvailabilityZone",
		"InvalidBlockDeviceMapping", "InvalidCapacityReservationId.NotFound", "InvalidCharacter",
		"InvalidFleetConfiguration", "InvalidGroup.NotFound", "InvalidHostState", "InvalidInput",
		"InvalidInstanceAttributeValue", "InvalidInstanceType", "InvalidInterface.IpAddressLimitExceeded.Malformed",
		"InvalidKeyPair.NotFound", "InvalidLaunchTemplateId.Malformed", "InvalidLaunchTemplateId.NotFound",
		"InvalidLaunchTemplateId.VersionNotFound", "InvalidLaunchTemplateName.NotFoundException",
		"InvalidNetworkInterfaceID.NotFound", "InvalidParameter", "InvalidParameterCombination",
		"InvalidParameterDependency", "InvalidParameterValue", "InvalidPlacementGroup.Unknown",
		"InvalidSecurityGroupID.NotFound", "InvalidSnapshot.NotFound", "InvalidState", "InvalidSubnet",
		"InvalidSubnetID.NotFound", "InvalidTagKey.Malformed", "InvalidUserData.Malformed", "InvalidVolumeType",
		"MalformedQueryString", "MissingAction", "MissingParameter", "ParameterNotFound",
		"SecurityGroupsPerInstanceLimitExceeded", "SecurityGroupsPerInterfaceLimitExceeded", "TagLimitExceeded",
		"UnknownParameter", "UnknownVolumeType.Unsupported", "UnsupportedHostConfiguration", "UnsupportedOperation",
		"UnsupportedTenancy", "VPCIdNotSpecified", "ValidationError", "ZonesMismatched",
	}},
}

func TestPublishedCodes(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range published {
		for _, code := range p.codes {
			seen[code] = true
			t.Run(code, func(t *testing.T) {
				url, requests := service(t, refuse(p.status, code))
				err := createFleet(t, client(t, url))
				cause := cloudprovider.CauseOf(err)
				if cause == nil || cause.Class != p.class || cause.Code != code || cause.Message != "text" || requests.Load() != p.tries {
					t.Errorf("got %v after %d tries, want class %s after %d", err, requests.Load(), p.class, p.tries)
				}
				if _, decided := ClassOf(code, "text", p.status >= 500); decided != (cloudprovider.Refusal(err) != nil) {
					t.Errorf("got %v, which is decided: %v", err, decided)
				}
			})
		}
	}
	// The SDK corrects the clock for these before they count.
	for code := range classes {
		if !seen[code] && !slices.Contains([]string{"AuthFailure", "RequestExpired", "SignatureDoesNotMatch", "LimitExceededException"}, code) {
			t.Errorf("code %s is in no test", code)
		}
	}
}
