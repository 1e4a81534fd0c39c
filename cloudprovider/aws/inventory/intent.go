package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
)

// Intent is a tag on an Auto Scaling group that says what LaunchInstances is about
// to make, since that call has no tags for its machines. It is there from before the
// call until lists show them with their own tags; meanwhile it is listed as a hold, and machines of the
// group that may be of the call as unattributed. Taking it back repeats the call, which makes nothing
// twice and names what there is.
type Intent struct {
	AutoScalingGroup string
	// Call is the client token of the call.
	Call  string
	Count int
	Zone  string
	At    time.Time
	// Until is when calls end to begin, unless the tag says a later time by then.
	Until  time.Time
	Group  string
	Launch string
	// Request is the ProvisioningRequest behind the launch, where that is known: the tag of an
	// intent has no room for it.
	Request string
	// Cluster is the UID of the cluster whose launch it is.
	Cluster string
}

const (
	// IntentTag, followed by the client token, is the key of an intent.
	IntentTag = "muster.dev/launch."
	// HoldPrefix begins the name of an intent as a hold.
	HoldPrefix = "launch-instances/"
	// Skew is the tolerated error of the time that is derived from responses of AWS.
	Skew = time.Minute
)

// Tag of the group that is the intent.
func (i *Intent) Tag() asgtypes.Tag {
	return asg.Tag(i.AutoScalingGroup, IntentTag+i.Call, fmt.Sprintf("%d %d %s %s %s %s %d", i.At.Unix(), i.Count, i.Zone, i.Group, i.Launch,
		i.Cluster, int(i.Until.Sub(i.At).Seconds())))
}

func (i *Intent) hold() cloudprovider.Machine {
	return cloudprovider.Machine{Name: HoldPrefix + i.AutoScalingGroup + "/" + i.Call, Group: i.Group, Launch: i.Launch,
		Scope: AutoScalingScope, Hold: true, ProviderID: providerID(i.Zone, i.Call)}
}

// Intents of a group, by their calls.
func Intents(g *asgtypes.AutoScalingGroup) (out []Intent) {
	for _, t := range g.Tags {
		call, ok := strings.CutPrefix(api.Deref(t.Key), IntentTag)
		if !ok {
			continue
		}
		i := Intent{AutoScalingGroup: api.Deref(g.AutoScalingGroupName), Call: call}
		var at, until int64
		read, _ := fmt.Sscanf(api.Deref(t.Value), "%d %d %s %s %s %s %d", &at, &i.Count, &i.Zone, &i.Group, &i.Launch, &i.Cluster, &until)
		if read < 7 {
			continue // not of Muster's writing
		}
		i.At = time.Unix(at, 0)
		i.Until = i.At.Add(time.Duration(until) * time.Second)
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Intent) int { return strings.Compare(a.Call, b.Call) })
	return out
}

// IntentOf is that of a call on a group; nil for none.
func IntentOf(g *asgtypes.AutoScalingGroup, call string) *Intent {
	all := Intents(g)
	if i := slices.IndexFunc(all, func(i Intent) bool { return i.Call == call }); i >= 0 {
		return &all[i]
	}
	return nil
}

// MayHaveMade reports whether the machine of its group, which carries no launch, may be of
// the intent's call.
func (i *Intent) MayHaveMade(in *Instance) bool {
	return in.Launch == "" && in.Zone == i.Zone && in.Launched.After(i.At.Add(-Skew))
}

// Named returns the machines that are listed under the launch of the intent, including terminated ones.
func (v *Inventory) Named(ctx context.Context, i *Intent) (map[string]*Instance, error) {
	return v.Instances(ctx, append(v.Ours(), TagFilter(LaunchTag, i.Launch), TagFilter(NodeGroupTag, i.Group))...)
}

// EndIntent takes the intent's tag off the group.
func (v *Inventory) EndIntent(ctx context.Context, i *Intent) error {
	if err := v.api.DeleteTags(ctx, i.Tag()); err != nil {
		return fmt.Errorf("the launch is over, but its tag on Auto Scaling group %s remains: %w", i.AutoScalingGroup, err)
	}
	return nil
}
