package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
)

// costs prints itself as text.
type costs struct {
	*view.Costs
	// namespace that they are of; empty for all.
	namespace string
}

func newCostCommand(o *options) *cobra.Command {
	var export, month string
	command := &cobra.Command{
		Use:   "cost",
		Short: "Show what the machines cost per hour, by group, by queue and by job, and what is wasted",
		Long: `Show what the existing machines cost per hour: by group, by namespace and LocalQueue,
and by job, with the cost of each job so far.

A machine's cost is split equally among the jobs that have booked it, until their
pods have ended. A booting or joining machine belongs to the job that it was launched
for; an idle one to no job, but to the queue of the job that was on it last. The price is spec.pricePerHour of the NodeGroup.
A machine is

  joining  until its launch is complete,
  booked   while it waits for the pods of a job,
  used     while it runs pods,
  idle     while no job needs it,
  wasted   if its launch failed, until it is terminated.

UNUSED is what idle and wasted machines cost per hour; -o wide counts the machines of every kind.

The cost so far covers the machines that a job has now, at current prices. The metric
muster_machine_cost_usd_total has the accumulated cost.

Launches in vain are machines that were terminated or lost before a job had all that it
needs, by job and cause: Scattered over racks, not joined in time (Timeout), Lost while they
started, or what else the launch failed for. A job is listed as long as its
ProvisioningRequest exists; the metric muster_vain_cost_usd_total has the accumulated cost.

With --namespace it is the part that the jobs of a namespace pay: a machine that they share with
others counts with their part of its price.

Budgets are those of CapacityPolicies, with what was spent in their period, what machines that
Muster has launched add to that per hour now, and when nothing is left at that rate, if that is
before the period ends.

If other clusters run jobs of this one (MultiKueue), their costs are included. They are read
with your own rights, by the context of your kubeconfig that has the name of the cluster. What
the budget of a CapacityPolicy of this cluster counts is then spent in all of them, as far as
they have a budget of the same policy and name.

With --export=focus it writes what was spent as CSV, a row for each day, job, queue, namespace, group
and purpose, in the columns of FOCUS ` + view.FOCUSVersion + `, with --month of that month. Costs of idle machines
(x_Purpose idle), of launches in vain (wasted), and of machines that boot (joining) or wait for pods
(booked) are rows of their own. ListCost is at the price on demand. It is from the record that
` + "`kubectl muster history`" + ` reads, of this cluster alone.`,
		Example: `  kubectl muster cost
  kubectl muster cost --watch
  kubectl muster cost --namespace research
  kubectl muster cost --export=focus --month=2026-11 > costs.csv
  kubectl muster cost -o json | jq -r '.tenants[] | [.namespace, .queue, .usdPerHour] | @tsv'`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			switch _, err := time.Parse("2006-01", month); {
			case export == "" && month != "":
				return errors.New("--month selects what --export writes: add --export=focus")
			case export == "":
				return o.answer(command, o.cost)
			case export != focus:
				return fmt.Errorf("--export=%q: use %s", export, focus)
			case month != "" && err != nil:
				return fmt.Errorf("--month=%q: use a year and a month, such as 2026-11", month)
			}
			o.output = asCSV
			return o.answer(command, func(ctx context.Context) (answer, error) { return o.export(ctx, month) })
		},
	}
	command.Flags().StringVar(&export, "export", "", "write what was spent in a format for other tools: "+focus)
	command.Flags().StringVar(&month, "month", "", "the month to export, such as 2026-11; empty is all that is kept")
	formats := cobra.FixedCompletions([]string{focus}, cobra.ShellCompDirectiveNoFileComp)
	if err := command.RegisterFlagCompletionFunc("export", formats); err != nil {
		panic(err) // the flag is defined above
	}
	o.addOutput(command)
	o.addContexts(command)
	return command
}

// focus is the format of the FinOps Open Cost and Usage Specification.
const focus = "focus"

// exported prints itself as CSV.
type exported struct {
	columns []string
	rows    [][]string
}

func (e exported) print(p *printer) error { return p.rows("", e.columns, e.rows) }

