package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// groupLines are the NodeGroups by name.
type groupLines []view.GroupLine

func newCapacityCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "capacity",
		Short: "List the node groups: price, size, chance of a launch, backoff, problems",
		Long: `List the NodeGroups: the price of a machine, how many exist, are ready and are booked,
the chance that a launch of one and of eight machines succeeds, the last failed launch
and the backoff after it, and problems that need a person.`,
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
	r, err := view.Read(ctx, kube, namespace, view.GroupKinds...)
	if err != nil {
		return nil, err
	}
	if err := r.Lacks(view.GroupKinds); err != nil {
		return nil, err
	}
	if len(r.Missing) > 0 {
		return nil, o.lacks("the NodeGroups", r.Missing)
	}
	out := groupLines{}
	for _, g := range r.Objects {
		out = append(out, view.GroupLineOf(g.(*v1alpha1.NodeGroup), o.clock.Now()))
	}
	slices.SortFunc(out, func(a, b view.GroupLine) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

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
