// Package cloudprovider is the seam between Muster and the clouds. Interfaces are split by
// capability; an adapter implements those that its cloud has. The words: a machine is what
// the cloud bills, a node is what registers in the cluster, a launch is one call for a number
// of machines, identified by a token.
package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// State of a machine. States only grow, so that a lower state that is observed after a higher
// one is outdated, unless the machine has been started again, see Machine.Restarted.
type State int

const (
	// Booting machines are billed and have no node yet.
	Booting State = iota
	// Running machines have registered their node.
	Running
	// Terminated machines have ended; the cloud may still list them.
	Terminated
	// Gone machines are no longer listed.
	Gone
)

// Machine is a machine as its cloud knows it.
type Machine struct {
	// Name is the cloud's own name of the machine, unique in its group.
	Name string
	// Group is the NodeGroup that the machine belongs to.
	Group string
	// Launch is the token of the launch that made it; empty if Muster did not.
	Launch string
	// ProviderID is the spec.providerID of the machine's node.
	ProviderID string
	// Scope is the part of the cloud whose list shows the machine, such as a zone, where a part may
	// fail while others answer; empty in a cloud that is listed as a whole.
	Scope string
	State State
	// Started is when the machine was last started, by the clock of its cloud; zero where that
	// is not known yet.
	Started time.Time
	// EndsAt is when the cloud ends the machine by itself, as at the end of a Capacity Block or of
	// its maximum run time; zero where it does not.
	EndsAt time.Time
	// Kept says that a Terminated machine is still there: its cloud has only stopped it, so that its disks are billed and it may be
	// started again, or its group retains it until it is terminated once more.
	Kept bool
	// Billed says that a Terminated machine still costs its price, as one that a lifecycle hook holds on its way out.
	Billed bool
	// Hold tells that this is not a machine but a capacity reservation, or a request in the
	// cloud's own queue, from which machines are to come. It is listed as Booting under the
	// token of its launch, so that a rollback ends it by name like a machine. One that is used
	// up is Gone.
	Hold bool
	// Unattributed reports whether a launch under way may have made the machine, which bears no
	// launch yet. Nothing is done with it until that launch has ended.
	Unattributed bool
	// Reason why the machine is Terminated, in the cloud's words.
	Reason string
	// Class of the reason, where another machine in its place would end for it, too; empty for a
	// machine that is worth replacing.
	Class v1alpha1.ErrorClass
}

// Counts reports whether it is a machine that has not ended.
func (m Machine) Counts() bool { return !m.Hold && m.State < Terminated }

// Costs reports whether it is a machine that is paid for: one that has not ended, or that its cloud holds on its way out.
func (m Machine) Costs() bool { return m.Counts() || !m.Hold && m.State == Terminated && m.Billed }

// Restarted reports whether the machine has been started again since it was observed as old.
// Its state replaces that of old then, even if it is lower.
func (m Machine) Restarted(old Machine) bool {
	return !old.Started.IsZero() && m.Started.After(old.Started)
}

// LaunchRequest asks for machines.
type LaunchRequest struct {
	Group *v1alpha1.NodeGroup
	// Count is the number of machines, at least 1.
	Count int
	// Token identifies the launch. Repeating the call with the same token, as after a crash,
	// makes no machine twice and returns those of the first call.
	Token string
	// Request is the ProvisioningRequest behind the launch, as namespace/name.
	Request string
	// Together is the domain that all machines must be in; its level is empty where they may be
	// anywhere. An adapter does for it what its cloud offers and is free not to: nodes are judged
	// by their labels once they have joined. A launch that is known to miss it is refused.
	Together Domain
}

// Domain is what has one value of a node label, such as a rack.
type Domain struct {
	// Level is the key of the label.
	Level string
	// Value is empty where the cloud chooses.
	Value string
}

// Launcher makes machines.
type Launcher interface {
	// Launch makes req.Count machines whose nodes are created cordoned with the token. It
	// returns the machines that exist under the token, also with an error: a caller that gets
	// fewer than Count has to terminate them. Only the call that makes machines can refuse a launch,
	// with an *Error: whatever else fails beside it is Inconclusive. After an error other than
	// *Error the call is to be repeated. It may block for as long as the cloud's call takes, not until nodes join.
	// Machines that exist and do not bear the token yet are not returned: a hold stands for them,
	// and the watch reports them as Unattributed.
	Launch(ctx context.Context, req LaunchRequest) ([]Machine, error)
}

// Taker terminates machines.
type Taker interface {
	// TakeBack terminates the named machines of a group, and deletes their nodes. To end a hold
	// terminates what has come of it, unless it is in use, see Cluster.InUse. Names that
	// do not exist are not an error. It returns once the cloud has accepted it; until lists
	// show that a machine has ended, the adapter repeats it now and then.
	TakeBack(ctx context.Context, group string, names []string) error
}

