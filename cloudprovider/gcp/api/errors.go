package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// What a call has failed with, for errors.Is.
var (
	// ErrNotFound: there is no such resource.
	ErrNotFound = errors.New("not found")
	// ErrExists: there is such a resource already.
	ErrExists = errors.New("exists already")
	// ErrDenied: the caller may not do it.
	ErrDenied = errors.New("denied")
	// ErrInUse: another resource needs it.
	ErrInUse = errors.New("in use")
)

// classes of the codes in capitals that operations, resize requests and attempts of groups fail with, and of the reasons that calls
// are refused for. Their sources:
//
//	[bulk]      cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation
//	[capacity]  cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability
//	[create]    cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation
//	[quota]     cloud.google.com/compute/operations-quota and cloud.google.com/compute/resource-usage
//	[api]       cloud.google.com/compute/docs/reference/rest/v1/errors, the standard errors of Google's APIs
//	[rpc]       google.rpc.Code, the canonical codes of Google's APIs, with their HTTP mapping
//	[groups]    cloud.google.com/compute/docs/troubleshooting/troubleshooting-migs
//	[seen]      handled by cluster-autoscaler's adapter, with no page of Google's
var classes = map[string]v1alpha1.ErrorClass{
	"ZONE_RESOURCE_POOL_EXHAUSTED":              v1alpha1.Stockout, // [capacity]
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": v1alpha1.Stockout, // [capacity]
	"RESOURCE_POOL_EXHAUSTED":                   v1alpha1.Stockout, // [seen]
	"INSUFFICIENT_CAPACITY":                     v1alpha1.Stockout, // [seen]
	"insufficientCapacity":                      v1alpha1.Stockout, // [bulk], with HTTP 503
	codeTooFew:                                  v1alpha1.Stockout, // [bulk]

	"QUOTA_EXCEEDED": v1alpha1.Quota, // [create]
	"quotaExceeded":  v1alpha1.Quota, // [bulk]
	"limitExceeded":  v1alpha1.Quota, // [api]
	// The network has no more addresses: only a person can extend it, and fewer machines may still fit, as with a quota.
	"IP_SPACE_EXHAUSTED":              v1alpha1.Network, // [groups]
	"IP_SPACE_EXHAUSTED_WITH_DETAILS": v1alpha1.Network, // [groups]

	// The cloud itself has failed at it.
	"INTERNAL_ERROR":      v1alpha1.Outage, // [create]
	"INTERNAL":            v1alpha1.Outage, // [api]
	"SERVICE_UNAVAILABLE": v1alpha1.Outage, // [api]
	"UNAVAILABLE":         v1alpha1.Outage, // [api]
	"TIMEOUT":             v1alpha1.Outage, // [api]
	"DEADLINE_EXCEEDED":   v1alpha1.Outage, // [api]
	"backendError":        v1alpha1.Outage, // [api]
	"internalError":       v1alpha1.Outage, // [api]
	"UNKNOWN":             v1alpha1.Outage, // [rpc], with HTTP 500
	"DATA_LOSS":           v1alpha1.Outage, // [rpc], with HTTP 500
	// Nothing that Muster does cancels an operation, and Compute Engine has no method for it: the cloud has.
	"CANCELLED": v1alpha1.Outage, // [rpc], with HTTP 499

	// These pass by themselves: too many calls, or operations at once or on one resource, and a resource on which another operation is
	// still at work.
	"rateLimitExceeded":                    v1alpha1.Throttle, // [bulk], [quota]
	"userRateLimitExceeded":                v1alpha1.Throttle, // [api]
	"concurrentLimitExceeded":              v1alpha1.Throttle, // [api]
	"RATE_LIMIT_EXCEEDED":                  v1alpha1.Throttle, // [quota]
	"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": v1alpha1.Throttle, // [quota]
	"RESOURCE_OPERATION_RATE_EXCEEDED":     v1alpha1.Throttle, // [create]
	"resourceNotReady":                     v1alpha1.Throttle, // [create]
	"RESOURCE_NOT_READY":                   v1alpha1.Throttle, // [create]
	// Another operation has changed the resource meanwhile.
	"ABORTED": v1alpha1.Throttle, // [api]
	// With HTTP 429 this is a quota of calls; quotas of resources have other codes.
	"RESOURCE_EXHAUSTED": v1alpha1.Throttle, // [rpc], with HTTP 429

	"PERMISSIONS_ERROR":             v1alpha1.Auth, // [create]
	"SERVICE_ACCOUNT_ACCESS_DENIED": v1alpha1.Auth, // [create]
	"CONDITION_NOT_MET":             v1alpha1.Auth, // [create]: an organization policy
	"conditionNotMet":               v1alpha1.Auth, // [api], with HTTP 412
	"forbidden":                     v1alpha1.Auth, // [api]
	"accessNotConfigured":           v1alpha1.Auth, // [api]
	"authError":                     v1alpha1.Auth, // [api]
	"required":                      v1alpha1.Auth, // [api], with HTTP 401
	"UNAUTHENTICATED":               v1alpha1.Auth, // [rpc], with HTTP 401
	"PERMISSION_DENIED":             v1alpha1.Auth, // [rpc], with HTTP 403
	// The account does not pay.
	"billingNotEnabled": v1alpha1.Auth, // [api]

	"invalid":             v1alpha1.Config, // [bulk]
	"badRequest":          v1alpha1.Config, // [api]
	"notFound":            v1alpha1.Config, // [api]
	"RESOURCE_NOT_FOUND":  v1alpha1.Config, // [create]
	"INVALID_FIELD_VALUE": v1alpha1.Config, // [create]
	"INVALID_USAGE":       v1alpha1.Config, // [create]
	// Unless the text is of a reservation without room, see reservations.
	"UNSUPPORTED_OPERATION": v1alpha1.Config, // [create]
}

