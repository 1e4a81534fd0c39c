package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Codes by which AWS refuses calls, and of Muster's own.
const (
	// NoAddresses: a subnet has too few free addresses for a launch.
	NoAddresses = "InsufficientFreeAddressesInSubnet"
	// UnknownReservation and UnknownPlacementGroup: there is none of that name, or it is not known everywhere yet.
	UnknownReservation    = "InvalidCapacityReservationId.NotFound"
	UnknownPlacementGroup = "InvalidPlacementGroup.Unknown"
	// NoAnswer is the code of a call that AWS has not answered, or that could not be sent.
	NoAnswer = "NoAnswer"
	// unfulfillable with the text pointer is what a fleet reports beside its real errors.
	unfulfillable = "UnfulfillableCapacity"
	pointer       = "Failed to fulfill capacity"

	unknownInstance = "InvalidInstanceID.NotFound"
	// reservationState begins the codes about reservations that are not active.
	reservationState = "InvalidCapacityReservationState"
)

// classes of the codes by which AWS refuses, where ClassOf would not find them by its rules. EC2 publishes its codes at
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, Auto Scaling at
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html and with each of its calls.
var classes = map[string]v1alpha1.ErrorClass{
	"InsufficientReservedInstanceCapacity": v1alpha1.Stockout,
	"ReservationCapacityExceeded":          v1alpha1.Stockout,
	"SpotMaxPriceTooLow":                   v1alpha1.Stockout,
	"UnavailableHostRequirements":          v1alpha1.Stockout, // no Dedicated Host has room
	unfulfillable:                          v1alpha1.Stockout,
	"Unsupported":                          v1alpha1.Stockout, // the type is not sold in that zone
	// None of the group's subnets in the zone has addresses left, which says nothing about other groups.
	NoAddresses: v1alpha1.Network,

	"MaxSpotInstanceCountExceeded": v1alpha1.Quota,
	"VolumeIOPSLimit":              v1alpha1.Quota,

	"BandwidthLimitExceeded":  v1alpha1.Throttle,
	"EC2ThrottledException":   v1alpha1.Throttle,
	"LimitExceededException":  v1alpha1.Throttle, // of the SDK's own list
	"PriorRequestNotComplete": v1alpha1.Throttle,

	"AccessDenied":          v1alpha1.Auth,
	"AccessDeniedException": v1alpha1.Auth,
	"AuthFailure":           v1alpha1.Auth,
	"AuthFailure.ServiceLinkedRoleCreationNotPermitted": v1alpha1.Auth,
	"Blocked":                     v1alpha1.Auth,
	"ExpiredToken":                v1alpha1.Auth,
	"ExpiredTokenException":       v1alpha1.Auth,
	"IncompleteSignature":         v1alpha1.Auth,
	"InvalidClientTokenId":        v1alpha1.Auth,
	"MissingAuthenticationToken":  v1alpha1.Auth,
	"NotAuthorized":               v1alpha1.Auth,
	"OptInRequired":               v1alpha1.Auth,
	"PendingVerification":         v1alpha1.Auth,
	"RequestExpired":              v1alpha1.Auth,
	"SignatureDoesNotMatch":       v1alpha1.Auth,
	"UnauthorizedOperation":       v1alpha1.Auth,
	"UnrecognizedClientException": v1alpha1.Auth,

	// Their names end like those of quotas.
	"FilterLimitExceeded":                     v1alpha1.Config,
	"SecurityGroupsPerInstanceLimitExceeded":  v1alpha1.Config,
	"SecurityGroupsPerInterfaceLimitExceeded": v1alpha1.Config,
	"TagLimitExceeded":                        v1alpha1.Config,

	"InvalidCapacityReservationState.Unavailable": v1alpha1.Stockout, // its owner reclaims the capacity

	// These pass by themselves: another call is under way, what was made a moment ago is not known everywhere, or what was bought has not
	// begun.
	"ConcurrentTagAccess":    v1alpha1.Outage,
	"IncorrectInstanceState": v1alpha1.Outage,
	"IncorrectState":         v1alpha1.Outage,
	"InvalidCapacityReservationState.PendingActivation": v1alpha1.Outage,
	"ResourceContention":        v1alpha1.Outage,
	"ResourceInUse":             v1alpha1.Outage,
	"ScalingActivityInProgress": v1alpha1.Outage,
	"ServiceLinkedRoleFailure":  v1alpha1.Outage, // a role that Auto Scaling makes is not ready
}

