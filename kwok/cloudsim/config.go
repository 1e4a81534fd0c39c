package cloudsim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what a World contains. All times in it count from the world's
// beginning; the same seed gives the same mishaps.
type Config struct {
	// Seed of what is random in faults of calls; each pool has its own.
	Seed int64 `json:"seed,omitempty"`
	// Pools of machines. Of what is in no pool, the clouds have none.
	Pools []Pool `json:"pools,omitempty"`
	// Quotas of the account. What has none has no bound.
	Quotas []Quota `json:"quotas,omitempty"`
	// Calls are the faults of calls: each call gets the first that hits it.
	Calls []CallFault `json:"calls,omitempty"`
	// Throttles bound how often calls may come.
	Throttles []Throttle `json:"throttles,omitempty"`
	// Terminations are the mishaps of terminations: each gets the first that hits it.
	Terminations []TerminationFault `json:"terminations,omitempty"`
	// Stops are the machines that a cloud stops by itself: each gets the first that hits it.
	Stops []Stop `json:"stops,omitempty"`
	// NodesStay are the machines whose Node objects outlive them, as in a cluster without a
	// cloud-controller-manager: their kubelet is silent, and nothing deletes them.
	NodesStay []NodeFault `json:"nodesStay,omitempty"`
	// Lag is how long lists and lookups do not return a new instance, as in clouds that are eventually consistent.
	Lag metav1.Duration `json:"lag,omitempty"`
	// TagLag is how long lists do not show the tags and labels that an instance was given, whether they were given with the launch or
	// later: clouds keep them apart from their instances.
	TagLag metav1.Duration `json:"tagLag,omitempty"`
}

// PoolKey names a pool: machines of one type, in one zone, of one capacity type.
type PoolKey struct {
	Cloud        v1alpha1.Provider     `json:"cloud"`
	Type         string                `json:"type"`
	Zone         string                `json:"zone"`
	CapacityType v1alpha1.CapacityType `json:"capacityType"`
}

func (k PoolKey) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", k.Cloud, k.Type, k.Zone, k.CapacityType.LabelValue())
}

// Pool is a pool with its script and its prices.
type Pool struct {
	PoolKey `json:",inline"`
	Script  v1alpha1.KwokPool `json:"script,omitempty"`
	// Prices by the time from which they hold, the earliest first.
	Prices []Price `json:"prices,omitempty"`
}

// Price of one machine.
type Price struct {
	From metav1.Duration `json:"from,omitempty"`
	// PerHour in USD.
	PerHour resource.Quantity `json:"perHour"`
}

// Quota is how many machines and reserved places of a capacity type an account may have in
// the zones whose names begin with Region.
type Quota struct {
	Cloud        v1alpha1.Provider     `json:"cloud"`
	Region       string                `json:"region,omitempty"`
	CapacityType v1alpha1.CapacityType `json:"capacityType"`
	Machines     int                   `json:"machines"`
}

func (q Quota) covers(k PoolKey) bool {
	return q.Cloud == k.Cloud && q.CapacityType == k.CapacityType && strings.HasPrefix(k.Zone, q.Region)
}

// CallFaultType is a way in which a call goes wrong.
type CallFaultType string

const (
	// CallRefused: the call has no effect and gets the given error.
	CallRefused CallFaultType = "Refused"
	// ReplyLost: the call has its effect, and the connection breaks.
	ReplyLost CallFaultType = "ReplyLost"
	// CallLost: the call has no effect, and the connection breaks.
	CallLost CallFaultType = "CallLost"
	// CallUnanswered: the call has no effect, and no answer ever comes, as where a network lets
	// nothing through to the service.
	CallUnanswered CallFaultType = "Unanswered"
	// CallLate: the connection breaks, and the call has its effect when the delay has passed, as one
	// that takes longer than its caller waits.
	CallLate CallFaultType = "Late"
	// CallSlow: the call is answered when the delay has passed, and has its effect half-way, so that others may see it before
	// its caller.
	CallSlow CallFaultType = "Slow"
	// OperationFailed: the call is accepted, and its operation ends with the given error and
	// without effect. Only for Google Cloud, whose changes are operations.
	OperationFailed CallFaultType = "OperationFailed"
)

