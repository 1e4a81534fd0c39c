package feed

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// claims lists the kinds of DRA, available from Kubernetes 1.34 on, DeviceTaintRule later. ResourceSlices come last: a node has no devices
// before its slices are read, so none is taken for free while the claims that have it, or a rule that taints it, are unknown.
var claims = []client.Object{
	&resourcev1.DeviceClass{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{}, &resourcev1.DeviceTaintRule{},
	&resourcev1.ResourceSlice{},
}

// Claims returns the kinds of DRA that the API server serves.
func Claims(served meta.RESTMapper) (out []client.Object, err error) {
	for _, object := range claims {
		kind := resourcev1.SchemeGroupVersion.WithKind(nameOf(object))
		switch _, err := served.RESTMapping(kind.GroupKind(), kind.Version); {
		case err == nil:
			out = append(out, object)
		case !meta.IsNoMatchError(err):
			return nil, fmt.Errorf("checking for %s: %w", kind, err)
		}
	}
	return out, nil
}

func nameOf(kind client.Object) string { return reflect.TypeOf(kind).Elem().Name() }

// servedAgain is the interval at which it is checked again which kinds the API server serves.
const servedAgain = 20 * time.Second

// later watches the kinds of DRA that the API server begins to serve.
type later struct {
	feed      *Feed
	informers cache.Informers
	watched   []client.Object
	served    func() ([]client.Object, error)
}

// Later updates the model from kinds of DRA that the API server lacks at the start, once it serves them: it may be upgraded meanwhile.
// watched are the kinds that New was called with, and served returns those that the API server serves now.
func (f *Feed) Later(informers cache.Informers, watched []client.Object, served func() ([]client.Object, error)) manager.Runnable {
	return &later{f, informers, watched, served}
}

// NeedLeaderElection returns false: every replica keeps the model up to date.
func (l *later) NeedLeaderElection() bool { return false }

// Start watches kinds until it has all, or ctx is done.
func (l *later) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("devices")
	watched := slices.Clone(l.watched)
	ticker := time.NewTicker(servedAgain)
	defer ticker.Stop()
	for len(watched) < len(claims) {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		kinds, err := l.served()
		if err != nil {
			log.Error(err, "Looking for kinds that are new in the cluster failed, and is tried again")
			continue
		}
		for _, kind := range kinds {
			if slices.ContainsFunc(watched, func(o client.Object) bool { return nameOf(o) == nameOf(kind) }) {
				continue
			}
			handler, err := l.feed.watch(ctx, l.informers, kind)
			if err != nil {
				log.Error(err, "A kind that is new in the cluster cannot be watched, which is tried again")
				break
			}
			watched = append(watched, kind)
			if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
				return nil
			}
			log.Info("A kind is used from now on", "kind", nameOf(kind))
		}
	}
	return nil
}
