package group

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
)

// LaunchMarker writes down, at once, which groups have a launch in flight, where their nodes
// bear a label by which they can be told. The policy muster-born-cordoned reads it.
// What it has not heard of in time is cordoned a moment after its birth.
type LaunchMarker struct {
	Client client.Client
	// Live reads past any cache.
	Live  client.Reader
	Model *model.Model
	// Synced waits for the first full picture of the Model; false if the context
	// ends first. Changed gets a value soon after each change of it.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	// ConfigMap that the policy reads.
	ConfigMap types.NamespacedName
	Clock     clock.WithTicker

	// told is what it says, as was read or written last; read is when it was read.
	told map[string]bool
	read time.Time
}

// readEvery is how often the ConfigMap is read again: others may edit it, and a restore of etcd sets it back.
const readEvery = time.Minute

// Start writes until ctx is done.
func (c *LaunchMarker) Start(ctx context.Context) error {
	if !c.Synced(ctx) {
		return nil
	}
	for {
		var again <-chan time.Time
		if err := c.tell(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("Writing the groups with a launch in flight will be retried; until then nodes may be created uncordoned",
				"reason", err.Error())
			again = c.Clock.After(pace)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Changed:
		case <-again:
		}
	}
}

func (c *LaunchMarker) tell(ctx context.Context) error {
	now := map[string]bool{}
	for _, name := range c.Model.Launching() {
		if g := c.Model.Group(name); g != nil {
			if label := g.Spec.Template.Labels[v1alpha1.CloudGroupLabel]; label != "" {
				now[label] = true
			}
		}
	}
	if c.told == nil || c.Clock.Since(c.read) >= readEvery {
		there := &corev1.ConfigMap{}
		if err := c.Live.Get(ctx, c.ConfigMap, there); err != nil {
			return fmt.Errorf("read ConfigMap %s: %w", c.ConfigMap, err)
		}
		c.told, c.read = map[string]bool{}, c.Clock.Now()
		for label := range there.Data {
			c.told[label] = true
		}
	}
	change := map[string]*string{}
	for label := range c.told {
		if !now[label] {
			change[label] = nil
		}
	}
	for label := range now {
		if !c.told[label] {
			change[label] = new(string)
		}
	}
	if len(change) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"data": change})
	if err != nil {
		return err
	}
	on := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ConfigMap.Namespace, Name: c.ConfigMap.Name}}
	if err := c.Client.Patch(ctx, on, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch ConfigMap %s: %w", c.ConfigMap, err)
	}
	c.told = maps.Clone(now)
	return nil
}