// codeTooFew is the first error of every bulk insert that failed; its cause follows in the list.
const codeTooFew = "VM_MIN_COUNT_NOT_REACHED"

// reservations fail with codes of many meanings: the class follows from the text, here in lower case.
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

// classOf a code with its text; empty where nothing is known of it.
func classOf(code, message string) v1alpha1.ErrorClass {
	text := strings.ToLower(message)
	if strings.Contains(text, "reservation") {
		for _, r := range reservations {
			if strings.Contains(text, r.text) {
				return r.class
			}
		}
	}
	if strings.Contains(text, " per minute") || strings.Contains(text, " per second") {
		return v1alpha1.Throttle // a quota of calls, which says quotaExceeded like any other
	}
	if class, ok := classes[code]; ok {
		return class
	}
	if strings.Contains(strings.ToUpper(code), "QUOTA") {
		return v1alpha1.Quota
	}
	return ""
}

// statusCancelled is the HTTP status of a cancelled call.
const statusCancelled = 499

// classOfStatus is the class of an error whose code is unknown, by its HTTP status. With 4xx, except those below, the same call would be
// refused again.
func classOfStatus(status int) v1alpha1.ErrorClass {
	switch {
	case status == http.StatusTooManyRequests:
		return v1alpha1.Throttle
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return v1alpha1.Auth
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != statusCancelled:
		return v1alpha1.Config
	default:
		return v1alpha1.Outage
	}
}

// Unanswered is the code of the error of a call that was given up at its deadline.
const Unanswered = "Unanswered"

// failure is the error of a call.
type failure struct {
	// cause is nil if the caller has given up, and for a conflict with what an earlier call has made.
	cause *cloudprovider.Error
	// kind is one of the errors above, or what the caller has given up with; nil for none.
	kind error
	text string
	// definite calls have had no effect.
	definite bool
}

func (f *failure) Error() string { return f.text }

func (f *failure) Is(target error) bool { return f.kind != nil && errors.Is(f.kind, target) }

