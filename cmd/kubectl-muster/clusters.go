package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
)

// clusterLines are the clusters by name.
type clusterLines []view.ClusterLine

func newClustersCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "clusters",
		Short: "List the clusters that jobs are given to: how many run and wait there, what they hold, refusals",
		Long: `List the worker clusters of a manager of MultiKueue: whether it is connected to them, how many
jobs run there and what they hold of the quota here, what the machines cost that were to be launched
for them when they were given there, as far as that was known, how many were given to each and do
not run yet, and how many jobs that wait were refused there, with the newest reason. Where one job
is, kubectl muster explain tells; what machines of all clusters cost, kubectl muster cost.`,
		Example: `  kubectl muster clusters
  kubectl muster clusters --watch
  kubectl muster clusters -o json | jq -r '.[] | select(.active | not) | .cluster'`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error { return o.answer(command, o.clusters) },
	}
	o.addOutput(command)
	return command
}

func (o *options) clusters(ctx context.Context) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	r, err := view.Read(ctx, kube, namespace, view.ClusterKinds...)
	if err != nil {
		return nil, err
	}
	if err := r.Lacks(view.ClusterKinds[:1]); err != nil {
		return nil, err
	}
	if len(r.Missing) > 0 {
		return nil, o.lacks("the clusters and their jobs", r.Missing)
	}
	return clusterLines(view.ClusterLines(o.clock.Now(), r.Objects)), nil
}

func (l clusterLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "There is no MultiKueueCluster: jobs run in this cluster only.")
		return nil
	}
	columns := []string{"CLUSTER", "ACTIVE", "RUNNING", "USES", "USD/H", "ASKED", "REFUSED", "LAST REFUSAL", "PROBLEM"}
	if p.wide {
		columns = append(columns, "MESSAGE OF THE LAST REFUSAL")
	}
	rows := make([][]string, len(l))
	for i, x := range l {
		active := "yes"
		if !x.Active {
			active = "no"
		}
		held := x.Held
		if !p.wide {
			held = held[:min(1, len(held))]
		}
		rows[i] = []string{
			x.Cluster, active, fmt.Sprint(x.Running), strings.Join(held, ", "), x.USDPerHour, fmt.Sprint(x.Nominated), fmt.Sprint(x.Refused), x.Last, x.Message,
		}
		if p.wide {
			message := ""
			if x.LastRefusal != nil {
				message = x.LastRefusal.Message
			}
			rows[i] = append(rows[i], message)
		}
	}
	return p.rows("", columns, rows)
}
