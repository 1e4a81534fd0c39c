package cloudprovider

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Enabled is the tag or label, of any value, with which a cloud group opts in.
const Enabled = "muster.dev/enabled"

// Discoverer finds the groups of a cloud that are opted in.
type Discoverer interface {
	// Discover lists the current groups. An error means that the list is unknown, not that it is empty.
	Discover(ctx context.Context) (Discovery, error)
}

// Discovery is the result of a discovery.
type Discovery struct {
	Groups []Found
	// Refused groups are opted in, but cannot be used.
	Refused []Refused
}

// Found is an offering of a cloud group, from which a NodeGroup is made.
type Found struct {
	// Name for the NodeGroup, see GroupName.
	Name string
	Spec v1alpha1.NodeGroupSpec
	// Warnings say what may interfere with the group.
	Warnings []Warning
}

// Warning says what interferes with Muster in a group, or lets other pods in. Reason is a condition reason, Message says what to do.
type Warning struct{ Reason, Message string }

// The reasons of warnings that several clouds share.
const (
	// BornOpen groups create nodes to which other pods may be bound before Muster cordons them.
	BornOpen = "BornOpen"
	// OtherAutoscaler: something else changes the size of the group.
	OtherAutoscaler = "OtherAutoscaler"
)

// Refused is a group that cannot be used.
type Refused struct {
	// Group is its name in the cloud.
	Group string
	// Reason says why, and what to do.
	Reason string
}

// GroupName returns the name of the NodeGroup of an offering: a readable prefix, and a hash of
// the identity, which is unique over all clouds.
func GroupName(readable string, identity ...string) string {
	const most = 63 - 1 - 8
	sum := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:8])
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, readable)
	clean = strings.Trim(clean[:min(len(clean), most)], "-")
	if clean == "" {
		return "group-" + hash
	}
	return clean + "-" + hash
}

// Examiner finds missing permissions in a cloud.
type Examiner interface {
	// MissingPermissions tests Muster's calls without effect, and returns the missing permissions by the cloud's names.
	MissingPermissions(ctx context.Context) ([]string, error)
}

// Advisor returns the cloud's own estimate of launches.
type Advisor interface {
	// Advise returns, for each of the groups, the estimated chance of a launch of count
	// machines; groups without an estimate are missing.
	Advise(ctx context.Context, groups []*v1alpha1.NodeGroup, count int) (map[string]Advice, error)
}

// Advice is a cloud's own estimate of a launch. It is a hint: the outcomes of launches weigh
// more.
type Advice struct {
	// Chance in parts per thousand.
	Chance int32
	// Source names the call that it comes from.
	Source string
}
