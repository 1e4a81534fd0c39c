package placement

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// TestChoices places gangs on nodes and compares their places with choices.txt. Users see each of these choices; test/kueue/topology
// compares random ones with those of Kueue. The commands:
//
//	nodes    replaces the nodes, one a line: name, block, rack and free amounts
//	use      counts pods of another Workload on a node
//	place    places count pods, which request cpu and gpu, by required, preferred or unconstrained; slice=LEVEL:SIZE and, for a finer
//	         layer, inner=LEVEL:SIZE; leader=CPUs adds a leader; balanced spreads them
//	repair   places pods like place, loses the node of the first, and prints where the pods are then
//
// After an intended change, -rewrite accepts what is printed: read the diff.
func TestChoices(t *testing.T) {
	var tree *Tree
	nodes := map[string]func(){}
	datadriven.RunTest(t, "choices.txt", func(t *testing.T, d *datadriven.TestData) string {
		args := map[string]string{}
		for _, a := range d.CmdArgs {
			args[a.Key] = strings.Join(a.Vals, ",")
		}
		switch d.Cmd {
		case "nodes":
			tree = NewTree("racks", hostLevels, nil)
			for line := range strings.Lines(d.Input) {
				f := strings.Fields(line)
				room := nodegroups.Resources{corev1.ResourcePods: 100, "cpu": number(t, f[3]), "gpu": number(t, f[4])}
				nodes[f[0]] = func() { tree.SetNode(newNode(f[0], f[1], f[2]), room) }
				nodes[f[0]]()
			}
			return ""
		case "use":
			tree.AddUsage([]Domain{{[]string{args["node"]}, int32(number(t, args["count"]))}}, podOf(t, args), 1)
			return ""
		}
		request := requestOf(t, args)
		p := tree.Snapshot().Place(request)
		if p.Reason != "" {
			return fmt.Sprintf("%s; best:%s\n", p.Reason, onNodes(p.Best))
		}
		out := onNodes(p.Pods...)
		if len(p.Leader) > 0 {
			out += ", leader" + onNodes(p.Leader...)
		}
		if p.Fills {
			out += ", full"
		}
		if d.Cmd == "repair" {
			lost := p.Pods[0].Values[0]
			tree.AddUsage(p.Pods[1:], request.Pod, 1)
			tree.DeleteNode(lost)
			request.Leader = nil
			repaired, reason := tree.Repair(request, p.Pods, nil, map[string]bool{lost: true})
			nodes[lost]()
			tree.AddUsage(p.Pods[1:], request.Pod, -1)
			out += ", then" + onNodes(repaired...)
			if reason != "" {
				out += " " + reason
			}
		}
		return strings.TrimSpace(out) + "\n"
	})
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func podOf(t *testing.T, args map[string]string) nodegroups.Resources {
	out := nodegroups.Resources{}
	for _, name := range []corev1.ResourceName{"cpu", "gpu"} {
		if v := args[string(name)]; v != "" {
			out[name] = number(t, v)
		}
	}
	return out
}

func requestOf(t *testing.T, args map[string]string) *Request {
	level := func(name string) *string {
		if name == "host" {
			name = corev1.LabelHostname
		}
		return &name
	}
	layer := func(text string) kueue.PodsetSliceRequiredTopologyConstraint {
		name, size, _ := strings.Cut(text, ":")
		return kueue.PodsetSliceRequiredTopologyConstraint{Topology: *level(name), Size: int32(number(t, size))}
	}
	out := &Request{Count: int32(number(t, args["count"])), Pod: podOf(t, args), Topology: &kueue.PodSetTopologyRequest{}}
	if v, ok := args["required"]; ok {
		out.Topology.Required = level(v)
	}
	if v, ok := args["preferred"]; ok {
		out.Topology.Preferred = level(v)
	}
	if _, ok := args["unconstrained"]; ok {
		out.Topology.Unconstrained = new(true)
	}
	_, out.Balanced = args["balanced"]
	if v, ok := args["leader"]; ok {
		out.Leader = nodegroups.Resources{"cpu": number(t, v)}
	}
	if v, ok := args["slice"]; ok {
		l := layer(v)
		if inner, ok := args["inner"]; ok {
			out.Topology.PodsetSliceRequiredTopologyConstraints = []kueue.PodsetSliceRequiredTopologyConstraint{l, layer(inner)}
		} else {
			out.Topology.PodSetSliceRequiredTopology, out.Topology.PodSetSliceSize = &l.Topology, &l.Size
		}
	}
	return out
}

func onNodes(domains ...Domain) (out string) {
	for _, d := range domains {
		out += fmt.Sprintf(" %s:%d", strings.Join(d.Values, "/"), d.Count)
	}
	return out
}
