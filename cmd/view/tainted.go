package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// mostTainted limits the tainted devices that are named for a node, and the nodes with such devices that are named for a NodeGroup.
const mostTainted = 4

// taintedOn says which published devices of a node are kept from claims; empty for none.
func taintedOn(n *state.Node) string {
	if n.Published == nil {
		return ""
	}
	tainted := n.Published.Tainted()
	if len(tainted) == 0 {
		return ""
	}
	more := ""
	if len(tainted) > mostTainted {
		more = fmt.Sprintf(" and %d more", len(tainted)-mostTainted)
	}
	return "claims without a toleration get no device " + strings.Join(tainted[:min(mostTainted, len(tainted))], ", ") + more
}

// taintedIn returns, for each NodeGroup, what taintedOn says of its nodes.
func (p *Picture) taintedIn() map[string][]string {
	type taintedNode struct{ name, why string }
	nodes := map[string][]taintedNode{}
	for n := range p.Snapshot.Nodes.All() {
		if n.Group == "" {
			continue
		}
		if why := taintedOn(n); why != "" {
			nodes[n.Group] = append(nodes[n.Group], taintedNode{n.Name, why})
		}
	}
	out := map[string][]string{}
	for group, of := range nodes {
		slices.SortFunc(of, func(a, b taintedNode) int { return inNumbers(a.name, b.name) })
		for _, n := range of[:min(mostTainted, len(of))] {
			out[group] = append(out[group], fmt.Sprintf("node %s: %s", n.name, n.why))
		}
		if more := len(of) - mostTainted; more > 0 {
			out[group] = append(out[group], fmt.Sprintf("%s more with such devices: `kubectl muster nodes --group %s` names them",
				text.Plural(more, "node"), group))
		}
	}
	return out
}
