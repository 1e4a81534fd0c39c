package aws

import (
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// noAddresses is the code of a launch for which a subnet has too few free addresses.
const noAddresses = "InsufficientFreeAddressesInSubnet"

// classes of the codes by which AWS refuses, where classOf would say something else of them.
var classes = map[string]v1alpha1.ErrorClass{
	"InsufficientInstanceCapacity":         v1alpha1.Stockout,
	"InsufficientCapacity":                 v1alpha1.Stockout,
	"InsufficientHostCapacity":             v1alpha1.Stockout,
	"InsufficientReservedInstanceCapacity": v1alpha1.Stockout,
	"ReservationCapacityExceeded":          v1alpha1.Stockout,
	unfulfillable:                          v1alpha1.Stockout,
	"Unsupported":                          v1alpha1.Stockout, // the type is not sold in that zone
	"SpotMaxPriceTooLow":                   v1alpha1.Stockout,
	// None of the group's subnets in the zone has addresses left, which says nothing about other groups.
	noAddresses: v1alpha1.Network,

	"VcpuLimitExceeded":            v1alpha1.Quota,
	"InstanceLimitExceeded":        v1alpha1.Quota,
	"MaxSpotInstanceCountExceeded": v1alpha1.Quota,
	"MaxFleetCountExceeded":        v1alpha1.Quota,
	"LimitExceeded":                v1alpha1.Quota,

	"RequestLimitExceeded":    v1alpha1.Throttle,
	"Throttling":              v1alpha1.Throttle,
	"ThrottlingException":     v1alpha1.Throttle,
	"EC2ThrottledException":   v1alpha1.Throttle,
	"BandwidthLimitExceeded":  v1alpha1.Throttle,
	"PriorRequestNotComplete": v1alpha1.Throttle,
	"LimitExceededException":  v1alpha1.Throttle, // of the SDK's own list

	"UnauthorizedOperation": v1alpha1.Auth,
	"AuthFailure":           v1alpha1.Auth,
	"AuthFailure.ServiceLinkedRoleCreationNotPermitted": v1alpha1.Auth,
	"AccessDenied":          v1alpha1.Auth,
	"AccessDeniedException": v1alpha1.Auth,
	"ExpiredToken":          v1alpha1.Auth,
	"RequestExpired":        v1alpha1.Auth,
	"InvalidClientTokenId":  v1alpha1.Auth,
	"SignatureDoesNotMatch": v1alpha1.Auth,
	"OptInRequired":         v1alpha1.Auth,
	"PendingVerification":   v1alpha1.Auth,
	"Blocked":               v1alpha1.Auth,

	"InvalidParameterValue":                       v1alpha1.Config,
	"InvalidParameterCombination":                 v1alpha1.Config,
	"InvalidLaunchTemplateName.NotFoundException": v1alpha1.Config,
	"InvalidLaunchTemplateId.NotFound":            v1alpha1.Config,
	"InvalidLaunchTemplateId.VersionNotFound":     v1alpha1.Config,
	"InvalidCapacityReservationId.NotFound":       v1alpha1.Config,
	"InvalidSubnetID.NotFound":                    v1alpha1.Config,
	"InvalidInstanceType":                         v1alpha1.Config,
	"UnknownParameter":                            v1alpha1.Config,
	"ValidationError":                             v1alpha1.Config,
}

// passing are the client errors that pass by themselves: another call is under way, an earlier
// call with the token asked for something else and may have made machines, or what was made
// a moment ago is not known everywhere yet.
var passing = []string{
	"ConcurrentTagAccess", "IdempotentCallInProgress", "IdempotentParameterMismatch", "IdempotentParameterMismatchError",
	"IncorrectInstanceState", "IncorrectState", "RequestTimeout", "ResourceContention", "ResourceInUse", "ScalingActivityInProgress",
}

// classOf returns the class of a refusal; none for one that passes by itself: it says nothing
// about what to do next, and the call is repeated. Client reports whether AWS counts the error
// as the caller's.
func classOf(code, message string, client bool) (class v1alpha1.ErrorClass, known bool) {
	class, known = classes[code]
	_, throttle := retry.DefaultThrottleErrorCodes[code]
	switch {
	case code == "ValidationError" && strings.Contains(message, "above max value"):
		return v1alpha1.Quota, true // all that Auto Scaling says against is a ValidationError
	case strings.Contains(message, "not supported in your requested Availability Zone"):
		return v1alpha1.Stockout, true // a fleet says so of an invalid configuration
	case known:
		return class, true
	case throttle:
		return v1alpha1.Throttle, true
	case !client || slices.Contains(passing, code):
		return "", false
	case strings.HasSuffix(code, "LimitExceeded") || strings.HasSuffix(code, "CountExceeded"):
		return v1alpha1.Quota, true
	default:
		return v1alpha1.Config, true
	}
}

// unfulfillable with the text pointer is what a fleet says beside its real errors.
const (
	unfulfillable = "UnfulfillableCapacity"
	pointer       = "Failed to fulfill capacity"
)

// refusal is the error of a call: a *cloudprovider.Error where AWS has refused it.
func refusal(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		var reply *smithyhttp.ResponseError
		client := errors.As(err, &reply) && reply.HTTPStatusCode() >= 400 && reply.HTTPStatusCode() < 500
		if class, known := classOf(api.ErrorCode(), api.ErrorMessage(), client); known {
			return &cloudprovider.Error{Class: class, Code: api.ErrorCode(), Message: api.ErrorMessage()}
		}
	}
	return err
}

func hasCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}

// isUnknownMachine says that a call was refused for the sake of one of the IDs in it.
func isUnknownMachine(err error) bool {
	var api smithy.APIError
	return hasCode(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") ||
		errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "Instance Id not found")
}

// cause is the code and text behind machines that did not come.
type cause struct{ code, message string }

// causes of a fleet.
func causes(list []ec2types.CreateFleetError) (out []cause) {
	for _, e := range list {
		out = append(out, cause{deref(e.ErrorCode), deref(e.ErrorMessage)})
	}
	return out
}

// ofTheCloud are the codes of the cloud's own errors that a fleet may report. What they have in
// common with a lack of capacity, none of which is the caller's error either, is that another
// group may fare better.
var ofTheCloud = []string{
	"", "InternalError", "InternalFailure", "InternalServerError", "ServerInternal", "ServiceUnavailable", "Unavailable",
}

// blame picks the error that says most: throttling hides all others, and the first of
// a fleet's errors may only point at the others. The launch has come to its end, and machines
// did not come, so each error has a class: Config for those of the caller, such as an image
// that has been deleted, and Stockout for the cloud's.
func blame(list []cause) *cloudprovider.Error {
	classOf := func(c cause) v1alpha1.ErrorClass {
		client := !slices.Contains(ofTheCloud, c.code) && !strings.Contains(c.code, "Insufficient") && !slices.Contains(passing, c.code)
		if class, known := classOf(c.code, c.message, client); known {
			return class
		}
		return v1alpha1.Stockout
	}
	rank := func(c cause) int {
		switch {
		case classOf(c) == v1alpha1.Throttle:
			return 0
		case c.code != unfulfillable || !strings.HasPrefix(c.message, pointer):
			return 1
		default:
			return 2
		}
	}
	if len(list) == 0 {
		list = []cause{{unfulfillable, "AWS gave fewer machines and did not say why"}}
	}
	worst := slices.MinFunc(list, func(a, b cause) int { return rank(a) - rank(b) })
	return &cloudprovider.Error{Class: classOf(worst), Code: worst.code, Message: worst.message}
}

func deref[T any](v *T) (out T) {
	if v != nil {
		out = *v
	}
	return out
}

// isAboutNothing says that AWS has looked for what does not exist, and so would have
// let the caller do more.
func isAboutNothing(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorFault() != smithy.FaultServer
}
