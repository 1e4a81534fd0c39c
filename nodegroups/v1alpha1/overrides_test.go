package v1alpha1

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func lasting(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// strict is a policy with a bound in every field that can be overridden.
func strict(overrides *CapacityOverrides) *CapacityPolicy {
	return &CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "strict"}, Spec: CapacityPolicySpec{
		CapacityTypes: []CapacityType{Reserved, Spot}, FallbackAfter: map[CapacityType]metav1.Duration{Spot: {Duration: 30 * time.Minute}},
		MaxPricePerHour: new(resource.MustParse("20")), BookingTimeout: lasting(5 * time.Minute), StartWithin: lasting(time.Hour),
		OnLateStart: LateDeactivate, OnMachineLoss: LossRevoke, Overrides: overrides,
	}}
}

// TestOverridesOnlyTighten: each parameter on both sides of its bound, with nothing said
// by the admin and with a bound that is wider.
func TestOverridesOnlyTighten(t *testing.T) {
	wide := &CapacityOverrides{
		CapacityTypes: []CapacityType{OnDemand}, FallbackAfter: map[CapacityType]metav1.Duration{Spot: {Duration: 10 * time.Minute}},
		MaxPricePerHour: new(resource.MustParse("50")), BookingTimeout: lasting(time.Hour), StartWithin: lasting(2 * time.Hour),
	}
	for _, c := range []struct {
		name, value string
		// by says why a policy without overrides refuses it, wider why one with wide does;
		// empty where it is allowed.
		by, wider string
	}{
		{"capacityTypes", "Reserved", "", ""},
		{"capacityTypes", "Reserved,Spot", "", ""},
		{"capacityTypes", "Reserved,OnDemand", `capacityTypes is "Reserved,OnDemand": CapacityPolicy strict lets it be some of Reserved,Spot; give that, or have an admin change spec.overrides.capacityTypes`, ""},
		{"capacityTypes", "Spot", "such that Spot waits for 30m0s", "such that Spot waits for 10m0s"},
		{"fallbackAfter", "Spot=1h", "", ""},
		{"fallbackAfter", "Spot=10m", "such that Spot waits for 30m0s", ""},
		{"fallbackAfter", "Spot=0s", "such that Spot waits for 30m0s", "such that Spot waits for 10m0s"},
		{"maxPricePerHour", "19.5", "", ""},
		{"maxPricePerHour", "20", "", ""},
		{"maxPricePerHour", "21", `maxPricePerHour is "21": CapacityPolicy strict lets it be 20 at most`, ""},
		{"maxPricePerHour", "1000", "20 at most", "50 at most; give that, or have an admin change spec.overrides.maxPricePerHour"},
		{"bookingTimeout", "1m", "", ""},
		{"bookingTimeout", "10m", "5m0s at most", ""},
		{"bookingTimeout", "87600h", "5m0s at most", "1h0m0s at most"},
		{"startWithin", "30m", "", ""},
		{"startWithin", "90m", "1h0m0s at most", ""},
		{"startWithin", "900h", "1h0m0s at most", "2h0m0s at most"},
		{"onLateStart", "Deactivate", "", ""},
		{"onLateStart", "Hold", "lets it be Deactivate", "lets it be Deactivate"},
		{"onMachineLoss", "Event", "lets it be Revoke", "lets it be Revoke"},
	} {
		for _, side := range []struct {
			policy *CapacityPolicy
			want   string
		}{{strict(nil), c.by}, {strict(wide), c.wider}} {
			get := func(name string) string {
				if name == c.name {
					return c.value
				}
				return ""
			}
			got, err := side.policy.Overridden(get)
			var looser *LooserError
			if side.want == "" && err != nil || side.want != "" && (!errors.As(err, &looser) || !strings.Contains(err.Error(), side.want)) {
				t.Errorf("%s=%s: error %v, want %q", c.name, c.value, err, side.want)
			}
			want, _ := side.policy.Spec.With(get)
			if side.want != "" {
				want = side.policy.Spec
			}
			if got.text(c.name) != want.text(c.name) {
				t.Errorf("%s=%s gives %q, want %q", c.name, c.value, got.text(c.name), want.text(c.name))
			}
		}
	}
}

// TestWhatIsRefusedIsLeftOut: the rest of the parameters counts.
func TestWhatIsRefusedIsLeftOut(t *testing.T) {
	got, err := strict(nil).Overridden(func(name string) string {
		return map[string]string{"bookingTimeout": "24h", "maxPricePerHour": "10", "onLateStart": "Panic"}[name]
	})
	if err == nil || !strings.Contains(err.Error(), "bookingTimeout") {
		t.Errorf("the error tells of the first: %v", err)
	}
	if got.BookingTimeout.Duration != 5*time.Minute || got.MaxPricePerHour.String() != "10" || got.OnLateStart != LateDeactivate {
		t.Errorf("got %+v", got)
	}
}

// TestWithoutAPolicy: a booking ends when bookings do by default.
func TestWithoutAPolicy(t *testing.T) {
	for value, refused := range map[string]bool{"10m": false, "11m": true} {
		_, err := (&CapacityPolicy{}).Overridden(func(name string) string {
			return map[string]string{"bookingTimeout": value, "maxPricePerHour": "1000", "capacityTypes": "OnDemand"}[name]
		})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "have an admin create a CapacityPolicy called default") {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// TestAnotherPolicyIsHeldToTheSameBounds, those that no parameter has included.
func TestAnotherPolicyIsHeldToTheSameBounds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*CapacityPolicySpec)
		want   string
	}{
		"the same": {func(*CapacityPolicySpec) {}, ""},
		"tighter in each": {func(s *CapacityPolicySpec) {
			s.Split, s.CapacityTypes, s.RequiredTopology = SingleGroup, []CapacityType{Reserved}, "rack"
		}, ""},
		"without a price":           {func(s *CapacityPolicySpec) { s.MaxPricePerHour = nil }, `maxPricePerHour is "unset"`},
		"with any capacity type":    {func(s *CapacityPolicySpec) { s.CapacityTypes = nil }, `capacityTypes is "Reserved,Spot,OnDemand"`},
		"without a wait":            {func(s *CapacityPolicySpec) { s.FallbackAfter = nil }, "such that Spot waits"},
		"with bookings of 10m":      {func(s *CapacityPolicySpec) { s.BookingTimeout = nil }, `bookingTimeout is "10m0s"`},
		"over zones":                {func(s *CapacityPolicySpec) { s.Split = AnyZone }, "SingleZone at the widest"},
		"without a time to start":   {func(s *CapacityPolicySpec) { s.StartWithin = nil }, `startWithin is "unset"`},
		"with another late start":   {func(s *CapacityPolicySpec) { s.OnLateStart = "" }, `onLateStart is "Hold"`},
		"silent on lost machines":   {func(s *CapacityPolicySpec) { s.OnMachineLoss = "" }, ""},
		"that tells of lost alone":  {func(s *CapacityPolicySpec) { s.OnMachineLoss = LossEvent }, `onMachineLoss is "Event"`},
		"with wide overrides alone": {func(s *CapacityPolicySpec) { s.Overrides = &CapacityOverrides{BookingTimeout: lasting(24 * time.Hour)} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			other := strict(nil).Spec.DeepCopy()
			c.change(other)
			err := strict(nil).Admits(other)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	racks := strict(nil)
	racks.Spec.RequiredTopology = "rack"
	if err := racks.Admits(&strict(nil).Spec); err == nil || !strings.Contains(err.Error(), "requiredTopology") {
		t.Errorf("a policy without the topology: %v", err)
	}
}
