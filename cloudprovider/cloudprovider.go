// Package cloudprovider is the seam between Muster and whoever has machines.
// Interfaces are split by capability; an adapter implements those that its cloud
// has. The words: a machine is what the cloud bills, a node is what registers in
// the cluster, a launch is one call for a number of machines, named by a token.
package cloudprovider

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// State is where a machine is in its life. States only ever grow: an observer
// that hears of a lower state after a higher one has heard old news.
type State int

const (
	// Booting machines are paid for and have no node yet.
	Booting State = iota
	// Running machines have registered their node.
	Running
	// Terminated machines are gone for good; the cloud may still list them.
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
	// ProviderID is what the machine's node will carry in spec.providerID.
	ProviderID string
	State      State
	// Hold says that this is no machine but what machines are to come of: a capacity
	// reservation, or a request that waits in the cloud's own queue. It is listed as
	// Booting, under the token of its launch, so that whoever takes the launch back
	// ends it by name like a machine. One that is used up is Gone.
	Hold bool
	// Reason why the machine is Terminated, in the cloud's words.
	Reason string
}

// Counts says that it is a machine, and has not ended.
func (m Machine) Counts() bool { return !m.Hold && m.State < Terminated }

// LaunchRequest asks for machines.
type LaunchRequest struct {
	Group *v1alpha1.NodeGroup
	// Count is the number of machines, at least 1.
	Count int
	// Token names the launch. The same token is the same launch: repeating the
	// call after a crash makes no machine twice and returns those of the first.
	Token string
	// Request is the ProvisioningRequest behind the launch, as namespace/name.
	Request string
}

// Launcher makes machines.
type Launcher interface {
	// Launch makes req.Count machines that are born cordoned and carry the
	// token. It returns the machines that exist under the token, also beside an
	// error: whoever gets fewer than Count takes back those that came. An error
	// that is no *Error says nothing about the cloud: the call is to be repeated.
	// It may block for as long as the cloud's call takes, not until nodes join.
	Launch(ctx context.Context, req LaunchRequest) ([]Machine, error)
}

// Taker takes machines back.
type Taker interface {
	// TakeBack deletes the named machines of a group, and their nodes with
	// them. Names that do not exist (any more) are no error.
	TakeBack(ctx context.Context, group string, names []string) error
}

// Watcher tells of machines.
type Watcher interface {
	// Watch calls observe for every machine that exists and for every change
	// after that, until ctx is done. Calls come one at a time. It calls synced
	// once, after the first full picture.
	Watch(ctx context.Context, observe func(Machine), synced func()) error
}

// Provider is a cloud that can do all that Muster needs.
type Provider interface {
	Launcher
	Taker
	Watcher
}

// Error is a cloud's refusal.
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

// Refusal returns the cloud's refusal in err, or nil when err is none.
func Refusal(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
