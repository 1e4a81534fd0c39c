package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// compareEvery is how often what the cache of a worker has of the copies there is compared with what its API server says. A watch may be
// open and tell nothing: then the cache lacks one time what it lacked the time before.
const compareEvery = 30 * time.Second

// watched is what a cache was found to lack.
type watched struct {
	at time.Time
	// lacks are the versions of copies that the API server had, and the cache did not; gone are those that the cache had of copies that the
	// API server did not have.
	lacks, gone map[types.NamespacedName]string
}

// stalled says what the cache of a worker still lacks of what its API server had when they were compared before; nil if it lacks nothing.
func (s *workers) stalled(ctx context.Context, c *connection) error {
	now := s.clock.Now()
	if now.Sub(c.watched.at) < compareEvery {
		return nil
	}
	ours := client.MatchingLabels{kueue.MultiKueueOriginLabel: s.self.origin}
	live, cached := &metav1.PartialObjectMetadataList{}, &kueue.WorkloadList{}
	live.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	// The cache is read first: what it lacks then, it has had time for.
	if err := c.cache.List(ctx, cached, ours, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	has := map[types.NamespacedName]string{}
	for i := range cached.Items {
		has[client.ObjectKeyFromObject(&cached.Items[i])] = cached.Items[i].ResourceVersion
	}
	nothing := func(key types.NamespacedName) error {
		return fmt.Errorf("its watch is open and told nothing of Workload %s for %s; it is connected to again", key,
			now.Sub(c.watched.at).Round(time.Second))
	}
	for key, version := range c.watched.lacks {
		if isBehind(has[key], version) {
			return nothing(key)
		}
	}
	for key, version := range c.watched.gone {
		if has[key] == version {
			return nothing(key)
		}
	}
	if err := c.client.List(ctx, live, ours); err != nil {
		c.watched = watched{at: now}
		return nil //nolint:nilerr // it is slow with many copies, or gone: a smaller call tells of that
	}
	c.watched = watched{at: now, lacks: map[types.NamespacedName]string{}, gone: map[types.NamespacedName]string{}}
	there := map[types.NamespacedName]bool{}
	for i := range live.Items {
		key, version := client.ObjectKeyFromObject(&live.Items[i]), live.Items[i].ResourceVersion
		if there[key] = true; isBehind(has[key], version) {
			c.watched.lacks[key] = version
		}
	}
	for key, version := range has {
		if !there[key] {
			c.watched.gone[key] = version
		}
	}
	return nil
}

// isBehind reports whether a cache with the one version of an object, empty for none, has not yet come to the other.
func isBehind(cached, version string) bool {
	order, err := resourceversion.CompareResourceVersion(cached, version)
	return cached == "" || err == nil && order < 0
}
