package controller

import (
	"context"
	"fmt"
	"maps"
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
	if err := c.client.List(ctx, live, ours); err != nil {
		c.watched = watched{at: now}
		return nil //nolint:nilerr // it is slow with many copies, or gone: a smaller call tells of that
	}
	before := c.watched
	c.watched = compare(has, live, now)
	nothing := func(key types.NamespacedName) error {
		return fmt.Errorf("its watch is open and told nothing of Workload %s for %s; it is connected to again", key,
			now.Sub(before.at).Round(time.Second))
	}
	for key, version := range before.lacks {
		// It may have gone in the meantime, so that the cache is right.
		if c.watched.lacks[key] != "" && isBehind(has[key], version) {
			return nothing(key)
		}
	}
	for key, version := range before.gone {
		if has[key] == version {
			return nothing(key)
		}
	}
	return nil
}

// compare finds what a cache with these versions lacks of what its API server has.
func compare(has map[types.NamespacedName]string, live *metav1.PartialObjectMetadataList, now time.Time) watched {
	out := watched{at: now, lacks: map[types.NamespacedName]string{}, gone: maps.Clone(has)}
	for i := range live.Items {
		key, version := client.ObjectKeyFromObject(&live.Items[i]), live.Items[i].ResourceVersion
		delete(out.gone, key)
		if isBehind(has[key], version) {
			out.lacks[key] = version
		}
	}
	return out
}

// isBehind reports whether a cache with the one version of an object, empty for none, has not yet come to the other.
func isBehind(cached, version string) bool {
	order, err := resourceversion.CompareResourceVersion(cached, version)
	return cached == "" || err == nil && order < 0
}