var callFaults = []CallFaultType{CallRefused, ReplyLost, CallLost, CallUnanswered, CallLate, CallSlow, OperationFailed}

// CallFault is a mishap of calls.
type CallFault struct {
	Cloud v1alpha1.Provider `json:"cloud"`
	// Action is the call as the cloud names it, for example CreateFleet or
	// instances.bulkInsert; empty for all.
	Action string        `json:"action,omitempty"`
	Type   CallFaultType `json:"type"`
	// From and Until bound the time; an Until of zero means for ever.
	From  metav1.Duration `json:"from,omitempty"`
	Until metav1.Duration `json:"until,omitempty"`
	// Calls that are hit, by their place among all of the action from 0; Percent is
	// the share that is hit where Calls is empty. Neither means all.
	Calls   []int64 `json:"calls,omitempty"`
	Percent int     `json:"percent,omitempty"`
	// Error of calls that are refused, and of operations that fail.
	Error *Error `json:"error,omitempty"`
	// Delay of calls that are late or slow.
	Delay metav1.Duration `json:"delay,omitempty"`
}

// TerminationFault is a mishap of terminations, which are accepted all the same.
type TerminationFault struct {
	Cloud v1alpha1.Provider `json:"cloud"`
	Share `json:",inline"`
	// Delay is how long the machine goes on, as while its system shuts down; nil for ever: the
	// cloud never carries the termination out.
	Delay *metav1.Duration `json:"delay,omitempty"`
}

// Stop is that a cloud stops machines and starts them again, as it does before maintenance
// or for a retirement.
type Stop struct {
	Cloud v1alpha1.Provider `json:"cloud"`
	Share `json:",inline"`
	// After is how long the machine has run by then, For how long it is stopped; zero for ever.
	After metav1.Duration `json:"after"`
	For   metav1.Duration `json:"for,omitempty"`
	// Notice is how long before that the node shows it, by the labels and taints of the cloud's agents; zero for no notice.
	Notice metav1.Duration `json:"notice,omitempty"`
}

// NodeFault is a mishap of nodes.
type NodeFault struct {
	Cloud v1alpha1.Provider `json:"cloud"`
	Share `json:",inline"`
}

// Share is a part of a series, such as all terminations. Neither field means all of it.
type Share struct {
	// Places of the calls that fail, counted from 0.
	Places []int64 `json:"places,omitempty"`
	// Percent is the share that is hit where Places is empty.
	Percent int `json:"percent,omitempty"`
}

// hits reports whether a place of the series of that name is hit. It depends on nothing else.
func (s Share) hits(seed int64, series string, place int64) bool {
	switch {
	case len(s.Places) > 0:
		return slices.Contains(s.Places, place)
	case s.Percent > 0:
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", seed, series, place))
		return binary.BigEndian.Uint64(sum[:])%100 < uint64(s.Percent)
	default:
		return true
	}
}

