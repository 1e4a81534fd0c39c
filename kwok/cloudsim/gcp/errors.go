package gcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/kwok/pool"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// refusal is an error as calls answer with it: a status, and a reason in lower
// camel case. What operations end with has codes in capitals, see opError.
func refusal(status int, reason, format string, args ...any) *cloudsim.Error {
	return &cloudsim.Error{Status: status, Code: reason, Message: fmt.Sprintf(format, args...)}
}

func invalid(field, value, want string) *cloudsim.Error {
	return refusal(http.StatusBadRequest, "invalid", "Invalid value for field '%s': '%s'. %s", field, value, want)
}

func notFound(resource string) *cloudsim.Error {
	return refusal(http.StatusNotFound, "notFound", "The resource '%s' was not found", resource)
}

// statuses of reasons whose errors name none.
var statuses = map[string]int{
	"rateLimitExceeded":    http.StatusForbidden,
	"quotaExceeded":        http.StatusForbidden,
	"forbidden":            http.StatusForbidden,
	"accessNotConfigured":  http.StatusForbidden,
	"authError":            http.StatusUnauthorized,
	"insufficientCapacity": http.StatusServiceUnavailable,
	"backendError":         http.StatusServiceUnavailable,
	"notFound":             http.StatusNotFound,
	"alreadyExists":        http.StatusConflict,
}

// Refuse implements cloudsim.Front.
func (f *Front) Refuse(w http.ResponseWriter, _ *http.Request, e *cloudsim.Error) {
	status := e.Status
	if status == 0 {
		status = statuses[e.Code]
	}
	if status == 0 {
		status = http.StatusBadRequest
	}
	f.date(w)
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"code": status, "message": e.Message,
		"errors": []map[string]string{{"message": e.Message, "domain": "global", "reason": e.Code}},
	}})
}

// Throttled implements cloudsim.Front.
func (f *Front) Throttled() *cloudsim.Error {
	return refusal(http.StatusForbidden, "rateLimitExceeded",
		"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'")
}

// opError is why an operation, a resize request or an attempt of a group failed.
type opError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// status is the HTTP status of an operation that fails with it.
func (e *opError) status() int {
	switch {
	case strings.Contains(e.Code, "EXHAUSTED"), strings.HasPrefix(e.Code, "INTERNAL"), strings.HasSuffix(e.Code, "UNAVAILABLE"):
		return http.StatusServiceUnavailable
	case strings.Contains(e.Code, "QUOTA"), strings.Contains(e.Code, "RATE"), strings.Contains(e.Code, "PERMISSION"):
		return http.StatusForbidden
	default:
		return http.StatusBadRequest
	}
}

// opErrors is how the cloud wraps them.
type opErrors struct {
	Errors []opError `json:"errors"`
}

func wrap(e *opError) *opErrors {
	if e == nil {
		return nil
	}
	return &opErrors{Errors: []opError{*e}}
}

// asOpError puts a refusal of the world into the cloud's words.
func asOpError(e *v1alpha1.KwokError, zone string) *opError {
	switch e.Code {
	case pool.CodeNoCapacity, cloudsim.CodeReservationFull:
		return &opError{"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
			fmt.Sprintf("The zone '%s' does not have enough resources available to fulfill the request. %s", zone, e.Message)}
	case pool.CodeMaxMachines:
		return &opError{"QUOTA_EXCEEDED", fmt.Sprintf("Quota 'INSTANCES' exceeded. %s", e.Message)}
	default:
		return &opError{e.Code, e.Message}
	}
}
