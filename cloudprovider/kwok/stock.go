package kwok

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// stock has the machines of one group in the simulated cloud. It is read from the API server once and then updated by this process's calls
// and by Watch, so that the cost of a launch depends on its own size and not on that of the group.
type stock struct {
	// launching lets one launch of the group run at a time: two concurrent ones would both take the last machine.
	launching sync.Mutex

	mu sync.Mutex
	// machines by name; nil before the first read.
	machines map[string]*kwokv1alpha1.Machine
	// next is the ordinal of the next machine, remembered the one in the status of the NodeGroup.
	next, remembered int64
}

func (p *Provider) stockOf(group string) *stock {
	s, _ := p.stocks.LoadOrStore(group, &stock{})
	return s.(*stock)
}

// read reads the machines of the group once.
func (s *stock) read(ctx context.Context, live client.Reader, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machines != nil {
		return nil
	}
	group := &v1alpha1.NodeGroup{}
	if err := client.IgnoreNotFound(live.Get(ctx, client.ObjectKey{Name: name}, group)); err != nil {
		return fmt.Errorf("read NodeGroup %s: %w", name, err)
	}
	all := &kwokv1alpha1.MachineList{}
	if err := live.List(ctx, all, client.MatchingLabels{v1alpha1.NodeGroupLabel: name}); err != nil {
		return fmt.Errorf("list the machines of NodeGroup %s: %w", name, err)
	}
	s.machines = make(map[string]*kwokv1alpha1.Machine, len(all.Items))
	s.next, s.remembered = group.Status.Launched, group.Status.Launched
	for i := range all.Items {
		s.put(&all.Items[i])
	}
	return nil
}

// note records a state of a machine. A terminated machine stays terminated.
func (s *stock) note(m *kwokv1alpha1.Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machines == nil {
		return
	}
	if old := s.machines[m.Name]; old == nil || old.UID != m.UID || old.Status.Phase != kwokv1alpha1.MachineTerminated {
		s.put(m)
	}
}

func (s *stock) put(m *kwokv1alpha1.Machine) {
	s.machines[m.Name] = m
	s.next = max(s.next, m.Spec.Ordinal+1)
}

func (s *stock) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.machines, name)
}

// doubt makes the next call read the machines again: a call has failed, and may have taken effect.
func (s *stock) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = nil
}

// all returns all machines, and the next ordinal.
func (s *stock) all() ([]*kwokv1alpha1.Machine, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.machines)), s.next
}

// remember writes the next ordinal to the status of the NodeGroup. It is needed after the machines, which have ordinals of their own, are
// deleted.
func (s *stock) remember(ctx context.Context, w client.Client, group string) error {
	s.mu.Lock()
	next, known := s.next, s.next <= s.remembered
	s.mu.Unlock()
	if known {
		return nil
	}
	ng := &v1alpha1.NodeGroup{}
	ng.Name = group
	patch := fmt.Appendf(nil, `{"status":{"launched":%d}}`, next)
	if err := client.IgnoreNotFound(w.Status().Patch(ctx, ng, client.RawPatch(types.MergePatchType, patch))); err != nil {
		return fmt.Errorf("record in the status of NodeGroup %s that %d machines were launched: %w", group, next, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remembered = max(s.remembered, next)
	return nil
}
