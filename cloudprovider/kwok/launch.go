package kwok

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/pool"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Launch implements cloudprovider.Launcher. The names of a launch's machines follow from the group, the token and their index in the
// launch. A repeated call makes the missing ones, with the ordinals of the first call.
func (p *Provider) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	stock := p.stockOf(req.Group.Name)
	stock.launching.Lock()
	defer stock.launching.Unlock()

	group := &v1alpha1.NodeGroup{}
	if err := p.Live.Get(ctx, types.NamespacedName{Name: req.Group.Name}, group); apierrors.IsNotFound(err) {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "NodeGroupNotFound",
			Message: fmt.Sprintf("NodeGroup %s was deleted", req.Group.Name)}
	} else if err != nil {
		return nil, fmt.Errorf("launch %d machines: read NodeGroup %s: %w", req.Count, req.Group.Name, err)
	}
	if err := stock.read(ctx, p.Live, group.Name); err != nil {
		return nil, fmt.Errorf("launch %d machines: %w", req.Count, err)
	}

	launch := newLaunch(group, req, stock)
	refusal := launch.decide(p.Clock.Now())
	if err := p.create(ctx, launch, stock); err != nil {
		stock.doubt()
		return launch.existing(), fmt.Errorf("launch %d machines in NodeGroup %s: %w", req.Count, group.Name, err)
	}
	if refusal != nil {
		return launch.existing(), &cloudprovider.Error{Class: refusal.Class, Code: refusal.Code, Message: refusal.Message}
	}
	return launch.existing(), nil
}

// create creates the missing machines. A machine that exists already was created by an earlier call.
func (p *Provider) create(ctx context.Context, l *launch, stock *stock) error {
	var calls errgroup.Group
	calls.SetLimit(parallel)
	for place, m := range l.missing {
		calls.Go(func() error {
			if err := p.Client.Create(ctx, m); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create machine %s: %w", m.Name, err)
			}
			stock.note(m)
			l.machines[place] = m
			return nil
		})
	}
	return calls.Wait()
}

// launch is one launch in the making.
type launch struct {
	group *v1alpha1.NodeGroup
	req   cloudprovider.LaunchRequest

	// machines of this launch by index; nil if missing.
	machines []*kwokv1alpha1.Machine
	// missing are the granted machines that have yet to be created, by index.
	missing map[int]*kwokv1alpha1.Machine
	// state is the state of the pool without this launch.
	state pool.State
}

// newLaunch separates the machines of this launch from others of the group.
func newLaunch(group *v1alpha1.NodeGroup, req cloudprovider.LaunchRequest, stock *stock) *launch {
	l := &launch{group: group, req: req, machines: make([]*kwokv1alpha1.Machine, req.Count)}
	places := make(map[string]int, req.Count)
	for i := range req.Count {
		places[machineName(group.Name, req.Token, i)] = i
	}
	all, next := stock.all()
	l.state.Next, l.state.InDomain = next, map[string]int{}
	for _, m := range all {
		if place, ours := places[m.Name]; ours {
			l.machines[place] = m
		} else if m.Status.Phase != kwokv1alpha1.MachineTerminated {
			l.state.Live++
			l.state.InDomain[m.Spec.Domain]++
		}
	}
	for place, m := range l.machines {
		if m != nil {
			// The ordinals of a launch are consecutive: any of its machines determines all.
			l.state.Next = m.Spec.Ordinal - int64(place)
			break
		}
	}
	return l
}

// decide lets the pool decide, unless all machines exist.
func (l *launch) decide(now time.Time) *v1alpha1.KwokError {
	if len(l.existing()) == l.req.Count {
		return nil
	}
	granted, refusal := poolOf(l.group).Launch(l.state, l.req.Count, now)
	l.missing = make(map[int]*kwokv1alpha1.Machine, len(granted))
	for place, fate := range granted {
		if l.machines[place] == nil {
			l.missing[place] = newMachine(l.group, l.req.Token, place, fate, now)
		}
	}
	return refusal
}

// existing returns the machines of the launch, in order.
func (l *launch) existing() []cloudprovider.Machine {
	var out []cloudprovider.Machine
	for _, m := range l.machines {
		if m != nil {
			out = append(out, observed(m))
		}
	}
	return out
}

func poolOf(group *v1alpha1.NodeGroup) pool.Pool {
	p := pool.Pool{Created: group.CreationTimestamp.Time, MaxMachines: int(group.Spec.MaxNodes)}
	if group.Spec.Kwok != nil {
		p.Script = *group.Spec.Kwok
	}
	return p
}
