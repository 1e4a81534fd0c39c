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

// LaunchMarker writes the groups with a launch in flight to a ConfigMap, if a label identifies the nodes of the group. The policy
// muster-born-cordoned reads the ConfigMap and cordons new nodes of these groups. If the ConfigMap is written too late, Muster cordons the
// node right after its creation.
type LaunchMarker struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live  client.Reader
	Model *model.Model
	// Synced waits for the sync of the Model. It returns false if the context ends first. Changed receives a value after each change of
	// the Model.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	// ConfigMap is the ConfigMap that the policy reads.
	ConfigMap types.NamespacedName
	Clock     clock.WithTicker

	// marked is the content that was last read or written. read is the time of the last read.
	marked map[string]bool
	read   time.Time
}

// readEvery is the interval between two reads of the ConfigMap: others may edit it, and a restore of etcd resets it.
const readEvery = time.Minute

// Start writes until ctx is done.
func (c *LaunchMarker) Start(ctx context.Context) error {
	if !c.Synced(ctx) {
		return nil
	}
	for {
		var again <-chan time.Time
		if err := c.write(ctx); err != nil && ctx.Err() == nil {
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

func (c *LaunchMarker) write(ctx context.Context) error {
	now := map[string]bool{}
	for _, name := range c.Model.Launching() {
		if g := c.Model.Group(name); g != nil {
			if label := g.Spec.Template.Labels[v1alpha1.CloudGroupLabel]; label != "" {
				now[label] = true
			}
		}
	}
	if c.marked == nil || c.Clock.Since(c.read) >= readEvery {
		there := &corev1.ConfigMap{}
		if err := c.Live.Get(ctx, c.ConfigMap, there); err != nil {
			return fmt.Errorf("read ConfigMap %s: %w", c.ConfigMap, err)
		}
		c.marked, c.read = map[string]bool{}, c.Clock.Now()
		for label := range there.Data {
			c.marked[label] = true
		}
	}
	change := map[string]*string{}
	for label := range c.marked {
		if !now[label] {
			change[label] = nil
		}
	}
	for label := range now {
		if !c.marked[label] {
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
	c.marked = maps.Clone(now)
	return nil
}
