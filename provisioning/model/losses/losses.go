// Package losses remembers which nodes requests have lost, and what they were told of that.
package losses

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Losses are the nodes that each request has lost, by name, until it is gone.
type Losses map[types.UID]map[string]*loss

// loss is a node that a request has lost.
type loss struct {
	transaction.LostNode
	at time.Time
	// told: the request has been told of it. held: its gang was not stopped for it, for now.
	told, held bool
}

// Lost notes that a node went, or its machine ended: requests that have booked it, or whose
// pods it runs, have to be told. Concerns reports whether one of so many pods there is to be.
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

// Back forgets that a node of that name was lost, once that has been told: the one that is
// booked now may be lost, too.
func (ls Losses) Back(n *state.Node) {
	for i := range n.Labelled {
		uid := n.Labelled[i].UID
		if l := ls[uid][n.Name]; l != nil && l.told {
			delete(ls[uid], n.Name)
		}
	}
}

// Reported notes that the request has been told of these nodes, and whether its gang runs on for now.
func (ls Losses) Reported(uid types.UID, nodes []transaction.LostNode, held bool) {
	for _, n := range nodes {
		if l := ls[uid][n.Name]; l != nil {
			l.told, l.held = true, held
		}
	}
}

// Unreported are the lost nodes of a request that it has not been told of, by name.
func (ls Losses) Unreported(uid types.UID) []transaction.LostNode {
	return ls.those(uid, func(l *loss) bool { return !l.told })
}

// Held are those for which its gang was not stopped, by name.
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

// untoldFor is how long a loss is remembered that no request has been told of.
const untoldFor = 10 * time.Minute

// Forget drops what has been remembered for long.
func (ls Losses) Forget(now time.Time) {
	for _, lost := range ls {
		maps.DeleteFunc(lost, func(_ string, l *loss) bool { return !l.told && now.Sub(l.at) > untoldFor })
	}
}
