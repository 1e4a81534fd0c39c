// Package rehearsal tries a cloud as a user would before relying on it: it checks permissions, groups and prices without changing
// anything, and launches a few machines as a gang, waits until they run, terminates them, and proves that nothing is left.
package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Check is the result of calls that change nothing.
type Check struct {
	// Missing are the permissions that the credentials lack, by the cloud's names. Examined is false for a cloud that is no Examiner.
	Missing  []string
	Examined bool
	// Discovery has the groups that would be used, and those that are refused.
	cloudprovider.Discovery
	// Quotas that the groups count against; none for a cloud that does not report them.
	Quotas []cloudprovider.Quota
	// Failed are the errors of calls.
	Failed []error
}

// Sound reports whether no permission is missing, no call failed, no group is refused, and quotas allow a machine of each.
func (c *Check) Sound() bool {
	for i := range c.Quotas {
		q := &c.Quotas[i]
		if q.Limit >= 0 && slices.ContainsFunc(q.Needs, func(n cloudprovider.QuotaNeed) bool { return n.Machines > 0 && q.Allows(n) == 0 }) {
			return false
		}
	}
	return len(c.Missing)+len(c.Failed)+len(c.Refused) == 0
}

// Examine checks a cloud without changing anything.
func Examine(ctx context.Context, p cloudprovider.Provider) (c Check) {
	if e, ok := p.(cloudprovider.Examiner); ok {
		var err error
		if c.Missing, err = e.MissingPermissions(ctx); err != nil {
			c.Failed = append(c.Failed, fmt.Errorf("checking permissions: %w", err))
		} else {
			c.Examined = true
		}
	}
	if d, ok := p.(cloudprovider.Discoverer); ok {
		var err error
		if c.Discovery, err = d.Discover(ctx); err != nil {
			c.Failed = append(c.Failed, fmt.Errorf("discovering groups: %w", err))
		}
	}
	if r, ok := p.(cloudprovider.QuotaReader); ok {
		var err error
		if c.Quotas, err = r.Quotas(ctx, c.Groups); err != nil {
			c.Failed = append(c.Failed, err)
		}
	}
	return c
}

// Launch is a rehearsal of a gang.
type Launch struct {
	Group    *v1alpha1.NodeGroup
	Machines int
	// Token of the launch. It must be unique.
	Token string
	// Patience limits how long the machines may take to run, and again how long they may take to end.
	Patience time.Duration
	// Nodes returns the provider IDs of the nodes that are Ready; nil to wait only until the machines run.
	Nodes func(context.Context) (map[string]bool, error)
	Clock clock.Clock
	// Report is called with each step that has ended.
	Report func(Step)
}

// Step is a part of a rehearsal.
type Step struct {
	Name string
	Took time.Duration
	// Says is the result of the step.
	Says string
	Err  error
}

// between is the interval between two checks.
const between = 2 * time.Second

// calm is for how long lists must show nothing of the launch to prove that nothing is left, since lists lag.
const calm = 2 * time.Minute

// Run launches the machines, waits, and terminates them in any case: even after ctx is done, within the patience. It returns the error of
// the first failed step.
func (l *Launch) Run(ctx context.Context, p cloudprovider.Provider) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{Launch: l, provider: p, seen: map[string]cloudprovider.Machine{}}
	var watch sync.WaitGroup
	synced := make(chan struct{})
	watch.Go(func() { _ = p.Watch(watching, r.observe, func() { close(synced) }) })
	defer watch.Wait()
	defer stop()
	select {
	case <-synced:
	case <-ctx.Done():
		return ctx.Err()
	}

	err := r.step("launch", func() (string, error) { return r.launch(ctx) })
	if err == nil {
		err = r.step("run", func() (string, error) { return r.wait(ctx) })
	}
	if err == nil && l.Nodes != nil {
		err = r.step("join", func() (string, error) { return r.join(ctx) })
	}
	end := r.step("terminate", func() (string, error) { return r.terminate(context.WithoutCancel(ctx)) })
	return errors.Join(err, end)
}

type run struct {
	*Launch
	provider cloudprovider.Provider

	mu sync.Mutex
	// seen are the machines and holds of the launch, by name.
	seen map[string]cloudprovider.Machine
}

