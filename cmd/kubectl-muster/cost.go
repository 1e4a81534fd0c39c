package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/view"
)

// costs are written for people.
type costs struct{ *view.Costs }

func newCostCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "cost",
		Short: "What the machines cost per hour: by group, by team and by job, and what is wasted",
		Long: `cost tells what the machines that exist now cost per hour: by group, by the
namespace and LocalQueue that pay for them, and by job, with what each job has
cost so far.

A machine is paid for by those who have booked it, in equal parts, until their pods
have ended; one that boots or joins by the job that it was launched for; all others
by nobody. Its price is the spec.pricePerHour of its NodeGroup. It is

  joining  until its launch is complete,
  booked   while it waits for the pods of a job,
  used     while it runs pods,
  idle     while nobody needs it,
  wasted   where its launch has failed, until it is taken back.

What a job has cost so far is for the machines that it has now, at today's prices.
The metric muster_machine_cost_usd_total adds up what was really spent.`,
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
		return nil, fmt.Errorf("you may not see enough of the cluster to tell what it costs. What you may not do:\n  - %s", strings.Join(lacking(p.Missing), "\n  - "))
	}
	return costs{p.Costs()}, nil
}

func (c costs) print(p *printer) error {
	if c.Total.Machines == 0 {
		fmt.Fprintln(p.out, "No group has a machine, so nothing is paid for.")
		return nil
	}
	p.heading(fmt.Sprintf("%d machines cost %s USD per hour, of which %s for machines that nobody uses.", c.Total.Machines, c.Total.USDPerHour, c.Total.Unused))
	var groups, tenants, jobs [][]string
	for _, g := range c.Groups {
		groups = append(groups, append([]string{g.Group, g.Market, g.Each}, cells(&g.CostLine)...))
	}
	for _, t := range c.Tenants {
		namespace := t.Namespace
		if namespace == "" {
			namespace = "(nobody)"
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
		{"By who pays", []string{"NAMESPACE", "QUEUE"}, tenants},
		{"By job", []string{"NAMESPACE", "NAME", "USD SO FAR"}, jobs},
	} {
		if err := p.part(part.heading, append(part.columns, columns...), part.rows); err != nil {
			return err
		}
	}
	if len(c.Unpriced) > 0 {
		p.list("What is counted as free", []string{fmt.Sprintf("machines of groups without a price: %s; set spec.pricePerHour of the NodeGroup", strings.Join(c.Unpriced, ", "))})
	}
	return nil
}

func cells(l *view.CostLine) []string {
	return []string{fmt.Sprint(l.Machines), fmt.Sprint(l.Joining), fmt.Sprint(l.Booked), fmt.Sprint(l.Used), fmt.Sprint(l.Idle), fmt.Sprint(l.Wasted), l.USDPerHour, l.Unused}
}
