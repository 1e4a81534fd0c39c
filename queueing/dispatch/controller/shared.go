package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// A LeaderWorkerSet has a Workload for each of its groups, but it is one object in one worker. So its groups go together: the first group
// chooses a cluster, and the others follow. The object is created with the first group that a worker admits, and deleted with the last
// one that leaves.

// sharedOwner returns the object of a Workload that is one part of it, or nil for other Workloads.
func (c *copies) sharedOwner(w *kueue.Workload) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(w); owner != nil && isShared(c.kinds[kindOf(owner)]) {
		return owner
	}
	return nil
}

// partners are the other Workloads of the same object, and their clusters.
type partners struct {
	of string
	// runs is the cluster that has admitted a partner. in are the clusters that may have copies of partners.
	runs string
	in   []string
	// first: the Workload is for the first part of the object.
	first bool
}

// partnersOf reads the partners of a Workload, or returns nil if it has none.
func (c *copies) partnersOf(ctx context.Context, from client.Reader, w *kueue.Workload) (*partners, error) {
	owner := c.sharedOwner(w)
	if owner == nil {
		return nil, nil
	}
	return partnersIn(ctx, from, w, owner.UID, owner.Kind+" "+owner.Name)
}

// partnersIn reads the partners of a Workload among those of an object. The Workload itself may be gone.
func partnersIn(ctx context.Context, from client.Reader, w *kueue.Workload, uid types.UID, of string) (*partners, error) {
	others, err := parts(ctx, from, w.Namespace, uid)
	if err != nil {
		return nil, err
	}
	out := &partners{of: of, first: true}
	for i := range others {
		o := &others[i]
		if o.UID == w.UID {
			continue
		}
		record, err := dispatch.DecodeRecord(o.Annotations[dispatch.Annotation])
		if err != nil {
			return nil, err
		}
		out.first = out.first && indexOf(w) < indexOf(o)
		if cluster := ptr.Deref(o.Status.ClusterName, ""); cluster != "" {
			out.runs, out.in = cluster, append(out.in, cluster)
		}
		out.in = append(out.in, record.In...)
	}
	slices.Sort(out.in)
	out.in = slices.Compact(out.in)
	return out, nil
}

// parts lists the Workloads of an object.
func parts(ctx context.Context, from client.Reader, namespace string, of types.UID) (out []kueue.Workload, err error) {
	list := &kueue.WorkloadList{}
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(w kueue.Workload) bool {
		owner := metav1.GetControllerOf(&w)
		return owner == nil || owner.UID != of
	}), nil
}

func indexOf(w *kueue.Workload) int {
	i, _ := strconv.Atoi(w.Annotations[workload.GroupIndexAnnotation])
	return i
}

// lacks returns why a cluster may not be nominated for a Workload with these partners. It is empty if it may.
func (p *partners) lacks(cluster string) string {
	switch {
	case p == nil:
		return ""
	case p.runs != "" && p.runs != cluster:
		return fmt.Sprintf("the other groups of %s, which run in %s", p.of, p.runs)
	case p.runs == "" && !p.first:
		return fmt.Sprintf("the first group of %s, after which the others follow", p.of)
	case slices.ContainsFunc(p.in, func(in string) bool { return in != cluster }):
		return fmt.Sprintf("the other groups of %s, which have yet to leave %q", p.of, p.in)
	}
	return ""
}

// enqueuePartners enqueues the Workloads of an object when one of them has changed.
func (c *copies) enqueuePartners(ctx context.Context, o client.Object) (out []reconcile.Request) {
	w := o.(*kueue.Workload)
	owner := c.sharedOwner(w)
	if owner == nil {
		return nil
	}
	others, err := parts(ctx, c.client, w.Namespace, owner.UID)
	if err != nil {
		return nil // the initial list enqueues each Workload
	}
	for i := range others {
		if others[i].Name != w.Name {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&others[i])})
		}
	}
	return out
}

// mayShare reports whether a Workload may go to a cluster, by a live read of its partners. The caller holds c.sharing.
func (c *copies) mayShare(ctx context.Context, w *kueue.Workload, cluster string) (bool, error) {
	p, err := c.partnersOf(ctx, c.live, w)
	return err == nil && p.lacks(cluster) == "", err
}

// isNeeded reports whether an object that other Workloads share is to stay in a cluster when the Workload leaves.
func (c *copies) isNeeded(ctx context.Context, s *situation, cluster string, kind Kind, there *unstructured.Unstructured) (bool, error) {
	if !isShared(kind) {
		return false, nil
	}
	here := unstructuredOf(kind)
	err := c.live.Get(ctx, client.ObjectKeyFromObject(there), here)
	isHere := err == nil && here.GetDeletionTimestamp().IsZero() &&
		string(here.GetUID()) == there.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]
	if client.IgnoreNotFound(err) != nil || !isHere {
		return false, client.IgnoreNotFound(err)
	}
	p, err := partnersIn(ctx, c.live, s.Workload, here.GetUID(), "")
	return err == nil && slices.Contains(p.in, cluster), err
}

// stop makes a worker stop the pods of a copy whose object stays. It reports whether no pod of the copy is left.
func stop(ctx context.Context, worker client.Client, theirs *kueue.Workload) (stopped bool, err error) {
	if !workload.HasQuota(theirs) {
		return true, nil
	}
	if !workload.IsActive(theirs) {
		return false, nil
	}
	patch := client.MergeFrom(theirs.DeepCopy())
	theirs.Spec.Active = new(false)
	return false, client.IgnoreNotFound(worker.Patch(ctx, theirs, patch))
}

// scale gives an object in a worker as many parts as it has in the manager.
func (c *copies) scale(ctx context.Context, f *following, theirs *unstructured.Unstructured) (bool, error) {
	ours := unstructuredOf(f.kind)
	if err := c.live.Get(ctx, f.key, ours); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	want, _, err := unstructured.NestedInt64(ours.Object, "spec", "replicas")
	if err != nil {
		return false, err
	}
	if have, _, err := unstructured.NestedInt64(theirs.Object, "spec", "replicas"); have == want || err != nil {
		return true, err
	}
	patch := client.MergeFrom(theirs.DeepCopy())
	if err := unstructured.SetNestedField(theirs.Object, want, "spec", "replicas"); err != nil {
		return false, err
	}
	return true, client.IgnoreNotFound(f.worker.client.Patch(ctx, theirs, patch))
}
