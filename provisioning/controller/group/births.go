package group

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// tellLaunches writes down which groups have a launch in flight, where their nodes
// bear a label by which they can be told. The policy muster-born-cordoned reads it.
// What it has not heard of in time is cordoned a moment after its birth.
func (c *Controller) tellLaunches(ctx context.Context) error {
	if c.Launches.Name == "" {
		return nil
	}
	now := map[string]bool{}
	for _, name := range c.Model.Launching() {
		if g := c.Model.Group(name); g != nil {
			if label := g.Spec.Template.Labels[v1alpha1.CloudGroupLabel]; label != "" {
				now[label] = true
			}
		}
	}
	if c.launching == nil {
		there := &corev1.ConfigMap{}
		if err := c.Live.Get(ctx, c.Launches, there); err != nil {
			return fmt.Errorf("read ConfigMap %s: %w", c.Launches, err)
		}
		c.launching = map[string]bool{}
		for label := range there.Data {
			c.launching[label] = true
		}
	}
	change := map[string]*string{}
	for label := range c.launching {
		if !now[label] {
			change[label] = nil
		}
	}
	for label := range now {
		if !c.launching[label] {
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
	on := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Launches.Namespace, Name: c.Launches.Name}}
	if err := c.Client.Patch(ctx, on, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch ConfigMap %s: %w", c.Launches, err)
	}
	c.launching = maps.Clone(now)
	return nil
}
