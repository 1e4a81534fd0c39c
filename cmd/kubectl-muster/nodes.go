package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// nodes print themselves as tables.
type nodes struct{ *view.Nodes }

func newNodesCommand(o *options) *cobra.Command {
	var group string
	command := &cobra.Command{
		Use:   "nodes",
		Short: "Count the nodes by group, rack and queue: free, used, booked, joining, closed, broken",
		Long: `Count the nodes by NodeGroup, by rack and by ClusterQueue. Fixed nodes, which are in no
NodeGroup, are in the group (none). A node counts for each ClusterQueue with a flavor whose
nodeLabels it has. A node is

  free     while it runs no pod but those of DaemonSets, and takes any,
  used     while it runs pods,
  booked   while it waits for the pods of a job,
  joining  until its launch is complete,
  closed   if it is cordoned, is being scaled down, or its machine is about to be interrupted,
  broken   if it is not Ready, its machine has ended, or none of its pods can start.

DEVICES FREE are the devices that are neither used nor booked. -o wide lists each node with its
state and its jobs.`,
		Example: `  kubectl muster nodes
  kubectl muster nodes --group h100 -o wide
  kubectl muster nodes -o json | jq -r '.nodes[] | select(.state == "Broken") | .name'`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.answer(command, func(ctx context.Context) (answer, error) { return o.nodes(ctx, group) })
		},
	}
	command.Flags().StringVar(&group, "group", "", "only nodes of the NodeGroup of this name")
	if err := command.RegisterFlagCompletionFunc("group", o.completeGroup); err != nil {
		panic(err) // the flag is defined above
	}
	o.addOutput(command)
	return command
}

func (o *options) nodes(ctx context.Context, group string) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, slices.Concat(view.QueueKinds, view.GroupKinds))
	if err != nil {
		return nil, err
	}
	if !p.Decides() {
		return nil, o.lacks("what is on the nodes", p.Missing)
	}
	if group != "" && p.Groups[group] == nil {
		return nil, fmt.Errorf("--group=%q: the cluster has no such NodeGroup; `kubectl muster capacity` lists those that are there", group)
	}
	return nodes{p.NodesIn(group)}, nil
}

func (n nodes) print(p *printer) error {
	if len(n.Groups) == 0 {
		fmt.Fprintln(p.out, "There is no node.")
		return nil
	}
	total := map[view.NodeState]int{}
	var broken []string
	var each [][]string
	for i := range n.Nodes.Nodes {
		l := &n.Nodes.Nodes[i]
		if total[l.State]++; l.Words != "" {
			broken = append(broken, fmt.Sprintf("node %s is %s: %s", l.Name, strings.ToLower(string(l.State)), l.Words))
		}
		var racks []string
		for _, r := range l.Racks {
			racks = append(racks, r.Name())
		}
		each = append(each, []string{l.Name, cmp.Or(l.Group, noGroup), strings.Join(racks, ", "), string(l.State),
			freeOf(l.Devices), strings.Join(l.Jobs, ", ")})
	}
	p.heading(fmt.Sprintf("Nodes: %d, of which %d are free, %d used, %d booked and %d broken.", len(n.Nodes.Nodes), total[view.Free],
		total[view.Used], total[view.Booked], total[view.Broken]))
	for _, part := range []struct {
		heading, column string
		counts          []view.NodeCount
	}{{"By group", "GROUP", n.Groups}, {"By rack", "RACK", n.Racks}, {"By queue", "CLUSTERQUEUE", n.ClusterQueues}} {
		var rows [][]string
		for i := range part.counts {
			c := &part.counts[i]
			row := []string{cmp.Or(c.Of, noGroup)}
			for _, count := range []int{c.Nodes, c.Free, c.Used, c.Booked, c.Joining, c.Closed, c.Broken} {
				row = append(row, fmt.Sprint(count))
			}
			rows = append(rows, append(row, freeOf(c.Devices)))
		}
		if err := p.part(part.heading, []string{part.column, "NODES", "FREE", "USED", "BOOKED", "JOINING", "CLOSED", "BROKEN", "DEVICES FREE"},
			rows); err != nil {
			return err
		}
	}
	if p.wide {
		if err := p.part("Nodes", []string{"NODE", "GROUP", "RACK", "STATE", "DEVICES FREE", "JOBS"}, each); err != nil {
			return err
		}
	}
	p.list("Closed, broken or with tainted devices", broken)
	return nil
}

// noGroup names the nodes that are in no NodeGroup.
const noGroup = "(none)"

// freeOf says how many devices are free of those that there are.
func freeOf(devices []view.NodeDevices) string { return strings.Join(eachFree(devices), ", ") }

func eachFree(devices []view.NodeDevices) (out []string) {
	for _, d := range devices {
		out = append(out, fmt.Sprintf("%d of %d %s", d.Free, d.Capacity, d.Resource))
	}
	return out
}

// completeGroup completes the NodeGroups.
func (o *options) completeGroup(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	kube, _, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return namesIn(command.Context(), kube, &v1alpha1.NodeGroupList{}, ""), cobra.ShellCompDirectiveNoFileComp
}
