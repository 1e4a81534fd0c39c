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

// A LeaderWorkerSet has a Workload for each of its groups, and is one object in one worker. So its groups go together: the first chooses,
// the others go where one of them runs. It is made with the first group that a worker admits, and deleted with the last that leaves.

// sharedOwner is the object of which a Workload is for a part; nil for others.
func (c *copies) sharedOwner(w *kueue.Workload) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(w); owner != nil && isShared(c.kinds[kindOf(owner)]) {
		return owner
	}
	return nil
}

// partners are the other Workloads of the object of which one is for a part, and where they are.
type partners struct {
	of string
	// runs is the cluster that has admitted one; in are those where copies may be.
	runs string
	in   []string
	// first: it is the first part.
	first bool
}

// partnersOf reads those of a Workload; nil for one that has none.
func (c *copies) partnersOf(ctx context.Context, from client.Reader, w *kueue.Workload) (*partners, error) {
	owner := c.sharedOwner(w)
	if owner == nil {
		return nil, nil
	}
	return partnersIn(ctx, from, w, owner.UID, owner.Kind+" "+owner.Name)
}

// partnersIn are those of a Workload, which may be gone, of an object.
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

// parts are the Workloads of an object.
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

// lacks is why a cluster may not be asked for a Workload, whose partners are these; empty if it may.
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

// partnersAsked are the Workloads to look at again when one of their partners has changed.
func (c *copies) partnersAsked(ctx context.Context, o client.Object) (out []reconcile.Request) {
	w := o.(*kueue.Workload)
	owner := c.sharedOwner(w)
	if owner == nil {
		return nil
	}
	others, err := parts(ctx, c.client, w.Namespace, owner.UID)
	if err != nil {
		return nil // the caches are being filled, and each Workload comes by itself
	}
	for i := range others {
		if others[i].Name != w.Name {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&others[i])})
		}
	}
	return out
}

// mayShare reports whether a Workload may go to a cluster, by what the API server has of its partners. It is asked while c.sharing is held.
func (c *copies) mayShare(ctx context.Context, w *kueue.Workload, cluster string) (bool, error) {
	p, err := c.partnersOf(ctx, c.live, w)
	return err == nil && p.lacks(cluster) == "", err
}

// isNeeded reports whether an object in a cluster that others may share with the Workload is to stay there when that leaves.
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

// stop has a worker stop the pods of a copy whose object stays. It reports whether none is left that the copy has quota for.
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

// scale has an object in a worker have as many parts as it has here.
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
