package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

// GroupLine is a NodeGroup as Muster recorded it.
type GroupLine struct {
	Name         string `json:"name"`
	Provider     string `json:"provider"`
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone,omitempty"`
	// EndsAt is when the cloud ends all machines of the group.
	EndsAt     *time.Time `json:"endsAt,omitempty"`
	USDPerHour string     `json:"usdPerHour"`
	Machines   int32      `json:"machines"`
	Ready      int32      `json:"ready"`
	Booked     int32      `json:"booked"`
	Max        int32      `json:"max"`
	// ChanceOfOne and ChanceOfEight are the chances, in percent, that a launch of so many
	// machines succeeds as a whole now; that of eight is nil if the group may not have so many.
	ChanceOfOne   int    `json:"chanceOfOnePercent"`
	ChanceOfEight *int   `json:"chanceOfEightPercent,omitempty"`
	LastFailure   string `json:"lastFailure,omitempty"`
	// Backoff is the time until which launches of at least BackoffFrom machines wait: those that must be within one domain of
	// BackoffLevel, where that is set.
	Backoff      *time.Time `json:"backoff,omitempty"`
	BackoffFrom  int32      `json:"backoffFrom,omitempty"`
	BackoffLevel string     `json:"backoffLevel,omitempty"`
	// Troubles are conditions that need a person, and devices of its nodes with a taint.
	Troubles []string `json:"troubles,omitempty"`

	// BackoffUntil is Backoff as text, and BackoffLeft the duration until then.
	BackoffUntil string `json:"-"`
	BackoffLeft  string `json:"-"`
}

// GroupLines are all NodeGroups, by name.
func (p *Picture) GroupLines() []GroupLine {
	out, tainted := []GroupLine{}, p.taintedIn()
	for _, name := range slices.Sorted(maps.Keys(p.Groups)) {
		line := GroupLineOf(p.Groups[name], p.Now)
		line.Troubles = append(line.Troubles, tainted[name]...)
		out = append(out, line)
	}
	return out
}

// GroupLineOf reads a NodeGroup.
func GroupLineOf(ng *v1alpha1.NodeGroup, now time.Time) GroupLine {
	g := nodegroups.GroupFrom(ng, ng.Status, int(ng.Status.Machines))
	out := GroupLine{
		Name: ng.Name, Provider: string(ng.Spec.Provider), CapacityType: string(ng.Spec.CapacityType), Zone: ng.Spec.Zone,
		USDPerHour: priceOf(&g), Machines: ng.Status.Machines, Ready: ng.Status.ReadyNodes,
		Booked: ng.Status.BookedNodes, Max: ng.Spec.MaxNodes, ChanceOfOne: g.Chance(1, "", now) / 10,
	}
	if ng.Spec.MaxNodes >= 8 {
		out.ChanceOfEight = new(g.Chance(8, "", now) / 10)
	}
	if !g.EndsAt.IsZero() {
		out.EndsAt = &g.EndsAt
	}
	if failure := lastFailure(ng); failure != nil {
		out.LastFailure = fmt.Sprintf("%s, %s ago", failure.Class, ago(now, failure.Time.Time))
	}
	for i := range ng.Status.Backoffs {
		b := &ng.Status.Backoffs[i]
		if until := b.Until.Time; now.Before(until) && (out.Backoff == nil || out.Backoff.Before(until)) {
			out.Backoff, out.BackoffFrom, out.BackoffLevel = &until, b.AtLeast, b.Level
			out.BackoffUntil, out.BackoffLeft = in(now, until), duration.HumanDuration(until.Sub(now))
			if b.AtLeast > 1 {
				out.BackoffUntil += fmt.Sprintf(", for %d or more machines", b.AtLeast)
			}
			if b.Level != "" {
				out.BackoffUntil += " within one domain of " + b.Level
			}
		}
	}
	for _, name := range []string{v1alpha1.ConditionNodesPresent, v1alpha1.ConditionScaleDownAllowed, v1alpha1.ConditionListed,
		v1alpha1.ConditionSound, v1alpha1.ConditionTemplateMatches, v1alpha1.ConditionObtainable} {
		// Backoffs are above.
		if c := apimeta.FindStatusCondition(ng.Status.Conditions, name); c != nil && c.Status == metav1.ConditionFalse &&
			(name != v1alpha1.ConditionObtainable || out.Backoff == nil) {
			out.Troubles = append(out.Troubles, fmt.Sprintf("not %s: %s", name, c.Message))
		}
	}
	return out
}

// priceOf a machine of the group, in USD per hour.
func priceOf(g *nodegroups.Group) string {
	if g.PriceUnknown {
		return "unknown"
	}
	return text.USD(g.MicroUSDPerHour)
}
