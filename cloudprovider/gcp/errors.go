package gcp

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// classes of the codes that operations, resize requests and groups fail with, and of
// the reasons that calls are refused for.
var classes = map[string]v1alpha1.ErrorClass{
	"ZONE_RESOURCE_POOL_EXHAUSTED":              v1alpha1.Stockout,
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": v1alpha1.Stockout,
	"RESOURCE_POOL_EXHAUSTED":                   v1alpha1.Stockout,
	"INSUFFICIENT_CAPACITY":                     v1alpha1.Stockout,
	codeTooFew:                                  v1alpha1.Stockout,
	"insufficientCapacity":                      v1alpha1.Stockout,

	"QUOTA_EXCEEDED": v1alpha1.Quota,
	"quotaExceeded":  v1alpha1.Quota,
	"limitExceeded":  v1alpha1.Quota,
	// The network has no more addresses: only a person can extend it, and fewer machines may
	// still fit, as with a quota.
	"IP_SPACE_EXHAUSTED":              v1alpha1.Network,
	"IP_SPACE_EXHAUSTED_WITH_DETAILS": v1alpha1.Network,

	// The cloud itself has failed at it.
	"INTERNAL_ERROR": v1alpha1.Timeout,

	// These pass by themselves: too many calls, or operations at once or on one resource, and
	// a resource on which another operation is still at work.
	"rateLimitExceeded":                    v1alpha1.Throttle,
	"userRateLimitExceeded":                v1alpha1.Throttle,
	"RATE_LIMIT_EXCEEDED":                  v1alpha1.Throttle,
	"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": v1alpha1.Throttle,
	"RESOURCE_OPERATION_RATE_EXCEEDED":     v1alpha1.Throttle,
	"resourceNotReady":                     v1alpha1.Throttle,
	"RESOURCE_NOT_READY":                   v1alpha1.Throttle,

	"PERMISSIONS_ERROR":             v1alpha1.Auth,
	"SERVICE_ACCOUNT_ACCESS_DENIED": v1alpha1.Auth,
	"CONDITION_NOT_MET":             v1alpha1.Auth,
	"forbidden":                     v1alpha1.Auth,
	"accessNotConfigured":           v1alpha1.Auth,
	"authError":                     v1alpha1.Auth,
	"required":                      v1alpha1.Auth,

	"invalid":             v1alpha1.Config,
	"badRequest":          v1alpha1.Config,
	"notFound":            v1alpha1.Config,
	"conditionNotMet":     v1alpha1.Auth,
	"RESOURCE_NOT_FOUND":  v1alpha1.Config,
	"INVALID_FIELD_VALUE": v1alpha1.Config,
	"INVALID_USAGE":       v1alpha1.Config,
}

// codeTooFew says no more than that a bulk insert failed; the cause stands beside it.
const codeTooFew = "VM_MIN_COUNT_NOT_REACHED"

// reservations fail with codes that say little: their texts tell, in lower case.
var reservations = []struct {
	text  string
	class v1alpha1.ErrorClass
}{
	{"no available resources in specified reservations", v1alpha1.Stockout},
	{"fully consumed", v1alpha1.Stockout},
	{"does not have available resources", v1alpha1.Stockout},
	{"specified reservations", v1alpha1.Config},
	{"reservation is not ready", v1alpha1.Config},
	{"reservation does not exist", v1alpha1.Config},
}

// classOf a code with its text; false where nothing is known of it.
func classOf(code, message string) (v1alpha1.ErrorClass, bool) {
	text := strings.ToLower(message)
	if strings.Contains(text, "reservation") {
		for _, r := range reservations {
			if strings.Contains(text, r.text) {
				return r.class, true
			}
		}
	}
	if strings.Contains(text, " per minute") || strings.Contains(text, " per second") {
		return v1alpha1.Throttle, true // a quota of calls, which says quotaExceeded like any other
	}
	if class, ok := classes[code]; ok {
		return class, true
	}
	if strings.Contains(strings.ToUpper(code), "QUOTA") {
		return v1alpha1.Quota, true
	}
	return "", false
}

// refused is what a call's error means: a *cloudprovider.Error where the cloud has
// refused it, else the error itself, which says nothing about the effect.
func refused(err error) error {
	var api *googleapi.Error
	if !errors.As(err, &api) {
		return err
	}
	reason, message := "", api.Message
	if len(api.Errors) > 0 {
		reason, message = api.Errors[0].Reason, cmp.Or(api.Errors[0].Message, api.Message)
	}
	class, known := classOf(reason, message)
	if !known {
		class, known = classOfStatus(api.Code)
	}
	if !known {
		return err
	}
	return &cloudprovider.Error{Class: class, Code: cmp.Or(reason, http.StatusText(api.Code)), Message: message}
}

// classOfStatus is what an HTTP status says where nothing else does. All of 4xx but those
// below say that the same call would be refused again.
func classOfStatus(status int) (v1alpha1.ErrorClass, bool) {
	switch {
	case status == http.StatusTooManyRequests:
		return v1alpha1.Throttle, true
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return v1alpha1.Auth, true
	case status == http.StatusRequestTimeout || status == http.StatusConflict:
		return "", false // a conflict is with what a call of ours has made, which lists tell
	case status >= 400 && status < 500:
		return v1alpha1.Config, true
	default:
		return "", false
	}
}

// reading is the error of a look during a launch. That the look came too fast says
// nothing about the launch.
func reading(err error) error {
	if refusal := cloudprovider.Refusal(refused(err)); refusal != nil && refusal.Class == v1alpha1.Throttle {
		return errors.New(refusal.Error())
	}
	return err
}

// failed is the refusal that an operation, a resize request or an attempt of a group
// ended with; nil for none. Codes of which nothing is known are for a person to read.
func failed(errs []*computepb.Errors) *cloudprovider.Error {
	var cause *computepb.Errors
	for _, e := range errs {
		if cause == nil || cause.GetCode() == codeTooFew {
			cause = e
		}
	}
	if cause == nil {
		return nil
	}
	class, known := classOf(cause.GetCode(), cause.GetMessage())
	if !known {
		class = v1alpha1.Config
	}
	return &cloudprovider.Error{Class: class, Code: cause.GetCode(), Message: cause.GetMessage()}
}

// hasReason says that the cloud has refused a call for this reason.
func hasReason(err error, reason string) bool {
	refusal := cloudprovider.Refusal(refused(err))
	return refusal != nil && refusal.Code == reason
}

// hasStatus says that the cloud has answered a call with this HTTP status.
func hasStatus(err error, status int) bool {
	var api *googleapi.Error
	return errors.As(err, &api) && api.Code == status
}