func (f *failure) Unwrap() error {
	if f.cause == nil {
		return nil // not an interface that holds nil
	}
	return f.cause
}

// result is the value of the label of metrics.
func (f *failure) result() string {
	if f.cause == nil {
		return "Other"
	}
	return string(f.cause.Class)
}

// failureOf a call, by its error.
func failureOf(ctx context.Context, err error) *failure {
	var api *googleapi.Error
	var token *oauth2.RetrieveError
	switch {
	case errors.As(err, &api):
		return failureOfAnswer(api)
	case ctx.Err() != nil:
		return &failure{kind: ctx.Err(), text: err.Error()}
	case errors.As(err, &token) && token.Response != nil && classOfStatus(token.Response.StatusCode) != v1alpha1.Outage:
		// The call was not sent.
		return caused(v1alpha1.Auth, cmp.Or(token.ErrorCode, "TokenRefused"), err.Error(), true)
	case errors.Is(err, context.DeadlineExceeded):
		return caused(v1alpha1.Outage, Unanswered, err.Error(), false)
	default:
		return caused(v1alpha1.Outage, "Unreachable", err.Error(), false)
	}
}

func caused(class v1alpha1.ErrorClass, code, message string, definite bool) *failure {
	cause := &cloudprovider.Error{Class: class, Code: code, Message: message}
	return &failure{cause: cause, text: cause.Error(), definite: definite}
}

// failureOfAnswer is the failure of a call that the cloud has answered. A server error leaves the effect of the call open.
func failureOfAnswer(api *googleapi.Error) *failure {
	reason, message := "", api.Message
	if len(api.Errors) > 0 {
		reason, message = api.Errors[0].Reason, cmp.Or(api.Errors[0].Message, api.Message)
	}
	class := cmp.Or(classOf(reason, message), classOfStatus(api.Code))
	f := caused(class, cmp.Or(reason, http.StatusText(api.Code)), cmp.Or(message, fmt.Sprintf("HTTP %d", api.Code)),
		class != v1alpha1.Outage)
	switch {
	case api.Code == http.StatusConflict:
		return &failure{kind: ErrExists, text: f.text}
	case api.Code == http.StatusNotFound:
		f.kind = ErrNotFound
	case reason == "resourceInUseByAnotherResource":
		f.kind = ErrInUse
	case class == v1alpha1.Auth && api.Code == http.StatusForbidden:
		f.kind = ErrDenied
	}
	return f
}

// Failed is the refusal that an operation, a resize request or an attempt of a group ended with; nil for none. Codes of which nothing
// is known are for a person to read.
func Failed(errs []*computepb.Errors) *cloudprovider.Error { return failed(errs, v1alpha1.Config) }

// failed is the refusal, of a class where nothing is known of the code.
func failed(errs []*computepb.Errors, unknown v1alpha1.ErrorClass) *cloudprovider.Error {
	var cause *computepb.Errors
	for _, e := range errs {
		if cause == nil || cause.GetCode() == codeTooFew {
			cause = e
		}
	}
	if cause == nil {
		return nil
	}
	return &cloudprovider.Error{Class: cmp.Or(classOf(cause.GetCode(), cause.GetMessage()), unknown), Code: cause.GetCode(),
		Message: cause.GetMessage()}
}

// failureOfOperation is what an operation that is done ended with; nil if it succeeded.
func failureOfOperation(op *computepb.Operation) error {
	status, unknown := int(op.GetHttpErrorStatusCode()), v1alpha1.Config
	if status >= 400 {
		unknown = classOfStatus(status)
	}
	if refusal := failed(op.GetError().GetErrors(), unknown); refusal != nil {
		return refusal
	}
	if status < 400 {
		return nil
	}
	return &cloudprovider.Error{Class: unknown, Code: fmt.Sprintf("HTTP %d", status), Message: op.GetHttpErrorMessage()}
}
