package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
)

// picture is what the loop knows beyond the caches: its own writes, and readings
// of Workloads that have not changed since.
type picture struct {
	workloads     overlay[*kueue.Workload]
	clusterQueues overlay[*kueue.ClusterQueue]
	localQueues   overlay[*kueue.LocalQueue]
	checks        overlay[*kueue.AdmissionCheck]
	read          map[types.UID]*queueing.Workload
	// deleted are requests that the loop has deleted and the cache still shows as
	// if they were to stay.
	deleted map[types.UID]bool
}

// snapshot reads the caches. The objects in it are the caches' own.
func (l *loop) snapshot(ctx context.Context) (*queueing.Snapshot, error) {
	s := &queueing.Snapshot{Now: l.now(), Namespaces: map[string]labels.Set{}, Plan: provisioning.Plan}
	var (
		workloads     kueue.WorkloadList
		clusterQueues kueue.ClusterQueueList
		localQueues   kueue.LocalQueueList
		flavors       kueue.ResourceFlavorList
		checks        kueue.AdmissionCheckList
		policies      v1alpha1.CapacityPolicyList
		requests      autoscaling.ProvisioningRequestList
		namespaces    corev1.NamespaceList
	)
	for _, list := range []client.ObjectList{&workloads, &clusterQueues, &localQueues, &flavors, &checks, &policies, &requests, &namespaces} {
		if err := l.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T from the cache: %w", list, err)
		}
	}
	s.Workloads = l.picture.readWorkloads(workloads.Items)
	l.distinguish(s.Workloads, flavors.Items)
	s.ClusterQueues = newest(&l.picture.clusterQueues, pointers(clusterQueues.Items))
	s.LocalQueues = newest(&l.picture.localQueues, pointers(localQueues.Items))
	s.Checks = newest(&l.picture.checks, pointers(checks.Items))
	s.Flavors = pointers(flavors.Items)
	s.Policies = pointers(policies.Items)
	s.Requests = l.picture.readRequests(requests.Items)
	for i := range namespaces.Items {
		s.Namespaces[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	if l.capacity != nil {
		s.Capacity = l.capacity.Snapshot(s.Now)
	}
	return s, nil
}

// distinguish tells the provisioner which node labels the Workloads select on, by
// themselves or on their flavors.
func (l *loop) distinguish(workloads []*queueing.Workload, flavors []kueue.ResourceFlavor) {
	if l.capacity == nil {
		return
	}
	keys := map[string]bool{}
	for _, w := range workloads {
		for _, key := range w.Keys {
			keys[key] = true
		}
	}
	for i := range flavors {
		for key := range flavors[i].Spec.NodeLabels {
			keys[key] = true
		}
	}
	l.capacity.Distinguish(slices.Sorted(maps.Keys(keys))...)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

func newest[T client.Object](o *overlay[T], cached []T) []T {
	exists := make(map[types.UID]bool, len(cached))
	for i, object := range cached {
		exists[object.GetUID()] = true
		cached[i] = o.newest(object)
	}
	o.keep(func(uid types.UID) bool { return exists[uid] })
	return cached
}

// readWorkloads reads those Workloads anew that have changed.
func (p *picture) readWorkloads(items []kueue.Workload) []*queueing.Workload {
	read := make(map[types.UID]*queueing.Workload, len(items))
	out := make([]*queueing.Workload, 0, len(items))
	for i := range items {
		object := p.workloads.newest(&items[i])
		w := p.read[object.UID]
		if w == nil || w.Object.ResourceVersion != object.ResourceVersion {
			// A copy, since the reading outlives the list that it came with.
			shallow := *object
			w = queueing.NewWorkload(&shallow, w)
		}
		read[object.UID] = w
		out = append(out, w)
	}
	p.read = read
	p.workloads.keep(func(uid types.UID) bool { return read[uid] != nil })
	return out
}

// readRequests groups the requests by the Workload that controls them. Those
// that the loop has deleted are marked so.
func (p *picture) readRequests(items []autoscaling.ProvisioningRequest) map[types.UID][]*autoscaling.ProvisioningRequest {
	out := map[types.UID][]*autoscaling.ProvisioningRequest{}
	deleted := map[types.UID]bool{}
	for i := range items {
		r := &items[i]
		owner := metav1.GetControllerOf(r)
		if owner == nil || owner.Kind != "Workload" || r.Labels[queueing.ManagedLabel] != "true" {
			continue
		}
		if p.deleted[r.UID] && r.DeletionTimestamp.IsZero() {
			deleted[r.UID] = true
			marked := *r
			marked.DeletionTimestamp = &r.CreationTimestamp
			r = &marked
		}
		out[owner.UID] = append(out[owner.UID], r)
	}
	p.deleted = deleted
	return out
}
