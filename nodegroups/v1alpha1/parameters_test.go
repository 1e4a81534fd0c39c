package v1alpha1

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParametersComeBeforeThePolicy(t *testing.T) {
	price := resource.MustParse("100")
	policy := CapacityPolicySpec{
		Split: AnyZone, CapacityTypes: []CapacityType{Spot}, MaxPricePerHour: &price,
		FallbackAfter: map[CapacityType]metav1.Duration{OnDemand: {Duration: time.Hour}}, OnLateStart: LateHold,
	}
	for name, c := range map[string]struct {
		parameters map[string]string
		want       func(*CapacityPolicySpec)
		err        string
	}{
		"none":           {want: func(*CapacityPolicySpec) {}},
		"capacity types": {parameters: map[string]string{"capacityTypes": "Spot, OnDemand"}, want: func(s *CapacityPolicySpec) { s.CapacityTypes = []CapacityType{Spot, OnDemand} }},
		"a price":        {parameters: map[string]string{"maxPricePerHour": "12.50"}, want: func(s *CapacityPolicySpec) { s.MaxPricePerHour = new(resource.MustParse("12.50")) }},
		"a start within": {parameters: map[string]string{"startWithin": "2h", "onLateStart": "Deactivate"}, want: func(s *CapacityPolicySpec) {
			s.StartWithin, s.OnLateStart = &metav1.Duration{Duration: 2 * time.Hour}, LateDeactivate
		}},
		"waits": {parameters: map[string]string{"fallbackAfter": "Spot=5m,OnDemand=1h"}, want: func(s *CapacityPolicySpec) {
			s.FallbackAfter = map[CapacityType]metav1.Duration{Spot: {Duration: 5 * time.Minute}, OnDemand: {Duration: time.Hour}}
		}},
		"no such type":       {parameters: map[string]string{"capacityTypes": "spot"}, err: `capacityTypes is "spot": give some of Reserved, Spot and OnDemand`},
		"a type twice":       {parameters: map[string]string{"capacityTypes": "Spot,Spot"}, err: `capacityTypes is "Spot,Spot"`},
		"a negative price":   {parameters: map[string]string{"maxPricePerHour": "-1"}, err: `maxPricePerHour is "-1": give an amount of USD`},
		"a price in euros":   {parameters: map[string]string{"maxPricePerHour": "1 EUR"}, err: "maxPricePerHour"},
		"a wait for nothing": {parameters: map[string]string{"fallbackAfter": "30m"}, err: `fallbackAfter is "30m": give capacity types`},
		"a negative wait":    {parameters: map[string]string{"fallbackAfter": "OnDemand=-1s"}, err: "fallbackAfter"},
		"no time to start":   {parameters: map[string]string{"startWithin": "0s"}, err: `startWithin is "0s": give a duration greater than 0`},
		"another reaction":   {parameters: map[string]string{"onLateStart": "Panic"}, err: `onLateStart is "Panic": give Hold or Deactivate`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := policy.With(func(name string) string { return c.parameters[name] })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			want := *policy.DeepCopy()
			c.want(&want)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCapacityTypesWait(t *testing.T) {
	after := func(waits map[CapacityType]time.Duration) map[CapacityType]metav1.Duration {
		out := map[CapacityType]metav1.Duration{}
		for k, v := range waits {
			out[k] = metav1.Duration{Duration: v}
		}
		return out
	}
	for name, c := range map[string]struct {
		types  []CapacityType
		waits  map[CapacityType]time.Duration
		waited time.Duration
		want   []CapacityType
		next   time.Duration
	}{
		"no waits":                  {want: []CapacityType{Reserved, Spot, OnDemand}},
		"spot is insisted on":       {waits: map[CapacityType]time.Duration{OnDemand: 30 * time.Minute}, waited: 10 * time.Minute, want: []CapacityType{Reserved, Spot}, next: 20 * time.Minute},
		"until it is over":          {waits: map[CapacityType]time.Duration{OnDemand: 30 * time.Minute}, waited: 30 * time.Minute, want: []CapacityType{Reserved, Spot, OnDemand}},
		"the next one of two":       {waits: map[CapacityType]time.Duration{Spot: time.Minute, OnDemand: time.Hour}, want: []CapacityType{Reserved}, next: time.Minute},
		"the first one never waits": {types: []CapacityType{OnDemand, Spot}, waits: map[CapacityType]time.Duration{OnDemand: time.Hour, Spot: time.Minute}, want: []CapacityType{OnDemand}, next: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			policy := CapacityPolicySpec{CapacityTypes: c.types, FallbackAfter: after(c.waits)}
			got, next := policy.AllowedAfter(c.waited)
			if !slices.Equal(got, c.want) || next != c.next {
				t.Errorf("%v, next in %s; want %v, next in %s", got, next, c.want, c.next)
			}
		})
	}
}
