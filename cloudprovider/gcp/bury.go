package gcp

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
)

// burial is how long a machine that has ended by itself is kept, so that its end is observed
// and a person can examine it.
const burial = 10 * time.Minute

// corpse is a machine that has ended by itself.
type corpse struct{ group, name string }

// bury deletes the machines of launches that ended by themselves a while ago. The cloud only
// stops them: until they are deleted their disks are billed, and those that a managed
// instance group owns count towards its limit.
func (p *Provider) bury(ctx context.Context, machines []cloudprovider.Machine) error {
	var errs []error
	due := p.overdue(machines)
	for _, group := range slices.Sorted(maps.Keys(due)) {
		errs = append(errs, p.takeBack(ctx, group, due[group]))
	}
	return errors.Join(errs...)
}

// overdue are the names of those that were first seen ended long enough ago, by group.
func (p *Provider) overdue(machines []cloudprovider.Machine) map[string][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	due, dead := map[string][]string{}, map[corpse]time.Time{}
	for _, m := range machines {
		if m.Launch == "" || m.State != cloudprovider.Terminated {
			continue
		}
		c := corpse{m.Group, m.Name}
		since, known := p.dead[c]
		if !known {
			since = p.Clock.Now()
		}
		dead[c] = since
		if p.Clock.Since(since) >= burial {
			due[m.Group] = append(due[m.Group], m.Name)
		}
	}
	p.dead = dead
	return due
}
