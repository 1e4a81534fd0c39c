package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Parameters of a ProvisioningRequest that come before the field of the same name
// of its CapacityPolicy.
const (
	// ParamCapacityTypes lists capacity types, the most wanted first: Spot,OnDemand.
	ParamCapacityTypes = "capacityTypes"
	// ParamMaxPricePerHour is an amount of USD: 12.50.
	ParamMaxPricePerHour = "maxPricePerHour"
	// ParamBookingTimeout is a duration: 20m.
	ParamBookingTimeout = "bookingTimeout"
	// ParamOnMachineLoss is a LossReaction.
	ParamOnMachineLoss = "onMachineLoss"
	// ParamFallbackAfter has a wait for each capacity type that waits: OnDemand=30m.
	ParamFallbackAfter = "fallbackAfter"
	// ParamStartWithin is a duration: 2h.
	ParamStartWithin = "startWithin"
	// ParamOnLateStart is a LateReaction.
	ParamOnLateStart = "onLateStart"
)

// overrides are the parameters that come before fields, in the order in which they
// are read.
var overrides = []struct {
	name, want string
	set        func(*CapacityPolicySpec, string) bool
}{
	{ParamCapacityTypes, "some of Reserved, Spot and OnDemand, each once, with commas between", setCapacityTypes},
	{ParamMaxPricePerHour, "an amount of USD that is not negative, such as 12.50", setMaxPrice},
	{ParamBookingTimeout, "a duration greater than 0, such as 20m", setBookingTimeout},
	{ParamOnMachineLoss, "Event or Revoke", setOnMachineLoss},
	{ParamFallbackAfter, "capacity types with how long each waits, such as OnDemand=30m", setFallback},
	{ParamStartWithin, "a duration greater than 0, such as 2h", setStartWithin},
	{ParamOnLateStart, "Hold or Deactivate", setOnLateStart},
}

// With is the policy with what parameters say in place of its fields; get returns
// the value of a parameter, empty where there is none. The error names the
// parameter, its value and what it may be.
func (s CapacityPolicySpec) With(get func(parameter string) string) (CapacityPolicySpec, error) {
	for _, p := range overrides {
		if v := get(p.name); v != "" && !p.set(&s, v) {
			return s, fmt.Errorf("%s is %q: give %s", p.name, v, p.want)
		}
	}
	return s, nil
}

// Overridden is the policy's spec with what parameters say in place of its fields, as far
// as it lets them. What they may not say is left out, and the error is about the first of
// that: a *LooserError where the policy forbids it, any other where it makes no sense.
func (p *CapacityPolicy) Overridden(get func(parameter string) string) (CapacityPolicySpec, error) {
	out := p.Spec
	var first error
	for _, o := range overrides {
		next, err := out.With(func(name string) string {
			if name != o.name {
				return ""
			}
			return get(name)
		})
		if err == nil && get(o.name) != "" {
			err = p.allows(&next, get(o.name), o.name)
		}
		if err == nil {
			out = next
		} else if first == nil {
			first = err
		}
	}
	return out, first
}

func setCapacityTypes(s *CapacityPolicySpec, v string) bool {
	s.CapacityTypes = nil
	for name := range strings.SplitSeq(v, ",") {
		t := CapacityType(strings.TrimSpace(name))
		if !t.known() || slices.Contains(s.CapacityTypes, t) {
			return false
		}
		s.CapacityTypes = append(s.CapacityTypes, t)
	}
	return true
}

func setMaxPrice(s *CapacityPolicySpec, v string) bool {
	price, err := resource.ParseQuantity(v)
	s.MaxPricePerHour = &price
	return err == nil && price.Sign() >= 0
}

func setBookingTimeout(s *CapacityPolicySpec, v string) bool {
	timeout, err := time.ParseDuration(v)
	s.BookingTimeout = &metav1.Duration{Duration: timeout}
	return err == nil && timeout > 0
}

func setOnMachineLoss(s *CapacityPolicySpec, v string) bool {
	s.OnMachineLoss = LossReaction(v)
	return s.OnMachineLoss == LossEvent || s.OnMachineLoss == LossRevoke
}

func setFallback(s *CapacityPolicySpec, v string) bool {
	s.FallbackAfter = map[CapacityType]metav1.Duration{}
	for part := range strings.SplitSeq(v, ",") {
		name, after, _ := strings.Cut(strings.TrimSpace(part), "=")
		wait, err := time.ParseDuration(after)
		if err != nil || wait < 0 || !CapacityType(name).known() {
			return false
		}
		s.FallbackAfter[CapacityType(name)] = metav1.Duration{Duration: wait}
	}
	return true
}

func setStartWithin(s *CapacityPolicySpec, v string) bool {
	within, err := time.ParseDuration(v)
	s.StartWithin = &metav1.Duration{Duration: within}
	return err == nil && within > 0
}

func setOnLateStart(s *CapacityPolicySpec, v string) bool {
	s.OnLateStart = LateReaction(v)
	return s.OnLateStart == LateHold || s.OnLateStart == LateDeactivate
}

// AllCapacityTypes are those of a policy that names none, the most wanted first.
var AllCapacityTypes = []CapacityType{Reserved, Spot, OnDemand}

func (c CapacityType) known() bool { return slices.Contains(AllCapacityTypes, c) }

// AllowedAfter lists the capacity types that a job may use that has waited for so
// long, the most wanted first, and says how much longer the next one takes; 0 is
// never. The most wanted one never waits.
func (s *CapacityPolicySpec) AllowedAfter(waited time.Duration) (allowed []CapacityType, next time.Duration) {
	types := s.CapacityTypes
	if len(types) == 0 {
		types = AllCapacityTypes
	}
	for i, t := range types {
		if left := s.FallbackAfter[t].Duration - waited; i == 0 || left <= 0 {
			allowed = append(allowed, t)
		} else if next == 0 || left < next {
			next = left
		}
	}
	return allowed, next
}