func (o *options) export(ctx context.Context, month string) (answer, error) {
	kube, _, err := o.connect()
	if err != nil {
		return nil, err
	}
	past, err := view.ReadPast(ctx, kube, *o.config.Namespace, time.Time{})
	if err != nil {
		return nil, err
	}
	system := &corev1.NamespaceList{}
	if err := kube.List(ctx, system, client.MatchingFields{"metadata.name": metav1.NamespaceSystem}); err != nil {
		return nil, fmt.Errorf("reading the identity of the cluster, the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	var cluster string
	for i := range system.Items {
		cluster = string(system.Items[i].UID)
	}
	columns, rows, err := past.FOCUS(cluster, month)
	return exported{columns, rows}, err
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
		return nil, o.lacks("what costs are computed from", p.Missing)
	}
	if err := o.given(p); err != nil {
		return nil, err
	}
	workers, err := o.workers(ctx, kube)
	if err != nil {
		return nil, err
	}
	of := *o.config.Namespace
	return costs{p.CostsIn(of, workers...), of}, nil
}

func (c costs) print(p *printer) error {
	if c.Total.Machines == 0 {
		fmt.Fprintln(p.out, c.none())
	} else if err := c.printMachines(p); err != nil {
		return err
	}
	var vain [][]string
	for _, v := range c.InVain {
		vain = append(vain, []string{v.Namespace, v.Name, c.nameOf(v.Cluster), v.Cause, fmt.Sprint(v.Machines), v.USD})
	}
	if err := c.part(p, "Launches in vain", []string{"NAMESPACE", "NAME", clusterColumn, "CAUSE", "MACHINES", "USD"}, vain); err != nil {
		return err
	}
	var budgets [][]string
	var left []string
	for i := range c.Budgets {
		b := &c.Budgets[i]
		row := []string{b.CapacityPolicy, b.Budget, c.nameOf(b.Cluster), b.USD, b.Period, b.Spent, b.Left, b.USDPerHour, cmp.Or(b.RunsOut, "-")}
		if p.wide {
			row = append(row, b.SpentInVain+" of "+b.VainLimit, b.Ends)
		}
		budgets = append(budgets, row)
		lacking := slices.DeleteFunc(slices.Clone(b.Uncounted), func(name string) bool { return c.isUnread(name) })
		if len(lacking) > 0 {
			left = append(left, fmt.Sprintf("in budget %s: what is spent in cluster %s, without a CapacityPolicy %s that has a budget %s per %s",
				b.Budget, strings.Join(lacking, " and cluster "), b.CapacityPolicy, b.Budget, b.Period))
		}
	}
	columns := []string{"CAPACITYPOLICY", "BUDGET", clusterColumn, "USD", "PER", "SPENT", "LEFT", "USD/H NOW", "RUNS OUT"}
	if p.wide {
		columns = append(columns, "IN VAIN", "PERIOD ENDS")
	}
	if err := c.part(p, "Budgets", columns, budgets); err != nil {
		return err
	}
	for _, x := range c.Clusters {
		if x.Unread != "" {
			left = append(left, x.Unread)
		}
	}
	if len(c.Unpriced) > 0 {
		left = append(left, fmt.Sprintf("NodeGroups without a price: %s; set their spec.pricePerHour", strings.Join(c.Unpriced, ", ")))
	}
	p.list("Not included", left)
	return nil
}

// none says that nothing is paid.
func (c costs) none() string {
	if c.namespace != "" {
		return fmt.Sprintf("No job of namespace %s has a machine of a NodeGroup, so there is no cost.", c.namespace)
	}
	return "No NodeGroup has a machine, so there is no cost."
}

// isUnread reports whether a cluster was not read, for which there is a line of its own.
func (c costs) isUnread(cluster string) bool {
	return slices.ContainsFunc(c.Clusters, func(x view.ClusterCost) bool { return x.Cluster == cluster && x.Unread != "" })
}

// clusterColumn is shown only if there are several clusters.
const clusterColumn = "CLUSTER"

// nameOf a cluster in that column.
func (c costs) nameOf(cluster string) string { return cmp.Or(cluster, "(this one)") }

// printMachines writes what machines cost.
func (c costs) printMachines(p *printer) error {
	of := ""
	if c.namespace != "" {
		of = " of namespace " + c.namespace
	}
	p.heading(fmt.Sprintf("Machines%s: %d, at %s USD per hour, %s of it for idle or wasted machines.", of, c.Total.Machines,
		c.Total.USDPerHour, c.Total.Unused))
	var clusters, groups, tenants, jobs [][]string
	for i := range c.Clusters {
		if x := &c.Clusters[i]; x.Unread == "" {
			clusters = append(clusters, append([]string{c.nameOf(x.Cluster)}, p.cells(&x.CostLine)...))
		}
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		groups = append(groups, append([]string{c.nameOf(g.Cluster), g.Group, g.CapacityType, g.Each}, p.cells(&g.CostLine)...))
	}
	for _, t := range c.Tenants {
		namespace := t.Namespace
		if namespace == "" {
			namespace = "(none)"
		}
		tenants = append(tenants, append([]string{namespace, t.Queue}, p.cells(&t.CostLine)...))
	}
	for _, j := range c.Jobs {
		jobs = append(jobs, append([]string{j.Namespace, j.Name, c.nameOf(j.Cluster), j.SoFar}, p.cells(&j.CostLine)...))
	}
	columns := []string{"MACHINES", "USED", "USD/H", "UNUSED"}
	if p.wide {
		columns = []string{"MACHINES", "JOINING", "BOOKED", "USED", "IDLE", "WASTED", "USD/H", "UNUSED USD/H"}
	}
	for _, part := range []struct {
		heading string
		columns []string
		rows    [][]string
	}{
		{"By cluster", []string{clusterColumn}, clusters},
		{"By group", []string{clusterColumn, "GROUP", "CAPACITY", "USD/H EACH"}, groups},
		{"By queue", []string{"NAMESPACE", "QUEUE"}, tenants},
		{"By job", []string{"NAMESPACE", "NAME", clusterColumn, "USD SO FAR"}, jobs},
	} {
		if err := c.part(p, part.heading, append(part.columns, columns...), part.rows); err != nil {
			return err
		}
	}
	return nil
}

// part writes a table, without the column of clusters if there is one only.
func (c costs) part(p *printer, heading string, columns []string, rows [][]string) error {
	if i := slices.Index(columns, clusterColumn); i >= 0 && len(c.Clusters) == 0 {
		columns = slices.Delete(slices.Clone(columns), i, i+1)
		for j := range rows {
			rows[j] = slices.Delete(rows[j], i, i+1)
		}
	}
	return p.part(heading, columns, rows)
}

// cells are those of the columns that all tables of machines have.
func (p *printer) cells(l *view.CostLine) []string {
	if p.wide {
		return []string{fmt.Sprint(l.Machines), fmt.Sprint(l.Joining), fmt.Sprint(l.Booked), fmt.Sprint(l.Used), fmt.Sprint(l.Idle),
			fmt.Sprint(l.Wasted), l.USDPerHour, l.Unused}
	}
	return []string{fmt.Sprint(l.Machines), fmt.Sprint(l.Used), l.USDPerHour, l.Unused}
}
