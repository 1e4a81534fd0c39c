package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

// rackLines are the domains by flavor.
type rackLines []view.RackLine

func newRacksCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "racks [FLAVOR]",
		Short: "List the racks of flavors with a Topology: machines, what is free, which workloads run there",
		Long: `List the domains of a ResourceFlavor that has a Topology, or of all: those of the lowest level
above the nodes, which are mostly racks. For each: its nodes, and how many of them take pods,
what is free and used of what they have, and which workloads have pods there. What is neither
free nor used is on nodes that are cordoned or not Ready.`,
		Example: `  kubectl muster racks
  kubectl muster racks h100 --watch
  kubectl muster racks -o wide
  kubectl muster racks -o json | jq -r '.[] | select(.workloads == []) | .domain | join("/")'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return o.answer(command, func(ctx context.Context) (answer, error) { return o.racks(ctx, args) })
		},
		ValidArgsFunction: o.completeRacks,
	}
	o.addOutput(command)
	return command
}

func (o *options) racks(ctx context.Context, flavors []string) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil {
		return nil, err
	}
	if !p.Decides() {
		return nil, o.lacks("what is on the nodes", p.Missing)
	}
	if known := p.RackFlavors(); len(flavors) > 0 && !slices.Contains(known, flavors[0]) {
		return nil, fmt.Errorf("ResourceFlavor %q does not exist or has no Topology; those that have one: %s", flavors[0],
			cmp.Or(strings.Join(known, ", "), "none"))
	}
	return rackLines(p.Racks(flavors...)), nil
}

// mostWorkloads of a rack are named, except with -o wide.
const mostWorkloads = 3

func (l rackLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out,
			"There are no racks: no ResourceFlavor has a Topology (spec.topologyName) with nodes that have the labels of all its levels.")
		return nil
	}
	var rows [][]string
	for i := range l {
		rack := &l[i]
		nodes := fmt.Sprint(rack.Nodes)
		if rack.Open < rack.Nodes {
			nodes = fmt.Sprintf("%d, %d open", rack.Nodes, rack.Open)
		}
		resources := rack.Resources
		if !p.wide {
			resources = resources[:min(1, len(resources))]
		}
		for _, r := range resources {
			rows = append(rows, []string{rack.Flavor, rack.Name(), nodes, r.Resource, r.Capacity, r.Used, r.Free, p.workloadsOf(rack)})
		}
	}
	return p.rows("", []string{"FLAVOR", "RACK", "NODES", "RESOURCE", "CAPACITY", "USED", "FREE", "WORKLOADS (PODS)"}, rows)
}

// workloadsOf a rack, with the number of pods of each.
func (p *printer) workloadsOf(rack *view.RackLine) string {
	var out []string
	for i, w := range rack.Workloads {
		if i == mostWorkloads && !p.wide {
			out = append(out, fmt.Sprintf("%d more", len(rack.Workloads)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s/%s (%d)", w.Namespace, w.Workload, w.Pods))
	}
	if rack.OtherPods > 0 && p.wide {
		out = append(out, fmt.Sprintf("pods of none (%d)", rack.OtherPods))
	}
	return strings.Join(out, ", ")
}

// completeRacks offers the flavors with a Topology.
func (o *options) completeRacks(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	kube, _, err := o.connect()
	list := &kueue.ResourceFlavorList{}
	if err != nil || len(args) > 0 || kube.List(command.Context(), list) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for i := range list.Items {
		if list.Items[i].Spec.TopologyName != nil {
			out = append(out, list.Items[i].Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
