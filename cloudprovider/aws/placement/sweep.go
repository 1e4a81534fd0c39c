package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
)

const (
	// SweepAfter is how long no launch has needed a placement group that is deleted, as far as this process has seen, since EC2
	// does not tell when one was made: longer than the calls of one launch take. A launch that comes back later makes it again.
	SweepAfter = 5 * time.Minute
	// LookAgain is how often it is looked for placement groups that this process does not know of.
	LookAgain = 10 * time.Minute
	// sweepPatience bounds how long a list waits for deletions.
	sweepPatience = 15 * time.Second
)

// need notes that a launch needs one.
func (g *Groups) need(name string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.needed[name] = now
}

// tell notes how the last launch fared that was to be in one. What is neither a success nor a refusal tells nothing.
func (g *Groups) tell(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.refused = ""
	} else if api.IsRefused(err) {
		g.refused = err.Error()
	}
}

// Refused tells why the last launch that was to be in one is in none; empty if it is.
func (g *Groups) Refused() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// Sweep deletes the placement groups that no launch needs any more, given the names of the groups that are in use. AWS refuses to delete
// a group that has machines which are not listed yet. A failed deletion is retried.
func (g *Groups) Sweep(ctx context.Context, used map[string]bool) {
	if g.mayAct() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	unneeded, err := g.unneeded(ctx, used)
	errs := []error{err}
	for _, name := range unneeded {
		err := g.api.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{GroupName: aws.String(name)})
		g.swept(name, err, g.clock.Now())
		if err != nil && !api.HasCode(err, api.UnknownPlacementGroup, "InvalidPlacementGroup.InUse") {
			errs = append(errs, fmt.Errorf("placement group %s: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "Placement groups that no launch needs could not be deleted; it will be retried")
	}
}

// unneeded are the names of those that no launch has needed for a while.
func (g *Groups) unneeded(ctx context.Context, used map[string]bool) (names []string, err error) {
	now := g.clock.Now()
	g.mu.Lock()
	look := now.Sub(g.looked) >= LookAgain
	g.mu.Unlock()
	var found []ec2types.PlacementGroup
	if look {
		found, err = g.List(ctx, g.cluster.Ours()...)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if look && (err == nil || api.IsRefused(err)) {
		g.looked = now
	}
	if api.IsDenied(err) {
		err = nil // the examination of permissions tells of it
	}
	for i := range found {
		name := api.Deref(found[i].GroupName)
		if _, known := g.needed[name]; !known {
			g.needed[name] = now
		}
	}
	for name, at := range g.needed {
		if used[name] {
			g.needed[name] = now
		} else if now.Sub(at) >= SweepAfter {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// swept notes how the deletion of one went. One that AWS refuses, as it does while something is in it, is not tried again soon.
func (g *Groups) swept(name string, err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil || api.HasCode(err, api.UnknownPlacementGroup) {
		delete(g.needed, name)
	} else if api.IsRefused(err) {
		g.needed[name] = now
	}
}
