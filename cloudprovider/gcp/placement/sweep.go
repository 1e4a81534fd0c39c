package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
)

const (
	// sweepAfter is how long nothing has needed a placement policy that is deleted, as far as this process has seen: longer than
	// lists lag, and than it takes to launch with a policy that was just made. A launch that comes back later makes it again.
	sweepAfter = 5 * time.Minute
	// lookAgain is how often it is looked for policies that this process does not know of: those of a process before it, and
	// those of calls that came late. They cost nothing.
	lookAgain = time.Hour
)

// Sweep deletes the policies of a project that nothing needs any more, given all of Muster's machines there. The cloud keeps those
// that have machines of which lists do not know. What fails is tried again.
func (s *Policies) Sweep(ctx context.Context, project string, machines []*computepb.Instance) {
	for _, in := range machines {
		s.need(s.ours(project, in)...)
	}
	if s.config.MayAct != nil && s.config.MayAct() != nil {
		return
	}
	var errs []error
	if err := s.look(ctx, project); err != nil {
		errs = append(errs, err)
	}
	for _, id := range s.unneeded(project) {
		err := s.cloud.DeletePolicy(ctx, id.project, id.region, id.name)
		if s.swept(id, err); err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, api.ErrInUse) {
			errs = append(errs, fmt.Errorf("deleting placement policy %s: %w", id.name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "Placement policies that no launch needs could not be deleted; it will be retried")
	}
}

// look finds the policies that this process does not know of, once in a while.
func (s *Policies) look(ctx context.Context, project string) error {
	s.mu.Lock()
	looked, before := s.looked[project]
	s.mu.Unlock()
	if before && s.config.Clock.Since(looked) < lookAgain {
		return nil
	}
	found, err := s.cloud.Policies(ctx, project, "name eq "+s.names.PolicyPrefix()+".*")
	if err != nil && !errors.Is(err, api.ErrDenied) {
		return fmt.Errorf("listing the placement policies of project %s: %w", project, err)
	}
	now := s.config.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	// One that is denied is not asked for again soon: the examination of permissions tells of it.
	s.looked[project] = now
	for region, policies := range found.Items {
		for _, policy := range policies {
			id := policyID{project, region, policy.GetName()}
			if _, known := s.needed[id]; !known {
				s.needed[id] = now
			}
		}
	}
	return nil
}

// unneeded are the policies of a project that nothing has needed for a while.
func (s *Policies) unneeded(project string) (out []policyID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range s.needed {
		if id.project == project && s.config.Clock.Since(at) >= sweepAfter {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b policyID) int { return strings.Compare(a.region+"/"+a.name, b.region+"/"+b.name) })
	return out
}

// swept notes how the deletion of one went. One that was accepted is tried again until the cloud does not find it, since its operation
// may fail; one that was refused, as while it has machines, is not tried again soon either.
func (s *Policies) swept(id policyID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, api.ErrNotFound) {
		delete(s.needed, id)
	} else if err == nil || cloudprovider.Refusal(err) != nil {
		s.needed[id] = s.config.Clock.Now()
	}
}
