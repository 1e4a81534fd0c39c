package discover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// AWS begins to terminate the machines of a Capacity Block so long before its end, and those of
// UltraServers earlier.
const (
	blockEnd       = 30 * time.Minute
	ultraServerEnd = time.Hour
)

// ultraServers begin the names of the instance types of UltraServers.
var ultraServers = []string{"p6e-", "trn2u."}

func isBlock(r *ec2types.CapacityReservation) bool {
	return r.ReservationType == ec2types.CapacityReservationTypeCapacityBlock
}

// blockEndsAt is when the machines of a reservation end with it; nil for those that go on.
func blockEndsAt(r *ec2types.CapacityReservation) *metav1.Time {
	if !isBlock(r) || r.EndDate == nil {
		return nil
	}
	before := blockEnd
	for _, prefix := range ultraServers {
		if strings.HasPrefix(api.Deref(r.InstanceType), prefix) {
			before = ultraServerEnd
		}
	}
	return &metav1.Time{Time: r.EndDate.Add(-before)}
}

// usageClass is the usage class of AWS for a capacity type.
func usageClass(c *candidate, capacityType v1alpha1.CapacityType) ec2types.UsageClassType {
	switch {
	case c.block:
		return ec2types.UsageClassTypeCapacityBlock
	case capacityType == v1alpha1.Spot:
		return ec2types.UsageClassTypeSpot
	default:
		return ec2types.UsageClassTypeOnDemand // what is reserved is on demand, too
	}
}

// sells reports whether machines of the type can be bought so. UltraServers, for example, come in Capacity Blocks only.
func sells(t *ec2types.InstanceTypeInfo, class ec2types.UsageClassType) bool {
	return len(t.SupportedUsageClasses) == 0 || slices.Contains(t.SupportedUsageClasses, class)
}

func saySold(t *ec2types.InstanceTypeInfo) string {
	var classes []string
	for _, c := range t.SupportedUsageClasses {
		classes = append(classes, string(c))
	}
	return strings.Join(classes, " or ")
}

// isOver reports whether a reservation has ended. Machines that consumed it go on without.
func isOver(r *ec2types.CapacityReservation) bool {
	return r.State == ec2types.CapacityReservationStateExpired || r.State == ec2types.CapacityReservationStateCancelled
}

// reservationRefused says why the reservation that a candidate is launched into cannot be used;
// empty if it can.
func (d *discovery) reservationRefused(c *candidate) string {
	if c.reservation == "" {
		return ""
	}
	r, ok := d.reservations[c.reservation]
	switch ends := blockEndsAt(&r); {
	case !ok || isOver(&r) && c.block:
		return fmt.Sprintf("its reservation %s is not active", c.reservation)
	case isBlock(&r) && !c.block:
		return fmt.Sprintf("its reservation %s is a Capacity Block, and its launch template is for others: set its market type to capacity-block",
			c.reservation)
	case c.block && !isBlock(&r):
		return fmt.Sprintf("its reservation %s is no Capacity Block: remove the market options of its launch template", c.reservation)
	case r.State == ec2types.CapacityReservationStateScheduled:
		return fmt.Sprintf("its reservation %s begins at %s and can be used from then on", c.reservation,
			api.Deref(r.StartDate).UTC().Format(time.RFC3339))
	case ends != nil && !d.api.Time(d.clock.Now()).Before(ends.Time):
		return fmt.Sprintf("its Capacity Block %s is over: AWS ended its machines at %s", c.reservation, ends.UTC().Format(time.RFC3339))
	}
	return ""
}
