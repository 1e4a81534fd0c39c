package launch

import (
	"cmp"
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// gather finds the placement group that a launch needs to know: the owner's, which a reservation must be made in, or else one of
// Muster's own where its machines must be together. It leaves reservations alone that were bought: those of their places that
// are not in the placement group would be left out. A launch that gets none goes on: its machines may be near each other all the
// same, and are judged by the labels of their nodes.
func (r *Launcher) gather(ctx context.Context, l *launch) (err error) {
	own, placed := ownPlacement(l)
	switch {
	case l.Group.Spec.CapacityType == v1alpha1.Reserved || len(l.reserved) > 0:
		return nil
	case own != "" && l.spec.LaunchMethod == v1alpha1.AWSReservation:
		l.gathered, err = r.placements.Find(ctx, own)
	case placed || l.Together.Level == "" || l.Together.Value != "" && l.neighbours == "":
		return nil
	default:
		l.gathered, err = r.placements.For(ctx, l.LaunchRequest, l.neighbours)
	}
	if cloudprovider.IsRefused(err) {
		return nil
	}
	return err
}

// ownPlacement is where the owner of the Auto Scaling group has said that its machines are: the name of a placement group, if
// that is what it is. Whatever else it is, a call that names a placement group might undo it.
func ownPlacement(l *launch) (group string, placed bool) {
	at := l.template.Placement
	if at == nil {
		at = &ec2types.LaunchTemplatePlacement{}
	}
	group = cmp.Or(api.Deref(l.group.PlacementGroup), api.Deref(at.GroupName))
	shared := at.Tenancy == "" || at.Tenancy == ec2types.TenancyDefault
	return group, group != "" || at.GroupId != nil || at.HostResourceGroupArn != nil || !shared
}

// placement of the machines of a launch; nil where it is left to the launch template.
func (l *launch) placement() *ec2types.Placement {
	switch {
	case l.group.PlacementGroup != nil:
		return &ec2types.Placement{GroupName: l.group.PlacementGroup}
	case l.gathered != nil:
		return &ec2types.Placement{GroupName: aws.String(l.gathered.Name)}
	default:
		return nil
	}
}
