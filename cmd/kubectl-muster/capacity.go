package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// groupLines are the NodeGroups by name.
type groupLines []view.GroupLine

// groupsWithoutDevices are shown to a caller that may not read the devices of their nodes.
type groupsWithoutDevices struct {
	groupLines
	missing []view.Right
}

// MarshalJSON writes the lines alone.
func (a groupsWithoutDevices) MarshalJSON() ([]byte, error) { return json.Marshal(a.groupLines) }

func (a groupsWithoutDevices) print(p *printer) error {
	if err := a.groupLines.print(p); err != nil {
		return err
	}
	p.missing("devices with a taint are not among the troubles", a.missing)
	return nil
}

func newCapacityCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "capacity",
		Short: "List the node groups: price, size, chance of a launch, backoff, problems",
		Long: `List the NodeGroups: the price of a machine, how many exist, are ready and are booked,
the chance that a launch of one and of eight machines succeeds, the last failed launch
and the backoff after it, and problems that need a person: conditions, and devices with a
taint that keeps claims off them.`,
		Example: `  kubectl muster capacity -o wide
  kubectl muster capacity --watch`,
		Args: arguments.None,
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
	return o.capacityIn(ctx, kube, namespace)
}

func (o *options) capacityIn(ctx context.Context, kube client.Reader, namespace string) (answer, error) {
	settings, err := view.LoadSettings(o.file)
	if err != nil {
		return nil, err
	}
	r, err := view.Read(ctx, kube, namespace, slices.Concat(view.GroupKinds, view.DeviceKinds)...)
	if err != nil {
		return nil, err
	}
	if err := r.Lacks(view.GroupKinds); err != nil {
		return nil, err
	}
	groups := func(m view.Right) bool { return m.Resource == view.GroupKinds[0].Resource.String() }
	if i := slices.IndexFunc(r.Missing, groups); i >= 0 {
		return nil, o.lacks("the NodeGroups", r.Missing[i:i+1])
	}
	p := view.New(o.clock, settings, r)
	out := groupLines(p.GroupLines())
	if len(p.Missing) > 0 && slices.ContainsFunc(slices.Collect(maps.Values(p.Groups)), hasDevices) {
		return groupsWithoutDevices{out, p.Missing}, nil
	}
	return out, nil
}

// hasDevices reports whether the machines of a NodeGroup are known to have devices by claim.
func hasDevices(g *v1alpha1.NodeGroup) bool { return len(nodegroups.DevicesOf(g)) > 0 }

func (l groupLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "There is no NodeGroup: create one, or configure a cloud whose groups Muster discovers (`muster --help`).")
		return nil
	}
	columns := []string{"GROUP", "CAPACITY", "USD/H", "MACHINES", "BOOKED", "CHANCE", "OF 8", "BACKOFF", "TROUBLES"}
	if p.wide {
		columns = append(columns, "READY", "ZONE", "PROVIDER", "LAST FAILURE", "BACKOFF UNTIL", "ENDS", "MESSAGE")
	}
	rows := make([][]string, len(l))
	for i, g := range l {
		troubles := ""
		if len(g.Troubles) > 0 {
			troubles = fmt.Sprint(len(g.Troubles))
		}
		rows[i] = []string{
			g.Name, g.CapacityType, g.USDPerHour, fmt.Sprintf("%d of %d", g.Machines, g.Max), fmt.Sprint(g.Booked),
			fmt.Sprintf("%d%%", g.ChanceOfOne), percent(g.ChanceOfEight), g.BackoffLeft, troubles,
		}
		if p.wide {
			ends := ""
			if g.EndsAt != nil {
				ends = g.EndsAt.UTC().Format(time.RFC3339)
			}
			rows[i] = append(rows[i], fmt.Sprint(g.Ready), g.Zone, g.Provider, g.LastFailure, strings.TrimPrefix(g.BackoffUntil, "at "), ends,
				strings.Join(g.Troubles, "; "))
		}
	}
	return p.rows("", columns, rows)
}
