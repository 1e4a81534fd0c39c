package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/view"
)

// costs prints itself as text.
type costs struct{ *view.Costs }

func newCostCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "cost",
		Short: "Show what the machines cost per hour, by group, by queue and by job, and what is wasted",
		Long: `Show what the existing machines cost per hour: by group, by namespace and LocalQueue,
and by job, with the cost of each job so far.

A machine's cost is split equally among the jobs that have booked it, until their
pods have ended. A booting or joining machine belongs to the job that it was launched
for; any other machine to none. The price is spec.pricePerHour of the NodeGroup.
A machine is

  joining  until its launch is complete,
  booked   while it waits for the pods of a job,
  used     while it runs pods,
  idle     while no job needs it,
  wasted   if its launch failed, until it is terminated.

The cost so far covers the machines that a job has now, at current prices. The metric
muster_machine_cost_usd_total has the accumulated cost.`,
		Example: `  kubectl muster cost
  kubectl muster cost --watch
  kubectl muster cost -o json | jq -r '.tenants[] | [.namespace, .queue, .usdPerHour] | @tsv'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.answer(command, o.cost) },
	}
	o.addOutput(command)
	return command
}

func (o *options) cost(ctx context.Context) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, view.GroupKinds)
	if err != nil {
		return nil, err
	}
	if !p.Decides() {
		return nil, fmt.Errorf("you lack the rights to read what costs are computed from. Missing:\n  - %s",
			strings.Join(lacking(p.Missing), "\n  - "))
	}
	return costs{p.Costs()}, nil
}

func (c costs) print(p *printer) error {
	if c.Total.Machines == 0 {
		fmt.Fprintln(p.out, "No NodeGroup has a machine, so there is no cost.")
		return nil
	}
	p.heading(fmt.Sprintf("Machines: %d, at %s USD per hour, %s of it for idle or wasted machines.", c.Total.Machines, c.Total.USDPerHour,
		c.Total.Unused))
	var groups, tenants, jobs [][]string
	for _, g := range c.Groups {
		groups = append(groups, append([]string{g.Group, g.Market, g.Each}, cells(&g.CostLine)...))
	}
	for _, t := range c.Tenants {
		namespace := t.Namespace
		if namespace == "" {
			namespace = "(none)"
		}
		tenants = append(tenants, append([]string{namespace, t.Queue}, cells(&t.CostLine)...))
	}
	for _, j := range c.Jobs {
		jobs = append(jobs, append([]string{j.Namespace, j.Name, j.SoFar}, cells(&j.CostLine)...))
	}
	columns := []string{"MACHINES", "JOINING", "BOOKED", "USED", "IDLE", "WASTED", "USD/H", "UNUSED USD/H"}
	for _, part := range []struct {
		heading string
		columns []string
		rows    [][]string
	}{
		{"By group", []string{"GROUP", "MARKET", "USD/H EACH"}, groups},
		{"By queue", []string{"NAMESPACE", "QUEUE"}, tenants},
		{"By job", []string{"NAMESPACE", "NAME", "USD SO FAR"}, jobs},
	} {
		if err := p.part(part.heading, append(part.columns, columns...), part.rows); err != nil {
			return err
		}
	}
	if len(c.Unpriced) > 0 {
		p.list("Not included", []string{fmt.Sprintf("NodeGroups without a price: %s; set their spec.pricePerHour",
			strings.Join(c.Unpriced, ", "))})
	}
	return nil
}

func cells(l *view.CostLine) []string {
	return []string{fmt.Sprint(l.Machines), fmt.Sprint(l.Joining), fmt.Sprint(l.Booked), fmt.Sprint(l.Used), fmt.Sprint(l.Idle),
		fmt.Sprint(l.Wasted), l.USDPerHour, l.Unused}
}
