// Package driver simulates the DRA drivers of KWOK nodes: it publishes the devices of their machines in ResourceSlices. There is no
// kubelet plugin, so allocated devices are never prepared; pods run by their Stage.
package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
)

// Driver publishes the devices in the nodes' ClaimableAnnotation.
type Driver struct {
	Client kubernetes.Interface
	Clock  clock.WithTicker
	nodes  corelisters.NodeLister
	// published contains the slices, without their devices.
	published resourcelisters.ResourceSliceLister
	queue     workqueue.TypedRateLimitingInterface[string]
}

// resync is how often slices that others deleted are created again.
const resync = time.Minute

// Run publishes until ctx is done.
func (d *Driver) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(d.Client, resync)
	nodes, resourceSlices := factory.Core().V1().Nodes(), factory.Resource().V1().ResourceSlices()
	d.nodes, d.published = nodes.Lister(), resourceSlices.Lister()
	d.queue = workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "drivers", Clock: d.Clock})
	add := func(o any) {
		if n, ok := o.(*corev1.Node); ok && n.Annotations[kwokv1alpha1.ClaimableAnnotation] != "" {
			d.queue.Add(n.Name)
		}
	}
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if err := resourceSlices.Informer().SetTransform(withoutDevices); err != nil {
		return fmt.Errorf("watching ResourceSlices: %w", err)
	}
	// A slice may have to be withdrawn before the cache shows it.
	if _, err := resourceSlices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if s, ok := o.(*resourcev1.ResourceSlice); ok && s.Spec.NodeName != nil {
			d.queue.Add(*s.Spec.NodeName)
		}
	}}); err != nil {
		return fmt.Errorf("watching ResourceSlices: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, d.queue.ShutDown)
	for {
		name, over := d.queue.Get()
		if over {
			return nil
		}
		again, err := d.publish(ctx, name)
		switch {
		case err != nil:
			d.queue.AddRateLimited(name)
		case again > 0:
			d.queue.Forget(name)
			d.queue.AddAfter(name, again)
		default:
			d.queue.Forget(name)
		}
		d.queue.Done(name)
	}
}

// publish brings the slices of a node up to date and returns the time until they change next, 0 for never.
func (d *Driver) publish(ctx context.Context, name string) (again time.Duration, err error) {
	n, err := d.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil // its slices go with it
	}
	if err != nil {
		return 0, err
	}
	var c kwokv1alpha1.Claimable
	if err := json.Unmarshal([]byte(n.Annotations[kwokv1alpha1.ClaimableAnnotation]), &c); err != nil {
		return 0, nil //nolint:nilerr // written by a person: there is nothing to publish
	}
	generation, again := published(&c, readySince(n), d.Clock.Now())
	own := slicesOf(n, &c, generation)
	if generation == 0 {
		return again, d.withdraw(ctx, n, own)
	}
	for _, s := range own {
		if err := d.put(ctx, s); err != nil {
			return 0, err
		}
	}
	return again, nil
}

// readySince returns when the node became Ready; zero if it is not Ready.
func readySince(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// published returns the generation of the slices at that time, 0 for none, and the time until it changes, 0 for never.
func published(c *kwokv1alpha1.Claimable, ready, now time.Time) (generation int64, again time.Duration) {
	if ready.IsZero() {
		return 0, 0
	}
	at := ready.Add(c.Delay.Duration)
	if now.Before(at) {
		return 0, at.Sub(now)
	}
	if c.Vanish == nil {
		return 1, 0
	}
	from := at.Add(c.Vanish.After.Duration)
	until := from.Add(c.Vanish.For.Duration)
	switch {
	case now.Before(from):
		return 1, from.Sub(now)
	case now.Before(until):
		return 0, until.Sub(now)
	default:
		return 2, 0
	}
}

// slicesOf returns the slices of the node.
func slicesOf(n *corev1.Node, c *kwokv1alpha1.Claimable, generation int64) []*resourcev1.ResourceSlice {
	out := nodegroups.ResourceSlices(c.Pools)
	for _, s := range out {
		s.Name = shorten(n.Name) + "-" + s.Name
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
		s.Spec.NodeName = &n.Name
		s.Spec.Pool.Name, s.Spec.Pool.Generation = shorten(n.Name)+"-"+s.Spec.Pool.Name, generation
	}
	return out
}

// shorten truncates a node's name so that the suffixes of pool and slice fit.
func shorten(name string) string {
	return name[:min(len(name), validation.DNS1123SubdomainMaxLength-len("-pool-000-000"))]
}

// withoutDevices drops all that is not compared: a slice takes up to 20 kB, and a cluster has at least one for each node.
func withoutDevices(o any) (any, error) {
	if s, ok := o.(*resourcev1.ResourceSlice); ok {
		s.ManagedFields, s.Spec.Devices, s.Spec.SharedCounters = nil, nil, nil
	}
	return o, nil
}

// put creates a slice, or brings it up to date.
func (d *Driver) put(ctx context.Context, s *resourcev1.ResourceSlice) error {
	api := d.Client.ResourceV1().ResourceSlices()
	old, err := d.published.Get(s.Name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = api.Create(ctx, s, metav1.CreateOptions{})
	case err == nil && old.Spec.Pool != s.Spec.Pool:
		s.ResourceVersion = old.ResourceVersion
		_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	}
	return err
}

// withdraw deletes the slices of a node, if any is published.
func (d *Driver) withdraw(ctx context.Context, n *corev1.Node, own []*resourcev1.ResourceSlice) error {
	if !slices.ContainsFunc(own, func(s *resourcev1.ResourceSlice) bool {
		_, err := d.published.Get(s.Name)
		return err == nil
	}) {
		return nil
	}
	return d.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + n.Name,
	})
}
