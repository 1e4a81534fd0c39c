package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultBookingTimeout is for how long booked capacity waits for its pods where
// nothing says otherwise.
const DefaultBookingTimeout = 10 * time.Minute

// DefaultStartTimeout is how long pods may be kept from starting where no CapacityPolicy is named.
const DefaultStartTimeout = 15 * time.Minute

// DefaultPolicy is the CapacityPolicy of checks and requests that name none.
const DefaultPolicy = "default"

// LooserError says that something is looser than a CapacityPolicy lets it be.
type LooserError struct {
	// Field of the policy, and the parameter of that name, with the Value that is refused.
	Field, Value string
	// Policy by name, empty for none, and what it allows.
	Policy, Bound string
	// Raise names the field by which an admin would allow more.
	Raise string
}

func (e *LooserError) Error() string {
	if e.Policy == "" {
		return fmt.Sprintf("%s is %q: without a CapacityPolicy it may be %s; give that, or have an admin create a CapacityPolicy called %s "+
			"with another %s",
			e.Field, e.Value, e.Bound, DefaultPolicy, e.Raise)
	}
	return fmt.Sprintf("%s is %q: CapacityPolicy %s lets it be %s; give that, or have an admin change %s of the CapacityPolicy",
		e.Field, e.Value, e.Policy, e.Bound, e.Raise)
}

// bounds say of a field what the policy allows, where the chosen spec is looser than
// that; empty where it is not. Raise is where an admin would allow more.
var bounds = []struct {
	field, raise string
	exceeded     func(chosen, policy *CapacityPolicySpec, may *CapacityOverrides) (bound string)
}{
	{"split", "spec.split", splitExceeded},
	{"requiredTopology", "spec.requiredTopology", topologyExceeded},
	{ParamCapacityTypes, "spec.overrides.capacityTypes", typesExceeded},
	{ParamCapacityTypes, "spec.overrides.fallbackAfter", waitsExceeded},
	{ParamFallbackAfter, "spec.overrides.fallbackAfter", waitsExceeded},
	{ParamMaxPricePerHour, "spec.overrides.maxPricePerHour", priceExceeded},
	{ParamBookingTimeout, "spec.overrides.bookingTimeout", bookingExceeded},
	{ParamStartWithin, "spec.overrides.startWithin", startExceeded},
	{ParamOnLateStart, "spec.onLateStart", lateExceeded},
	{ParamOnMachineLoss, "spec.onMachineLoss", lossExceeded},
}

// allows says why a field of the chosen spec is looser than the policy lets it be.
func (p *CapacityPolicy) allows(chosen *CapacityPolicySpec, value, field string) error {
	may := cmp.Or(p.Spec.Overrides, &CapacityOverrides{})
	for _, b := range bounds {
		if b.field != field {
			continue
		}
		if bound := b.exceeded(chosen, &p.Spec, may); bound != "" {
			return &LooserError{Field: field, Value: value, Policy: p.Name, Bound: bound, Raise: b.raise}
		}
	}
	return nil
}

// Admits says why the policy lets no job have the chosen spec, which another policy has
// given it; nil where it does.
func (p *CapacityPolicy) Admits(chosen *CapacityPolicySpec) error {
	for _, b := range bounds {
		if err := p.allows(chosen, cmp.Or(chosen.text(b.field), "unset"), b.field); err != nil {
			return err
		}
	}
	return nil
}

// text is the value of a field as a parameter would have it.
func (s *CapacityPolicySpec) text(field string) string {
	switch field {
	case "split":
		return string(cmp.Or(s.Split, SingleZone))
	case "requiredTopology":
		return s.RequiredTopology
	case ParamCapacityTypes:
		return listed(s.types())
	case ParamFallbackAfter:
		return waits(s)
	case ParamMaxPricePerHour:
		if s.MaxPricePerHour != nil {
			return s.MaxPricePerHour.String()
		}
	case ParamBookingTimeout:
		return s.booking().String()
	case ParamStartWithin:
		if s.StartWithin != nil {
			return s.StartWithin.Duration.String()
		}
	case ParamOnLateStart:
		return string(cmp.Or(s.OnLateStart, LateHold))
	case ParamOnMachineLoss:
		return string(s.OnMachineLoss)
	}
	return ""
}

