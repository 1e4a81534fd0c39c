package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// groupLines are the NodeGroups by name.
type groupLines []groupLine

// groupLine is one NodeGroup, as Muster has written it down.
type groupLine struct {
	Name       string `json:"name"`
	Provider   string `json:"provider"`
	Market     string `json:"market"`
	Zone       string `json:"zone,omitempty"`
	USDPerHour string `json:"usdPerHour"`
	Machines   int32  `json:"machines"`
	Ready      int32  `json:"ready"`
	Booked     int32  `json:"booked"`
	Max        int32  `json:"max"`
	// ChanceOfOne and ChanceOfEight are the chances that a launch of so many machines
	// comes whole now, in percent.
	ChanceOfOne   int    `json:"chanceOfOnePercent"`
	ChanceOfEight int    `json:"chanceOfEightPercent"`
	LastFailure   string `json:"lastFailure,omitempty"`
	// Backoff is until when launches of BackoffFrom machines and more wait.
	Backoff     *time.Time `json:"backoff,omitempty"`
	BackoffFrom int32      `json:"backoffFrom,omitempty"`
	// Troubles are what a person should see to.
	Troubles []string `json:"troubles,omitempty"`

	backoff string
}

func newCapacityCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "capacity",
		Short: "What machines there are and could be: price, chance, backoff, troubles",
		Long: `capacity lists the NodeGroups: what a machine costs, how many there are, are ready
and booked, how likely a launch of one machine and of eight comes whole, when the
last launch failed and how long the group is left alone for it, and what a person
should see to.`,
		Example: `  kubectl muster capacity -o wide
  kubectl muster capacity --watch`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.answer(command, o.capacity) },
	}
	o.addOutput(command)
	return command
}

func (o *options) capacity(ctx context.Context) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	r, err := read(ctx, kube, namespace, groupKinds...)
	if err != nil {
		return nil, err
	}
	if err := r.lacks(groupKinds); err != nil {
		return nil, err
	}
	if len(r.missing) > 0 {
		return nil, fmt.Errorf("you may not see the groups of machines. What you may not do:\n  - %s", strings.Join(lacking(r.missing), "\n  - "))
	}
	out := groupLines{}
	for _, g := range r.objects {
		out = append(out, groupLineOf(g.(*v1alpha1.NodeGroup), o.clock.Now()))
	}
	slices.SortFunc(out, func(a, b groupLine) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// groupLineOf reads a NodeGroup.
func groupLineOf(ng *v1alpha1.NodeGroup, now time.Time) groupLine {
	g := nodegroups.GroupFrom(ng, ng.Status, int(ng.Status.Machines))
	out := groupLine{
		Name: ng.Name, Provider: string(ng.Spec.Provider), Market: string(ng.Spec.CapacityType), Zone: ng.Spec.Zone,
		USDPerHour: provisioning.USD(g.MicroUSDPerHour), Machines: ng.Status.Machines, Ready: ng.Status.ReadyNodes,
		Booked: ng.Status.BookedNodes, Max: ng.Spec.MaxNodes, ChanceOfOne: g.Chance(1, now) / 10, ChanceOfEight: g.Chance(8, now) / 10,
	}
	if failure := lastFailure(ng); failure != nil {
		out.LastFailure = fmt.Sprintf("%s, %s ago", failure.Class, ago(now, failure.Time.Time))
	}
	for i := range ng.Status.Backoffs {
		b := &ng.Status.Backoffs[i]
		if until := b.Until.Time; now.Before(until) && (out.Backoff == nil || out.Backoff.Before(until)) {
			out.Backoff, out.BackoffFrom = &until, b.AtLeast
			out.backoff = in(now, until)
			if b.AtLeast > 1 {
				out.backoff += fmt.Sprintf(", for %d machines and more", b.AtLeast)
			}
		}
	}
	for _, name := range []string{v1alpha1.ConditionSound, v1alpha1.ConditionTemplateMatches, v1alpha1.ConditionObtainable} {
		// Backoffs are above.
		if c := apimeta.FindStatusCondition(ng.Status.Conditions, name); c != nil && c.Status == metav1.ConditionFalse && (name != v1alpha1.ConditionObtainable || out.Backoff == nil) {
			out.Troubles = append(out.Troubles, fmt.Sprintf("not %s: %s", name, c.Message))
		}
	}
	return out
}

func (l groupLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "There is no NodeGroup: create one, or let Muster find those of a cloud (`muster --help`).")
		return nil
	}
	columns := []string{"GROUP", "MARKET", "ZONE", "USD/H", "MACHINES", "READY", "BOOKED", "CHANCE OF 1", "OF 8", "LAST FAILURE", "BACKOFF UNTIL", "TROUBLES"}
	if p.wide {
		columns = append(columns, "PROVIDER", "IN FULL")
	}
	rows := make([][]string, len(l))
	for i, g := range l {
		troubles := ""
		if len(g.Troubles) > 0 {
			troubles = fmt.Sprint(len(g.Troubles))
		}
		rows[i] = []string{
			g.Name, g.Market, g.Zone, g.USDPerHour, fmt.Sprintf("%d of %d", g.Machines, g.Max), fmt.Sprint(g.Ready), fmt.Sprint(g.Booked),
			fmt.Sprintf("%d%%", g.ChanceOfOne), fmt.Sprintf("%d%%", g.ChanceOfEight), g.LastFailure, strings.TrimPrefix(g.backoff, "at "), troubles,
		}
		if p.wide {
			rows[i] = append(rows[i], g.Provider, strings.Join(g.Troubles, "; "))
		}
	}
	return p.rows("", columns, rows)
}