// undecided are the codes of calls that an earlier call with the same token has decided, or is deciding, or that have not arrived whole.
var undecided = []string{"IdempotentCallInProgress", "IdempotentParameterMismatch", "IdempotentParameterMismatchError", "RequestTimeout"}

// ClassOf returns the class of an error that AWS has answered with. Server reports whether AWS counts it as its own. An error that is
// not decided leaves the outcome of the call unknown.
func ClassOf(code, message string, server bool) (class v1alpha1.ErrorClass, decided bool) {
	class, known := classes[code]
	_, throttle := retry.DefaultThrottleErrorCodes[code]
	switch {
	case slices.Contains(undecided, code):
		return v1alpha1.Outage, false
	case code == "ValidationError" && strings.Contains(message, "above max value"):
		return v1alpha1.Quota, true // all that Auto Scaling says against is a ValidationError
	case strings.Contains(message, "not supported in your requested Availability Zone"):
		return v1alpha1.Stockout, true // a fleet says so of an invalid configuration
	case known:
		return class, true
	case throttle:
		return v1alpha1.Throttle, true
	case strings.HasPrefix(code, "Insufficient"): // AWS counts a lack of capacity among its own errors
		return v1alpha1.Stockout, true
	case server:
		return v1alpha1.Outage, false
	case strings.HasSuffix(code, "LimitExceeded"), strings.HasSuffix(code, "CountExceeded"):
		return v1alpha1.Quota, true
	default:
		return v1alpha1.Config, true
	}
}

// noAnswer is the error of a try that was given up.
type noAnswer struct{ within time.Duration }

func (n *noAnswer) Error() string { return fmt.Sprintf("AWS has not answered within %s", n.within) }

// classified is the error of a try as a cloud's error. One that is not decided leaves the outcome of the try unknown. It is nil for none.
func classified(err error) (e *cloudprovider.Error, decided bool) {
	var answer smithy.APIError
	var reply *smithyhttp.ResponseError
	var unsent smithy.InvalidParamsError
	switch {
	case err == nil:
		return nil, true
	case errors.As(err, &e):
		return e, true
	case errors.As(err, &unsent): // it was not sent
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "MissingParameter", Message: unsent.Error()}, true
	case !errors.As(err, &answer):
		return &cloudprovider.Error{Class: v1alpha1.Outage, Code: NoAnswer, Message: silence(err)}, false
	}
	server := answer.ErrorFault() != smithy.FaultClient
	if errors.As(err, &reply) {
		server = reply.HTTPStatusCode() >= 500
	}
	class, decided := ClassOf(answer.ErrorCode(), answer.ErrorMessage(), server)
	if ofCredentials(err) {
		if class == v1alpha1.Throttle || answer.ErrorCode() == unreachableIssuer {
			class = v1alpha1.Outage
		}
		if decided = class != v1alpha1.Outage; decided {
			class = v1alpha1.Auth
		}
	}
	return &cloudprovider.Error{Class: class, Code: answer.ErrorCode(), Message: answer.ErrorMessage()}, decided
}

// silence returns the reason why there was no response.
func silence(err error) string {
	var given *noAnswer
	var sent *url.Error
	var of *smithy.OperationError
	switch {
	case errors.As(err, &given):
		return given.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "AWS has not answered in time"
	case errors.As(err, &sent):
		return sent.Err.Error()
	case errors.As(err, &of):
		return of.Err.Error()
	default:
		return err.Error()
	}
}

