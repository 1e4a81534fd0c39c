package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// seenGroup is a group as it was last seen, and when that was.
type seenGroup struct {
	*v1alpha1.NodeGroup
	at time.Time
}

// SetGroups remembers groups as they are now.
func (v *Inventory) SetGroups(groups ...*v1alpha1.NodeGroup) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range groups {
		if g.Spec.Provider == v1alpha1.ProviderGCP && g.Spec.GCP != nil {
			if old := v.seen[g.Name].NodeGroup; old != nil && launches(old) != launches(g) {
				v.Touch(ManagerOf(g))
			}
			v.seen[g.Name] = seenGroup{g, v.config.Clock.Now()}
		}
	}
}

// launches is the record of the launches of another process, which changes when it makes one.
func launches(g *v1alpha1.NodeGroup) string {
	return g.Annotations[v1alpha1.AutoscalerLaunchesAnnotation]
}

// Touch notes that something changes the members of a managed instance group: it is listed often for a while.
func (v *Inventory) Touch(id api.Manager) { v.touched.Note(id, struct{}{}) }

// Groups are the groups that have been seen, by name.
func (v *Inventory) Groups() []*v1alpha1.NodeGroup {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*v1alpha1.NodeGroup
	for _, name := range slices.Sorted(maps.Keys(v.seen)) {
		out = append(out, v.seen[name].NodeGroup)
	}
	return out
}

// refresh reads which NodeGroups there are.
func (v *Inventory) refresh(ctx context.Context) (exist map[string]bool, err error) {
	groups, err := v.config.NodeGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing NodeGroups: %w", err)
	}
	exist = map[string]bool{}
	for _, g := range groups {
		v.SetGroups(g)
		exist[g.Name] = true
	}
	return exist, nil
}

// Group returns the NodeGroup as it is, or was; nil if unknown.
func (v *Inventory) Group(ctx context.Context, name string) (*v1alpha1.NodeGroup, error) {
	find := func() *v1alpha1.NodeGroup {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.seen[name].NodeGroup
	}
	if g := find(); g != nil {
		return g, nil
	}
	_, err := v.refresh(ctx)
	return find(), err
}

// Refresh reads which NodeGroups there are, for Known.
func (v *Inventory) Refresh(ctx context.Context) error {
	_, err := v.refresh(ctx)
	return err
}
