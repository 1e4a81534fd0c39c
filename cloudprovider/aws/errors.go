package aws

import (
	"errors"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// classes of the codes by which AWS refuses. Codes that are missing say nothing
// about what to do next: the call is repeated.
var classes = map[string]v1alpha1.ErrorClass{
	"InsufficientInstanceCapacity":         v1alpha1.Stockout,
	"InsufficientCapacity":                 v1alpha1.Stockout,
	"InsufficientHostCapacity":             v1alpha1.Stockout,
	"InsufficientReservedInstanceCapacity": v1alpha1.Stockout,
	"ReservationCapacityExceeded":          v1alpha1.Stockout,
	unfulfillable:                          v1alpha1.Stockout,
	"Unsupported":                          v1alpha1.Stockout, // the type is not sold in that zone
	"SpotMaxPriceTooLow":                   v1alpha1.Stockout,
	// A group has one subnet: no address left there says nothing about others.
	"InsufficientFreeAddressesInSubnet": v1alpha1.Network,

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

// unfulfillable with the text pointer is what a fleet says beside its real errors.
const (
	unfulfillable = "UnfulfillableCapacity"
	pointer       = "Failed to fulfill capacity"
)

// refusal is the error of a call: a *cloudprovider.Error where AWS has refused it.
func refusal(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		class, known := classes[api.ErrorCode()]
		if api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "above max value") {
			class = v1alpha1.Quota // all that Auto Scaling says against is a ValidationError
		}
		if known {
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

// blame picks the error that says most: throttling hides all others, and the first of
// a fleet's errors may only point at the others. A code without a class is a stockout:
// the launch has come to its end, and machines did not come.
func blame(list []cause) *cloudprovider.Error {
	rank := func(c cause) int {
		switch {
		case classes[c.code] == v1alpha1.Throttle:
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
	class, known := classes[worst.code]
	if !known {
		class = v1alpha1.Stockout
	}
	return &cloudprovider.Error{Class: class, Code: worst.code, Message: worst.message}
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
