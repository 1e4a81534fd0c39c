package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// portion of a dense reservation: a block or a sub-block, with a host for each machine.
type portion struct {
	// path is what a reservation affinity calls it, as Google's documents of GKE on A3 Ultra, A4 and A4X have it:
	// projects/…/reservations/…/reservationBlocks/…, and of a sub-block /reservationSubBlocks/… behind that.
	path string
	// domain is the value that the node label of the level has on its machines.
	domain string
	// sure is how many hosts are free if none that is degraded has a machine, and most if each of them has one.
	sure, most int
}

// fit is the portion that a number of machines go into: the one with the fewest free hosts that holds all, so that room for larger
// gangs stays; false where none does.
func fit(all []portion, count int) (portion, bool) {
	for _, free := range []func(portion) int{func(p portion) int { return p.sure }, func(p portion) int { return p.most }} {
		room := slices.DeleteFunc(slices.Clone(all), func(p portion) bool { return free(p) < count })
		if len(room) > 0 {
			return slices.MinFunc(room, func(a, b portion) int { return free(a) - free(b) }), true // the first one of equals
		}
	}
	return portion{}, false
}

// Dense reads the free capacity of reservations before anything is launched there.
type Dense struct {
	cloud *api.Client
	// chosen are the paths of portions by launch: a call that is repeated is the same call, though its machines fill the portion by now.
	chosen *poll.Recent[string, string]
}

// NewDense returns a Dense. It makes no call.
func NewDense(cloud *api.Client, clock clock.PassiveClock) *Dense {
	return &Dense{cloud: cloud, chosen: poll.NewRecent[string, string](rememberCalls, clock)}
}

// rememberCalls is how long the cloud recognizes a call by its requestId.
const rememberCalls = time.Hour

// In is the portion of the reservation of a template that a launch goes into, as a reservation affinity calls it. It is empty where
// the launch goes where the template says: its machines may be anywhere, or nothing is known of portions.
func (d *Dense) In(ctx context.Context, req cloudprovider.LaunchRequest, t *template.Template) (path string, err error) {
	id := t.Reservation
	if id.Name == "" || id.Part || req.Together.Level != template.BlockLabel && req.Together.Level != template.SubblockLabel {
		return "", nil
	}
	key := req.Group.Name + "/" + req.Token
	if path, ok := d.chosen.Of(key); ok {
		return path, nil
	}
	portions, err := d.portions(ctx, id, inventory.ZoneOf(req.Group), req.Together.Level == template.SubblockLabel)
	if cause := cloudprovider.CauseOf(err); errors.Is(err, api.ErrDenied) || cause != nil && cause.Class == v1alpha1.Config {
		return "", nil // one without blocks, or that may not be read: machines are judged by the labels of their nodes
	}
	if err != nil {
		return "", fmt.Errorf("listing the blocks of reservation %s: %w", id.Name, err)
	}
	if req.Together.Value != "" {
		portions = slices.DeleteFunc(portions, func(p portion) bool { return p.domain != req.Together.Value })
	}
	if len(portions) == 0 {
		return "", nil
	}
	chosen, ok := fit(portions, req.Count)
	if !ok {
		largest := slices.MaxFunc(portions, func(a, b portion) int { return a.most - b.most })
		return "", &cloudprovider.Error{Class: v1alpha1.Stockout, Code: "NoRoomTogether",
			Message: fmt.Sprintf("%d machines must be in one domain of %s, and the largest free part of reservation %s, %s, has at most %d "+
				"free hosts: none was launched", req.Count, req.Together.Level, id.Name, api.Base(largest.path), largest.most)}
	}
	d.chosen.Note(key, chosen.path)
	return chosen.path, nil
}

// portions are the blocks of a reservation, or their sub-blocks. Only these report how many of their hosts are healthy.
func (d *Dense) portions(ctx context.Context, id template.ReservationID, zone string, sub bool) (out []portion, err error) {
	blocks, err := d.cloud.ReservationBlocks(ctx, id.Project, zone, id.Name)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		parent := "reservations/" + id.Name + "/reservationBlocks/" + b.GetName()
		all, err := d.cloud.ReservationSubBlocks(ctx, id.Project, zone, parent)
		if err != nil {
			return nil, err
		}
		whole := portion{path: "projects/" + id.Project + "/" + parent, domain: b.GetPhysicalTopology().GetBlock()}
		for _, s := range all {
			count, inUse := s.GetCount(), max(s.GetInUseCount(), s.GetInUseHostCount())
			healthy := count - s.GetHealthInfo().GetDegradedHostCount()
			p := portion{
				path: whole.path + "/reservationSubBlocks/" + s.GetName(), domain: s.GetPhysicalTopology().GetSubBlock(),
				sure: int(max(0, healthy-inUse)), most: int(max(0, min(count-inUse, healthy))),
			}
			whole.sure, whole.most = whole.sure+p.sure, whole.most+p.most
			if sub {
				out = append(out, p)
			}
		}
		if !sub {
			out = append(out, whole)
		}
	}
	return out, nil
}