func (s *CapacityPolicySpec) types() []CapacityType {
	if len(s.CapacityTypes) == 0 {
		return AllCapacityTypes
	}
	return s.CapacityTypes
}

func (s *CapacityPolicySpec) booking() time.Duration {
	if s.BookingTimeout == nil {
		return DefaultBookingTimeout
	}
	return s.BookingTimeout.Duration
}

// wait is how long a job does without the capacity type.
func (s *CapacityPolicySpec) wait(t CapacityType) time.Duration {
	if s.types()[0] == t {
		return 0
	}
	return s.FallbackAfter[t].Duration
}

func splitExceeded(chosen, policy *CapacityPolicySpec, _ *CapacityOverrides) string {
	widths := []Split{SingleGroup, SingleZone, AnyZone}
	width := func(s *CapacityPolicySpec) int { return slices.Index(widths, cmp.Or(s.Split, SingleZone)) }
	if width(chosen) > width(policy) {
		return policy.text("split") + " at the widest"
	}
	return ""
}

func topologyExceeded(chosen, policy *CapacityPolicySpec, _ *CapacityOverrides) string {
	if policy.RequiredTopology != "" && chosen.RequiredTopology != policy.RequiredTopology {
		return policy.RequiredTopology
	}
	return ""
}

func typesExceeded(chosen, policy *CapacityPolicySpec, may *CapacityOverrides) string {
	allowed := slices.Clone(policy.types())
	for _, t := range may.CapacityTypes {
		if !slices.Contains(allowed, t) {
			allowed = append(allowed, t)
		}
	}
	for _, t := range chosen.types() {
		if !slices.Contains(allowed, t) {
			return "some of " + listed(allowed)
		}
	}
	return ""
}

// waitsExceeded holds the chosen spec to the waits of the policy: the first of its
// capacity types never waits, so it may not be one that has to.
func waitsExceeded(chosen, policy *CapacityPolicySpec, may *CapacityOverrides) string {
	for _, t := range chosen.types() {
		least := policy.wait(t)
		if shortest, ok := may.FallbackAfter[t]; ok {
			least = shortest.Duration
		}
		switch {
		case chosen.wait(t) >= least:
		case chosen.types()[0] == t:
			return fmt.Sprintf("such that %s waits for %s, which the first of capacityTypes never does", t, least)
		default:
			return fmt.Sprintf("such that %s waits for %s or longer", t, least)
		}
	}
	return ""
}

func priceExceeded(chosen, policy *CapacityPolicySpec, may *CapacityOverrides) string {
	most := cmp.Or(may.MaxPricePerHour, policy.MaxPricePerHour)
	if most != nil && (chosen.MaxPricePerHour == nil || chosen.MaxPricePerHour.Cmp(*most) > 0) {
		return atMost(most)
	}
	return ""
}

func atMost(q *resource.Quantity) string { return q.String() + " at most" }

func bookingExceeded(chosen, policy *CapacityPolicySpec, may *CapacityOverrides) string {
	most := policy.booking()
	if may.BookingTimeout != nil {
		most = may.BookingTimeout.Duration
	}
	if chosen.booking() > most {
		return fmt.Sprintf("%s at most", most)
	}
	return ""
}

func startExceeded(chosen, policy *CapacityPolicySpec, may *CapacityOverrides) string {
	most := cmp.Or(may.StartWithin, policy.StartWithin)
	if most != nil && (chosen.StartWithin == nil || chosen.StartWithin.Duration > most.Duration) {
		return fmt.Sprintf("%s at most", most.Duration)
	}
	return ""
}

func lateExceeded(chosen, policy *CapacityPolicySpec, _ *CapacityOverrides) string {
	if policy.OnLateStart == LateDeactivate && chosen.OnLateStart != LateDeactivate {
		return string(LateDeactivate)
	}
	return ""
}

func lossExceeded(chosen, policy *CapacityPolicySpec, _ *CapacityOverrides) string {
	if policy.OnMachineLoss == LossRevoke && chosen.OnMachineLoss == LossEvent {
		return string(LossRevoke)
	}
	return ""
}

func listed(types []CapacityType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ",")
}

func waits(s *CapacityPolicySpec) string {
	var out []string
	for _, t := range slices.Sorted(maps.Keys(s.FallbackAfter)) {
		out = append(out, fmt.Sprintf("%s=%s", t, s.FallbackAfter[t].Duration))
	}
	return strings.Join(out, ",")
}
