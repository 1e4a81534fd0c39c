// Package cloudprovider is the interface between Muster and the clouds. Interfaces are split by capability; an adapter implements those
// that its cloud has. The terms: a machine is what the cloud bills, a node is what registers in the cluster, a launch is one call for a
// number of machines, identified by a token.
package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// State of a machine. States only advance, so a lower state that is observed after a higher one is outdated, unless the machine has been
// started again, see Machine.Restarted.
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

// Machine is a machine as its cloud lists it.
type Machine struct {
	// Name is the cloud's own name of the machine, unique in its group.
	Name string
	// Group is the NodeGroup that the machine belongs to.
	Group string
	// Launch is the token of the launch that made it; empty if Muster did not make it.
	Launch string
	// ProviderID is the spec.providerID of the machine's node.
	ProviderID string
	// Scope is the part of the cloud whose list has the machine, such as a zone, if a part may fail while others respond; empty in a
	// cloud that is listed as a whole.
	Scope string
	State State
	// Started is when the machine was last started, by the clock of its cloud; zero if it is not known yet.
	Started time.Time
	// EndsAt is when the cloud ends the machine by itself, as at the end of a Capacity Block or of its maximum run time; zero for never.
	EndsAt time.Time
	// Kept says that a Terminated machine still exists. Either its cloud has only stopped it, so that its disks are billed and it may be
	// started again, or its group retains it until it is terminated once more.
	Kept bool
	// Billed says that a Terminated machine still costs its price, such as one that a lifecycle hook delays.
	Billed bool
	// Hold says that this is not a machine but a capacity reservation, or a request in the cloud's own queue, which will make machines.
	// It is listed as Booting under the token of its launch, so that a rollback terminates it by name like a machine. When it is used up
	// it is Gone.
	Hold bool
	// Unattributed reports whether a launch in flight may have made the machine, which has no launch yet. Muster leaves it alone until
	// that launch has ended.
	Unattributed bool
	// Reason why the machine is Terminated, in the cloud's words.
	Reason string
	// Class of the reason, if a replacement would end for the same reason; empty for a machine that is worth replacing.
	Class v1alpha1.ErrorClass
}

// Counts reports whether it is a machine that has not ended.
func (m Machine) Counts() bool { return !m.Hold && m.State < Terminated }

// Costs reports whether it is a machine that is billed: one that has not ended, or that its cloud still bills while it ends.
func (m Machine) Costs() bool { return m.Counts() || !m.Hold && m.State == Terminated && m.Billed }

// Restarted reports whether the machine has been started again since it was observed as old. If so, its state replaces the old one, even
// if it is lower.
func (m Machine) Restarted(old Machine) bool {
	return !old.Started.IsZero() && m.Started.After(old.Started)
}

// LaunchRequest requests machines.
type LaunchRequest struct {
	Group *v1alpha1.NodeGroup
	// Count is the number of machines, at least 1.
	Count int
	// Token identifies the launch. A repeated call with the same token, as after a crash, makes no machine twice and returns the machines
	// of the first call.
	Token string
	// Request is the ProvisioningRequest of the launch, as namespace/name.
	Request string
	// Together is the domain that all machines must be in; its level is empty if they may be anywhere. An adapter does what its cloud
	// offers for it, and may do nothing: nodes are checked by their labels after they have joined. A launch that certainly misses the
	// domain is refused.
	Together Domain
}

// Domain is the set of nodes with one value of a node label, such as a rack.
type Domain struct {
	// Level is the key of the label.
	Level string
	// Value is empty if the cloud chooses.
	Value string
}

// Launcher makes machines.
type Launcher interface {
	// Launch makes req.Count machines whose nodes are created cordoned and with the token. It returns the machines that exist under the
	// token, even with an error: a caller that gets fewer than Count has to terminate them. Only the call that makes machines can refuse
	// a launch, with an *Error. The error of any other call is Inconclusive. After an error other than *Error the call has to be
	// repeated. Launch may block for as long as the cloud's call takes, but not until nodes join. Machines that exist and do not have the
	// token yet are not returned: a hold stands for them, and the watch reports them as Unattributed.
	Launch(ctx context.Context, req LaunchRequest) ([]Machine, error)
}

// Terminator terminates machines.
type Terminator interface {
	// Terminate terminates the named machines of a group, and deletes their nodes. The termination of a hold includes the machines that it
	// has made, unless they are in use, see Cluster.InUse. Names that do not exist are no error. Terminate returns when the cloud has
	// accepted the termination. The adapter repeats it until lists show that the machine has ended.
	Terminate(ctx context.Context, group string, names []string) error
}

// Watcher reports machines.
type Watcher interface {
	// Watch calls observe for every existing machine and for every change after that, until
	// ctx is done. Calls are sequential. It calls synced once, after the first complete list.
	Watch(ctx context.Context, observe func(Machine), synced func()) error
}

// Expecter is a Watcher of a cloud that has no events, so that its machines are listed at an interval.
type Expecter interface {
	// Expect says that another process launches machines. They are observed as soon as if this process had launched them.
	Expect()
}

// Lister is a Watcher of a cloud whose machines are listed at an interval.
type Lister interface {
	// ListedAt returns when the machines of the group were last listed; zero if unknown. Before the first list, it is when the watch
	// started.
	ListedAt(g *v1alpha1.NodeGroup) time.Time
}

// Lists are the clouds that are listed, by name.
type Lists map[v1alpha1.Provider]Lister

// ListsOf returns the clouds that are listed.
func ListsOf(providers map[v1alpha1.Provider]Provider) Lists {
	out := Lists{}
	for name, p := range providers {
		if l, ok := p.(Lister); ok {
			out[name] = l
		}
	}
	return out
}

// At returns when the machines of the group were last listed; zero for a cloud that is not listed. Before the first list of a group, it is
// when the group was created: until then, a missing list is no failure.
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
	Terminator
	Watcher
}

// Cluster has what the adapters of all clouds need about their cluster.
type Cluster struct {
	// UID of the namespace kube-system. All that an adapter creates has this UID. Machines with another one belong to another cluster,
	// even if both clusters have the same name: kubeadm names all clusters kubernetes, and a restored copy has the name of its original.
	UID string
	// Groups lists the NodeGroups.
	Groups func(context.Context) ([]*v1alpha1.NodeGroup, error)
	// MayAct returns an error while another process may act in place of this one: then nothing is changed. nil means that there is no
	// other process.
	MayAct func() error
	// InUse is called before machines are terminated that were not named to the adapter.
	InUse InUse
}

// InUse returns the names of the machines that run pods or that a request has booked. A nil InUse means that none is in use.
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
	// Class says what to do next.
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

// Passes reports whether the error passes by itself, so that a retry may succeed without a change.
func (e *Error) Passes() bool { return e.Class == v1alpha1.Throttle || e.Class == v1alpha1.Outage }

// ErrUnderWay is the error of a launch whose call the cloud has accepted and not finished yet: nothing has failed.
var ErrUnderWay = errors.New("the operation is still running")

// Inconclusive wraps err, of a call other than the one that makes machines, as an error without an outcome of the launch: Refusal does not
// find the cloud's error in it, CauseOf does.
func Inconclusive(err error) error {
	if err == nil {
		return nil
	}
	return &inconclusive{err}
}

type inconclusive struct{ cause error }

func (i *inconclusive) Error() string { return i.cause.Error() }

// Is finds errors such as a cancelled context. It does not find the cloud's own error: see CauseOf.
func (i *inconclusive) Is(target error) bool { return errors.Is(i.cause, target) }

// CauseOf returns the cloud's error in err, even if it is Inconclusive, or nil if there is none.
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
