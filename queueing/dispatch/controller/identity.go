package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// uidOf returns the UID of the namespace kube-system, which identifies a cluster.
func uidOf(ctx context.Context, cluster client.Reader) (types.UID, error) {
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := cluster.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)
	return system.UID, err
}

// confirmCluster returns an error for a kubeconfig that leads to another cluster than before, or to the cluster of another
// MultiKueueCluster. Jobs that run in the first cluster could not be observed any more and would be started a second time. Beside a stock
// Kueue, which makes the copies, it does nothing.
func (s *workers) confirmCluster(ctx context.Context, name string, kube client.Reader) error {
	if s.writer == nil {
		return nil
	}
	uid, err := uidOf(ctx, kube)
	if err != nil {
		return fmt.Errorf("reading which cluster it is, for which muster dispatcher manifests --worker gives the right: %w", err)
	}
	all, c := &kueue.MultiKueueClusterList{}, (*kueue.MultiKueueCluster)(nil)
	if err := s.manager.List(ctx, all); err != nil {
		return err
	}
	for i := range all.Items {
		if all.Items[i].Name == name {
			c = &all.Items[i]
		}
	}
	if c == nil {
		return errors.New("its MultiKueueCluster was deleted")
	}
	had := c.Annotations[dispatch.ClusterUIDAnnotation]
	if had != "" && had != string(uid) {
		return &unusable{reasonChanged, fmt.Errorf("its kubeconfig leads to another cluster, of UID %s, than the one in which its jobs may "+
			"run, of UID %s: correct the kubeconfig; or, where nothing runs in that one any more, remove the annotation %s", uid, had,
			dispatch.ClusterUIDAnnotation)}
	}
	for i := range all.Items {
		o := &all.Items[i]
		if o.Name != name && o.Annotations[dispatch.ClusterUIDAnnotation] == string(uid) && (had == "" || isBefore(o, c)) {
			return &unusable{reasonSame, fmt.Errorf("its kubeconfig leads to the cluster of MultiKueueCluster %s: correct it, or delete one of "+
				"the two", o.Name)}
		}
	}
	patch := client.MergeFromWithOptions(c.DeepCopy(), client.MergeFromWithOptimisticLock{})
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, dispatch.ClusterUIDAnnotation, string(uid))
	// Jobs may run in the cluster from now on. A deleted MultiKueueCluster stays until they have left it.
	kept := c.DeletionTimestamp.IsZero() && controllerutil.AddFinalizer(c, workload.CopiesFinalizer)
	if had != "" && !kept {
		return nil
	}
	if err := s.writer.Patch(ctx, c, patch); err != nil {
		return fmt.Errorf("recording which cluster it is: %w", err)
	}
	return nil
}

func isBefore(a, b *kueue.MultiKueueCluster) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}
