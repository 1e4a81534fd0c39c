package aws

import (
	"net/http"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/kwok/pool"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// refusal is the world's refusal as AWS spells it. Codes that a script gives are
// left as they are.
func refusal(e *v1alpha1.KwokError, capacityType v1alpha1.CapacityType) *cloudsim.Error {
	out := &cloudsim.Error{Status: http.StatusBadRequest, Code: e.Code, Message: e.Message}
	switch e.Code {
	case pool.CodeNoCapacity:
		out.Code = "InsufficientInstanceCapacity"
	case cloudsim.CodeReservationFull:
		out.Code = "ReservationCapacityExceeded"
	case pool.CodeMaxMachines:
		out.Code = "VcpuLimitExceeded"
		if capacityType == v1alpha1.Spot {
			out.Code = "MaxSpotInstanceCountExceeded"
		}
	}
	if e.Class == v1alpha1.Stockout {
		out.Status = http.StatusInternalServerError // AWS counts a lack of capacity among its own errors
	}
	return out
}