// Error is a cloud's answer to a call that it refuses.
type Error struct {
	// Status is the HTTP status; 0 leaves it to the front end.
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Throttle is a token bucket of calls.
type Throttle struct {
	Cloud v1alpha1.Provider `json:"cloud"`
	// Action is the call as the cloud names it; empty for all of the cloud together.
	Action    string  `json:"action,omitempty"`
	Burst     int     `json:"burst"`
	PerSecond float64 `json:"perSecond"`
}

// Validate says what is wrong, with the path of the field.
func (c *Config) Validate() error {
	seen := map[PoolKey]bool{}
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d]", i)
		switch {
		case p.Cloud != v1alpha1.ProviderAWS && p.Cloud != v1alpha1.ProviderGCP:
			return fmt.Errorf("%s.cloud is %q: it must be aws or gcp", at, p.Cloud)
		case p.Type == "":
			return fmt.Errorf("%s.type is missing: give a machine type, for example p5.48xlarge", at)
		case p.Zone == "":
			return fmt.Errorf("%s.zone is missing: give a zone, for example us-east-1a", at)
		case !slices.Contains(capacityTypes, p.CapacityType):
			return fmt.Errorf("%s.capacityType is %q: it must be Reserved, Spot or OnDemand", at, p.CapacityType)
		case seen[p.PoolKey]:
			return fmt.Errorf("%s is the pool %s once more: a pool is listed once", at, p.PoolKey)
		}
		seen[p.PoolKey] = true
		for j, price := range p.Prices {
			if j > 0 && price.From.Duration <= p.Prices[j-1].From.Duration {
				return fmt.Errorf("%s.prices[%d].from is %s: prices are listed by their time, the earliest first", at, j, price.From.Duration)
			}
			if price.PerHour.Sign() < 0 {
				return fmt.Errorf("%s.prices[%d].perHour is %s: it must not be negative", at, j, price.PerHour.String())
			}
		}
	}
	for i, f := range c.Calls {
		at := fmt.Sprintf("calls[%d]", i)
		switch {
		case !slices.Contains(callFaults, f.Type):
			return fmt.Errorf("%s.type is %q: it must be Refused, ReplyLost, CallLost, Unanswered, Late, Slow or OperationFailed", at, f.Type)
		case (f.Type == CallRefused || f.Type == OperationFailed) != (f.Error != nil):
			return fmt.Errorf("%s.error belongs to faults of types Refused and OperationFailed, and only to them", at)
		case f.Type == OperationFailed && f.Cloud != v1alpha1.ProviderGCP:
			return fmt.Errorf("%s.type is OperationFailed, and cloud %s has no operations: use it for gcp", at, f.Cloud)
		case (f.Type == CallLate || f.Type == CallSlow) != (f.Delay.Duration > 0):
			return fmt.Errorf("%s.delay belongs to faults of types Late and Slow, and they need it", at)
		case f.Percent < 0 || f.Percent > 100:
			return fmt.Errorf("%s.percent is %d: it must be between 0 and 100", at, f.Percent)
		}
	}
	for i, f := range c.Terminations {
		if f.Percent < 0 || f.Percent > 100 {
			return fmt.Errorf("terminations[%d].percent is %d: it must be between 0 and 100", i, f.Percent)
		}
	}
	for i, s := range c.Stops {
		if s.Percent < 0 || s.Percent > 100 {
			return fmt.Errorf("stops[%d].percent is %d: it must be between 0 and 100", i, s.Percent)
		}
	}
	for i, f := range c.NodesStay {
		if f.Percent < 0 || f.Percent > 100 {
			return fmt.Errorf("nodesStay[%d].percent is %d: it must be between 0 and 100", i, f.Percent)
		}
	}
	for i, t := range c.Throttles {
		if t.Burst < 1 || t.PerSecond <= 0 {
			return fmt.Errorf("throttles[%d]: burst is %d and perSecond %g: both must be greater than 0", i, t.Burst, t.PerSecond)
		}
	}
	return nil
}

var capacityTypes = []v1alpha1.CapacityType{v1alpha1.Reserved, v1alpha1.Spot, v1alpha1.OnDemand}

// microUSD is the price of an hour in millionths of a USD, at that time from the
// world's beginning, and when the next one holds; zero for never.
func (p *Pool) microUSD(at time.Duration) (perHour int64, next time.Duration) {
	for i := range p.Prices {
		if p.Prices[i].From.Duration > at {
			return perHour, p.Prices[i].From.Duration
		}
		perHour = nodegroups.MicroUSD(&p.Prices[i].PerHour)
	}
	return perHour, 0
}
