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

// compareEvery is how often the cached copies of a worker are compared with its API server. An open watch may deliver no events. It has
// stalled if the cache still lacks what it lacked at the comparison before.
const compareEvery = 30 * time.Second

// watched is what a cache lacked when it was last compared.
type watched struct {
	at time.Time
	// lacks are the versions of copies that only the API server had. gone are the versions of copies that only the cache had.
	lacks, gone map[types.NamespacedName]string
}

// stalled returns an error if the cache of a worker still lacks what it lacked when it was last compared.
func (s *workers) stalled(ctx context.Context, c *connection) error {
	now := s.clock.Now()
	if now.Sub(c.watched.at) < compareEvery {
		return nil
	}
	ours := client.MatchingLabels{kueue.MultiKueueOriginLabel: s.self.origin}
	live, cached := &metav1.PartialObjectMetadataList{}, &kueue.WorkloadList{}
	live.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	// The cache is read first: the API server had all that the cache has, and what it lacked before has had time to arrive.
	if err := c.cache.List(ctx, cached, ours, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	has := map[types.NamespacedName]string{}
	for i := range cached.Items {
		has[client.ObjectKeyFromObject(&cached.Items[i])] = cached.Items[i].ResourceVersion
	}
	if err := c.client.List(ctx, live, ours); err != nil {
		c.watched = watched{at: now}
		return nil //nolint:nilerr // many copies are slow to list, and another call detects a worker that is gone
	}
	before := c.watched
	c.watched = compare(has, live, now)
	nothing := func(key types.NamespacedName) error {
		return fmt.Errorf("its watch is open and told nothing of Workload %s for %s; it is connected to again", key,
			now.Sub(before.at).Round(time.Second))
	}
	for key, version := range before.lacks {
		// The copy may be deleted in the meantime, so that the cache is right.
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

// compare returns what a cache with these versions lacks.
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

// isBehind reports whether the cached version of an object, empty for none, is older than the other version.
func isBehind(cached, version string) bool {
	order, err := resourceversion.CompareResourceVersion(cached, version)
	return cached == "" || err == nil && order < 0
}
