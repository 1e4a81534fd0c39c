package cloudprovider

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Enabled is the tag or label by which a cloud's own group says that it is Muster's,
// whatever its value.
const Enabled = "muster.dev/enabled"

// Discoverer finds the groups of a cloud that say that they are Muster's.
type Discoverer interface {
	// Discover lists them as they are now. An error means that the list is not
	// known, not that there are none.
	Discover(ctx context.Context) (Discovery, error)
}

// Discovery is what a look at the cloud has found.
type Discovery struct {
	Groups []Found
	// Refused groups say that they are Muster's, but cannot be used.
	Refused []Refused
}

// Found is an offering of a cloud's group: what a NodeGroup is to be.
type Found struct {
	// Name for the NodeGroup, see GroupName.
	Name string
	Spec v1alpha1.NodeGroupSpec
	// Warnings say what may disturb the group.
	Warnings []Warning
}

// Warning says what fights Muster over a group, or lets something slip in. Reason is
// a CamelCase word for a condition, Message says what to do.
type Warning struct{ Reason, Message string }

// Reasons of warnings that more than one cloud has.
const (
	// BornOpen groups make nodes that pods may slip onto in the moment before Muster
	// cordons them.
	BornOpen = "BornOpen"
	// OtherAutoscaler: something else changes the size of the group.
	OtherAutoscaler = "OtherAutoscaler"
)

// Refused is a group that cannot be used.
type Refused struct {
	// Group is the cloud's own name of it.
	Group string
	// Reason says why, and what to do.
	Reason string
}

// GroupName is the name of the NodeGroup of an offering: the readable parts of it
// that fit, and a hash of all that tells it from others, in other clouds too.
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

// Examiner finds out what Muster lacks in a cloud.
type Examiner interface {
	// MissingPermissions tries the calls that Muster makes, without effect, and
	// returns those that it may not make, as the cloud names them.
	MissingPermissions(ctx context.Context) ([]string, error)
}

// Advisor knows what a cloud says of its own chances.
type Advisor interface {
	// Advise says for each of the groups how likely the cloud gives that many
	// machines at once; groups of which it says nothing are missing.
	Advise(ctx context.Context, groups []*v1alpha1.NodeGroup, count int) (map[string]Advice, error)
}

// Advice is a cloud's own word on a launch. It is a hint: what launches have shown
// counts for more.
type Advice struct {
	// Chance in parts per thousand.
	Chance int32
	// Source is the call that it comes from, for humans.
	Source string
}