func (r *run) observe(m cloudprovider.Machine) {
	if m.Launch != r.Token {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[m.Name] = m; m.State == cloudprovider.Gone {
		delete(r.seen, m.Name)
	}
}

// machines returns the machines of the launch that have not ended, and holds, by name.
func (r *run) machines() (out []cloudprovider.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.seen)) {
		if m := r.seen[name]; m.State < cloudprovider.Terminated || m.Kept {
			out = append(out, m)
		}
	}
	return out
}

func (r *run) step(name string, do func() (string, error)) error {
	began := r.Clock.Now()
	says, err := do()
	r.Report(Step{Name: name, Took: r.Clock.Since(began), Says: says, Err: err})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// until waits until so returns true, within the patience.
func (r *run) until(ctx context.Context, so func() bool) error {
	for began := r.Clock.Now(); !so(); r.pause(ctx) {
		if r.Clock.Since(began) >= r.Patience {
			return fmt.Errorf("not within %s", r.Patience)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// pause waits until the next check.
func (r *run) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-r.Clock.After(between):
	}
}

// launch repeats the call until the cloud has made the machines or refused them.
func (r *run) launch(ctx context.Context) (string, error) {
	var machines []cloudprovider.Machine
	var err error
	waited := r.until(ctx, func() bool {
		machines, err = r.provider.Launch(ctx, cloudprovider.LaunchRequest{
			Group: r.Group, Count: r.Machines, Token: r.Token, Request: "muster/cloud-check",
		})
		for _, m := range machines {
			r.observe(m)
		}
		return err == nil || cloudprovider.Refusal(err) != nil
	})
	if err != nil || waited != nil {
		return "", cmp.Or(err, waited)
	}
	return fmt.Sprintf("the cloud accepted %d machines", len(machines)), nil
}

// wait waits until all machines run.
func (r *run) wait(ctx context.Context) (string, error) {
	running := 0
	err := r.until(ctx, func() bool {
		running = 0
		for _, m := range r.machines() {
			if !m.Hold && m.State == cloudprovider.Running {
				running++
			}
		}
		return running >= r.Machines
	})
	return fmt.Sprintf("%d of %d machines run", running, r.Machines), err
}

// join waits until the machines have Ready nodes.
func (r *run) join(ctx context.Context) (string, error) {
	joined := 0
	var failed error
	err := r.until(ctx, func() bool {
		var nodes map[string]bool
		if nodes, failed = r.Nodes(ctx); failed != nil {
			return false
		}
		joined = 0
		for _, m := range r.machines() {
			if nodes[m.ProviderID] {
				joined++
			}
		}
		return joined >= r.Machines
	})
	if err != nil && failed != nil {
		err = failed
	}
	return fmt.Sprintf("%d of %d machines have a Ready node", joined, r.Machines), err
}

// terminate terminates all machines and holds of the launch, until lists have shown none for a while.
func (r *run) terminate(ctx context.Context) (string, error) {
	var last error
	ended, since := map[string]bool{}, r.listedAt()
	bound := r.Patience + calm
	began := r.Clock.Now()
	quietSince := began
	for ; r.Clock.Since(began) < bound; r.pause(ctx) {
		var names []string
		for _, m := range r.machines() {
			names = append(names, m.Name)
			if !m.Hold {
				ended[m.Name] = true
			}
		}
		if len(names) > 0 {
			since = r.listedAt()
			last = r.provider.Terminate(ctx, r.Group.Name, names)
			quietSince = r.Clock.Now()
		}
		// A cloud whose lists fail shows nothing, whatever is left.
		if r.Clock.Since(quietSince) >= calm && (since.IsZero() || r.listedAt().After(since)) {
			return fmt.Sprintf("%d machines were terminated; nothing of the launch was listed for %s after that", len(ended), calm), nil
		}
	}
	var left []string
	for _, m := range r.machines() {
		left = append(left, m.Name)
	}
	if len(left) == 0 {
		return "", errors.Join(fmt.Errorf("the cloud has not listed its machines since %s: look for machines of launch %s yourself",
			since.UTC().Format(time.RFC3339), r.Token), last)
	}
	return "", errors.Join(fmt.Errorf("left after %s, TERMINATE THEM YOURSELF: %v", bound, left), last)
}

// listedAt returns when the machines of the group were last listed; zero for a cloud that is not listed.
func (r *run) listedAt() time.Time {
	if l, ok := r.provider.(cloudprovider.Lister); ok {
		return l.ListedAt(r.Group)
	}
	return time.Time{}
}
