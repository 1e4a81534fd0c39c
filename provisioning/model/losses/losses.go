// Package losses records which nodes requests have lost, and which losses were reported to them.
package losses

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Losses are the nodes that each request has lost, by name, until the request is gone.
type Losses map[types.UID]map[string]*loss

// loss is a node that a request has lost.
type loss struct {
	transaction.LostNode
	at time.Time
	// reported: the loss was reported to the request. held: its gang was not stopped for it, for now.
	reported, held bool
}

// Lost records that a node was deleted, or its machine ended, for the requests that have booked it or whose pods it runs. Concerns reports
// whether the loss of a node with so many pods is reported to a request.
func (ls Losses) Lost(n *state.Node, concerns func(request types.UID, pods int) bool, now time.Time) {
	for i := range n.Labelled {
		b := &n.Labelled[i]
		if !concerns(b.UID, b.Running) {
			continue
		}
		if ls[b.UID] == nil {
			ls[b.UID] = map[string]*loss{}
		}
		if ls[b.UID][n.Name] == nil {
			ls[b.UID][n.Name] = &loss{at: now, LostNode: transaction.LostNode{
				Name: n.Name, ProviderID: n.ProviderID, Group: n.Group, Pods: b.Running, Ran: b.Ran, Labels: n.Labels, Taints: n.Taints,
				Repair: b.Repair,
			}}
		}
	}
}

// Back drops the loss of a node of that name after it was reported: the node that is booked now may be lost, too.
func (ls Losses) Back(n *state.Node) {
	for i := range n.Labelled {
		uid := n.Labelled[i].UID
		if l := ls[uid][n.Name]; l != nil && l.reported {
			delete(ls[uid], n.Name)
		}
	}
}

// Reported records that these losses were reported to the request, and whether its gang continues for now.
func (ls Losses) Reported(uid types.UID, nodes []transaction.LostNode, held bool) {
	for _, n := range nodes {
		if l := ls[uid][n.Name]; l != nil {
			l.reported, l.held = true, held
		}
	}
}

// Unreported returns the lost nodes that were not reported to the request, by name.
func (ls Losses) Unreported(uid types.UID) []transaction.LostNode {
	return ls.those(uid, func(l *loss) bool { return !l.reported })
}

// Held returns the lost nodes for which its gang was not stopped, by name.
func (ls Losses) Held(uid types.UID) []transaction.LostNode {
	return ls.those(uid, func(l *loss) bool { return l.held })
}

func (ls Losses) those(uid types.UID, which func(*loss) bool) (out []transaction.LostNode) {
	for _, name := range slices.Sorted(maps.Keys(ls[uid])) {
		if l := ls[uid][name]; which(l) {
			out = append(out, l.LostNode)
		}
	}
	return out
}

// unreportedFor is how long a loss is kept that was reported to no request.
const unreportedFor = 10 * time.Minute

// Forget drops what has been remembered for long.
func (ls Losses) Forget(now time.Time) {
	for _, lost := range ls {
		maps.DeleteFunc(lost, func(_ string, l *loss) bool { return !l.reported && now.Sub(l.at) > unreportedFor })
	}
}
