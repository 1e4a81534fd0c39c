package view

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KeptConfigMaps are those that were read. One is read again only if its resourceVersion has changed, which its metadata shows: that takes
// no right but to get it, as a watch would.
type KeptConfigMaps struct {
	kept map[client.ObjectKey]*corev1.ConfigMap
}

// Of returns a reader of a cluster, always the same one, that takes unchanged ConfigMaps from those that were read before.
func (k *KeptConfigMaps) Of(cluster client.Reader) client.Reader { return keptReader{cluster, k} }

type keptReader struct {
	client.Reader
	*KeptConfigMaps
}

func (r keptReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	out, ok := into.(*corev1.ConfigMap)
	if !ok {
		return r.Reader.Get(ctx, key, into, options...)
	}
	if have := r.kept[key]; have != nil {
		now := &metav1.PartialObjectMetadata{}
		now.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		if err := r.Reader.Get(ctx, key, now, options...); err != nil {
			return err
		}
		if now.ResourceVersion == have.ResourceVersion && now.UID == have.UID {
			have.DeepCopyInto(out)
			return nil
		}
	}
	if err := r.Reader.Get(ctx, key, out, options...); err != nil {
		return err
	}
	if r.kept == nil {
		r.kept = map[client.ObjectKey]*corev1.ConfigMap{}
	}
	r.kept[key] = out.DeepCopy()
	return nil
}