// unreachableIssuer is the error code of a request for credentials when AWS cannot reach the issuer of the caller's identity.
const unreachableIssuer = "IDPCommunicationError"

// ofCredentials reports whether the error is that of a call for credentials, on behalf of another call. The caller's rights are judged
// only by an answer.
func ofCredentials(err error) bool {
	var outer, inner *smithy.OperationError
	return errors.As(err, &outer) && errors.As(outer.Err, &inner)
}

// failure is the error of a call, which is Inconclusive if the outcome of the call is unknown. The end of the caller's context
// and the lack of a permit to act are no errors of AWS.
func failure(ctx context.Context, call string, err error) error {
	var denied *notPermitted
	if errors.As(err, &denied) {
		return fmt.Errorf("%s: %w", call, denied.cause)
	}
	e, decided := classified(err)
	switch {
	case decided:
		return fmt.Errorf("%s: %w", call, e)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", call, ctx.Err())
	default:
		return cloudprovider.Inconclusive(fmt.Errorf("%s: %w", call, e))
	}
}

// HasCode reports whether AWS has answered a call with one of the codes.
func HasCode(err error, codes ...string) bool {
	e := cloudprovider.CauseOf(err)
	return e != nil && slices.Contains(codes, e.Code)
}

// IsEndedReservation reports whether AWS has refused a call for the sake of a reservation that it does not know, or that cannot be used.
func IsEndedReservation(err error) bool {
	e := cloudprovider.CauseOf(err)
	return e != nil && (e.Code == UnknownReservation || strings.HasPrefix(e.Code, reservationState))
}

// IsDenied reports whether the caller lacks the rights for a call.
func IsDenied(err error) bool {
	e := cloudprovider.CauseOf(err)
	return e != nil && e.Class == v1alpha1.Auth
}

// IsUnknownMachine reports whether a call was refused for the sake of one of the IDs in it.
func IsUnknownMachine(err error) bool {
	e := cloudprovider.CauseOf(err)
	return HasCode(err, unknownInstance, "InvalidInstanceID.Malformed") ||
		HasCode(err, "ValidationError") && strings.Contains(e.Message, "Instance Id not found")
}

// Shortfall is the code and text behind machines that did not come.
type Shortfall struct{ Code, Message string }

// Shortfalls of a fleet.
func Shortfalls(list []ec2types.CreateFleetError) (out []Shortfall) {
	for _, e := range list {
		s := Shortfall{}
		if e.ErrorCode != nil {
			s.Code = *e.ErrorCode
		}
		if e.ErrorMessage != nil {
			s.Message = *e.ErrorMessage
		}
		out = append(out, s)
	}
	return out
}

// ofTheCloud are the codes of AWS's own errors that a fleet may report.
var ofTheCloud = []string{"InternalError", "InternalFailure", "InternalServerError", "ServerInternal", "ServiceUnavailable", "Unavailable"}

// Blame picks the most specific error: throttling hides all others, and the first of a fleet's errors may only point at the others.
// The launch has come to its end, so each error has a class: Config for those of the caller, such as an image that has been deleted, and
// Outage for those of AWS.
func Blame(list []Shortfall) *cloudprovider.Error {
	classOf := func(s Shortfall) v1alpha1.ErrorClass {
		if s.Code == "" {
			return v1alpha1.Stockout
		}
		class, _ := ClassOf(s.Code, s.Message, slices.Contains(ofTheCloud, s.Code))
		return class
	}
	rank := func(s Shortfall) int {
		switch {
		case classOf(s) == v1alpha1.Throttle:
			return 0
		case s.Code != unfulfillable || !strings.HasPrefix(s.Message, pointer):
			return 1
		default:
			return 2
		}
	}
	if len(list) == 0 {
		list = []Shortfall{{unfulfillable, "AWS gave fewer machines and did not say why"}}
	}
	worst := slices.MinFunc(list, func(a, b Shortfall) int { return rank(a) - rank(b) })
	return &cloudprovider.Error{Class: classOf(worst), Code: worst.Code, Message: worst.Message}
}
