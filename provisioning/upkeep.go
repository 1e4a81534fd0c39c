package provisioning

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
)

// labelLinger is how long a node keeps the label of a gang that has ended and
// whose request is gone: a pod that failed may be made again, and selects it.
const labelLinger = time.Minute

// Fleet is what upkeep looks at: everything that Muster may have to tidy up.
type Fleet struct {
	*Snapshot
	// Requests that exist, by UID.
	Requests map[types.UID]*Request
	// Machines of all groups that are not gone.
	Machines []cloudprovider.Machine
	// Consumers is how many unfinished pods consume the request of that
	// namespace and booking key, and when the last of them, or the request itself,
	// went.
	Consumers func(namespace, key string) (active int, ended time.Time)
}

// Upkeep is what to tidy up now.
type Upkeep struct {
	// Lift the cordon of these nodes, which bears Muster's mark and serves nobody,
	// and take the mark off those whose cordon somebody else has lifted.
	Lift []string
	// Cordon these nodes to give them back: they have been idle for too long.
	Cordon []string
	// Unlabel these nodes of these booking keys.
	Unlabel []Label
	// TakeBack these machines: orphans, and those cordoned before and still idle.
	TakeBack []cloudprovider.Machine
	// At is when to look again even if nothing changes; zero for never.
	At time.Time
}

// Label is the booking label of a key on a node.
type Label struct{ Node, Key string }

// Tend says what to tidy up in the fleet: cordons and labels that serve nobody
// any more, machines that no attempt owns, machines that stand idle. A machine
// is cordoned first and taken back only when a later look finds it still idle.
func Tend(f Fleet) Upkeep {
	var u Upkeep
	again := func(at time.Time) {
		if u.At.IsZero() || at.Before(u.At) {
			u.At = at
		}
	}
	machines := map[string]cloudprovider.Machine{}
	for _, m := range f.Machines {
		if m.State < cloudprovider.Terminated {
			machines[m.ProviderID] = m
		}
	}
	spare := f.spare(machines)
	for n := range f.Nodes.All() {
		m, ours := machines[n.ProviderID]
		delete(machines, n.ProviderID)
		for _, b := range n.Labelled {
			active, ended := f.Consumers(b.Namespace, b.Key)
			if _, exists := f.Requests[b.UID]; exists || active > 0 {
				continue
			}
			if at := ended.Add(labelLinger); f.Now.Before(at) {
				again(at)
			} else {
				u.Unlabel = append(u.Unlabel, Label{n.Name, b.Key})
			}
		}
		switch {
		case n.Cordon == Open && n.Marked:
			u.Lift = append(u.Lift, n.Name)
		case n.Cordon == Foreign || len(n.Bookings) > 0 || f.owned(n.Launch):
		case n.Cordon == Joining, n.Cordon == GivingBack:
			switch {
			case n.Pods > 0 || ours && spare[n.Group] < 0:
				u.Lift = append(u.Lift, n.Name)
				spare[n.Group]++
			case ours:
				u.TakeBack = append(u.TakeBack, m)
			}
			// A node without a machine goes by itself.
		case n.Cordon == Held:
			u.Lift = append(u.Lift, n.Name)
		case ours && n.Pods == 0 && spare[n.Group] > 0:
			g := f.findGroup(n.Group)
			if at := n.IdleSince.Add(g.IdleTimeout); f.Now.Before(at) {
				again(at)
			} else {
				u.Cordon = append(u.Cordon, n.Name)
				spare[n.Group]--
			}
		}
	}
	// Machines without a node that no attempt waits for.
	for _, m := range f.Machines {
		if _, nodeless := machines[m.ProviderID]; nodeless && m.Launch != "" && !f.owned(m.Launch) {
			u.TakeBack = append(u.TakeBack, m)
		}
	}
	return u
}

// NodesOf are the names of the nodes of these machines.
func (f *Fleet) NodesOf(machines []cloudprovider.Machine) (names []string) {
	for n := range f.Nodes.All() {
		if slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool { return m.ProviderID == n.ProviderID }) {
			names = append(names, n.Name)
		}
	}
	return names
}

// spare is by how many machines each group is above its minimum once those that
// are leaving have left.
func (f *Fleet) spare(machines map[string]cloudprovider.Machine) map[string]int {
	spare := map[string]int{}
	for i := range f.Groups {
		g := &f.Groups[i]
		spare[g.Name] = g.Machines - g.Min
	}
	for n := range f.Nodes.All() {
		_, ours := machines[n.ProviderID]
		if leaving := n.Cordon == GivingBack || n.Cordon == Joining && !f.owned(n.Launch); ours && leaving && n.Pods == 0 {
			spare[n.Group]--
		}
	}
	return spare
}

// owned says that the token is of an attempt in flight, whose request looks
// after the machine itself.
func (f *Fleet) owned(token string) bool {
	r := f.Requests[TokenUID(token)]
	return r != nil && r.Status == Pending && r.Attempt.InFlight() && Token(r.UID, r.Attempt.Number) == token
}