// Watcher reports machines.
type Watcher interface {
	// Watch calls observe for every existing machine and for every change after that, until
	// ctx is done. Calls are sequential. It calls synced once, after the first complete list.
	Watch(ctx context.Context, observe func(Machine), synced func()) error
}

// Expecter is a Watcher of a cloud that tells of nothing by itself, so that it is listed now and then.
type Expecter interface {
	// Expect tells that another process launches machines: they are to be observed as soon as if
	// this one had.
	Expect()
}

// Lister is a Watcher of a cloud that is listed now and then.
type Lister interface {
	// ListedAt returns when the machines of the group were listed last; zero where that is not known. Before the first list it is when
	// the watch began.
	ListedAt(g *v1alpha1.NodeGroup) time.Time
}

// Lists are the clouds that are listed, by their name.
type Lists map[v1alpha1.Provider]Lister

// ListsOf returns those of the clouds that are listed.
func ListsOf(providers map[v1alpha1.Provider]Provider) Lists {
	out := Lists{}
	for name, p := range providers {
		if l, ok := p.(Lister); ok {
			out[name] = l
		}
	}
	return out
}

// At returns when the machines of the group were listed last; zero for a cloud that is not listed. Until a group has been listed once it
// is when the group was created: what its cloud has not listed before that is no failure.
func (l Lists) At(g *v1alpha1.NodeGroup) time.Time {
	cloud := l[g.Spec.Provider]
	if cloud == nil {
		return time.Time{}
	}
	listed, created := cloud.ListedAt(g), g.CreationTimestamp.Time
	if !listed.IsZero() && listed.Before(created) {
		return created
	}
	return listed
}

// Provider is a cloud with all capabilities that Muster requires.
type Provider interface {
	Launcher
	Taker
	Watcher
}

// Cluster is what the adapters of all clouds know of the cluster that they work for.
type Cluster struct {
	// UID of the namespace kube-system. Whatever an adapter makes carries it. Machines with
	// another one are another cluster's, even if both clusters have the same name: kubeadm
	// names all of them kubernetes, and a restored copy has the name of its original.
	UID string
	// Groups lists the NodeGroups.
	Groups func(context.Context) ([]*v1alpha1.NodeGroup, error)
	// MayAct returns an error while another process may act in place of this one: nothing is
	// changed then. nil means that there is no other.
	MayAct func() error
	// InUse is consulted before machines are terminated that were not named to the adapter.
	InUse InUse
}

// InUse returns the names of those of the machines that run pods or that a request has booked. nil means that none is.
type InUse func(ctx context.Context, machines []Machine) (map[string]bool, error)

// Part returns the machines that are in use, and the others.
func (f InUse) Part(ctx context.Context, machines []Machine) (used, free []Machine, err error) {
	if f == nil {
		return nil, machines, nil
	}
	names, err := f(ctx, machines)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range machines {
		if names[m.Name] {
			used = append(used, m)
		} else {
			free = append(free, m)
		}
	}
	return used, free, nil
}

// Error is an error of a cloud.
type Error struct {
	// Class tells what to do next.
	Class v1alpha1.ErrorClass
	// Code and Message are the cloud's own.
	Code    string
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s (%s)", e.Code, e.Class)
	}
	return fmt.Sprintf("%s (%s): %s", e.Code, e.Class, e.Message)
}

// IsRefused reports whether a cloud has refused a call, so that a retry fails too until something changes.
func IsRefused(err error) bool {
	e := CauseOf(err)
	return e != nil && !e.Passes()
}

// Passes reports whether the error passes by itself, so that a retry may succeed though nothing has been changed.
func (e *Error) Passes() bool { return e.Class == v1alpha1.Throttle || e.Class == v1alpha1.Outage }

// ErrUnderWay is the error of a launch whose call the cloud has accepted and not finished yet: nothing has failed.
var ErrUnderWay = errors.New("the operation is still running")

// Inconclusive returns err, of a call beside the one that makes machines, as an error that says nothing about the outcome of a
// launch: Refusal does not find the cloud's error in it, CauseOf does.
func Inconclusive(err error) error {
	if err == nil {
		return nil
	}
	return &inconclusive{err}
}

type inconclusive struct{ cause error }

func (i *inconclusive) Error() string { return i.cause.Error() }

// Is keeps errors such as a cancelled context recognizable. The cloud's own is not: see CauseOf.
func (i *inconclusive) Is(target error) bool { return errors.Is(i.cause, target) }

// CauseOf returns the cloud's error in err, also in one that is Inconclusive, or nil if there is none.
func CauseOf(err error) *Error {
	var i *inconclusive
	if errors.As(err, &i) {
		return CauseOf(i.cause)
	}
	return Refusal(err)
}

// Refusal returns the cloud's error in err, or nil if there is none.
func Refusal(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
