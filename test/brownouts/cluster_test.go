package brownouts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/test/invariants/promises"
)

// cluster is an API server in memory whose writes the model sees at once, and its kubelets.
type cluster struct {
	client.Client
	world *cloudsim.World

	// mu is held from a write until the checker has it, so that the checker sees all writes in their order.
	mu    sync.Mutex
	model *model.Model
	// checker sees every write.
	checker *promises.Checker
	made    int
	writes  uint64
	// groups and nodes are what is stored of these kinds. They are read so often that lists by the client would cost most of the time.
	groups map[string]*v1alpha1.NodeGroup
	nodes  map[string]bool
}

func newCluster(world *cloudsim.World) (*cluster, error) {
	c := &cluster{world: world, groups: map[string]*v1alpha1.NodeGroup{}, nodes: map[string]bool{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, provreq.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	// The whole object is read back: what a caller passes may be a part of it.
	write := func(ctx context.Context, r client.Reader, o client.Object, do func() error) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := do(); err != nil {
			return err
		}
		live := o.DeepCopyObject().(client.Object)
		err := r.Get(ctx, client.ObjectKeyFromObject(o), live)
		c.writes++
		if apierrors.IsNotFound(err) {
			c.store(o, true)
			c.model.Delete(o)
			c.checker.Apply(promises.Event{Object: o, Deleted: true, Revision: c.writes, Time: time.Now()})
			return nil
		}
		c.store(live, false)
		c.model.Set(live)
		c.checker.Apply(promises.Event{Object: live, Revision: c.writes, Time: time.Now()})
		return err
	}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&provreq.ProvisioningRequest{}, &v1alpha1.NodeGroup{}, &v1alpha1.CapacityPolicy{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return write(ctx, k, o, func() error {
					c.made++
					o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", c.made)))
					o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
					return k.Create(ctx, o, opts...)
				})
			},
			Delete: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return write(ctx, k, o, func() error { return k.Delete(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return write(ctx, k, o, func() error { return k.Update(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return write(ctx, k, o, func() error { return k.Patch(ctx, o, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, k client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				return write(ctx, k, o, func() error { return k.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		}).Build()
	return c, nil
}

// store what was written of the kinds that are read most.
func (c *cluster) store(o client.Object, deleted bool) {
	switch o := o.(type) {
	case *v1alpha1.NodeGroup:
		if c.groups[o.Name] = o; deleted {
			delete(c.groups, o.Name)
		}
	case *corev1.Node:
		if c.nodes[o.Name] = true; deleted {
			delete(c.nodes, o.Name)
		}
	}
}

// nodeGroups are copies of the stored ones, by name.
func (c *cluster) nodeGroups() (out []*v1alpha1.NodeGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.groups)) {
		out = append(out, c.groups[name].DeepCopy())
	}
	return out
}

// registered reports whether there is a node of that name.
func (c *cluster) registered(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

// standStill restarts the bounds of the promises at that time.
func (c *cluster) standStill(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checker.StandStill(until)
}

// kubelets have the machines of the clouds be nodes for as long as they run.
func (c *cluster) kubelets(ctx context.Context) error {
	for _, in := range c.world.Instances(true) {
		name := nodeName(in.ID)
		running, registered := in.Phase == cloudsim.Running && in.Node != nil, c.registered(name)
		var err error
		switch {
		case running && !registered:
			err = c.Create(ctx, nodeOf(name, &in))
		case !running && registered:
			err = c.unregister(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unregister deletes a node and the pods on it.
func (c *cluster) unregister(ctx context.Context, n *corev1.Node) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
		return err
	}
	for i := range pods.Items {
		if err := c.Delete(ctx, &pods.Items[i]); err != nil {
			return err
		}
	}
	return c.Delete(ctx, n)
}

func nodeName(id string) string { return "node-" + id }

// nodeOf is a node as the policy for new nodes admits it: cordoned, until Muster has found its launch.
func nodeOf(name string, in *cloudsim.Instance) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: in.Pool.Zone, corev1.LabelInstanceTypeStable: in.Pool.Type,
	}, Annotations: map[string]string{v1alpha1.CordonedAnnotation: v1alpha1.CordonJoining}}}
	n.Spec.Unschedulable = true
	for k, v := range in.Node.Labels {
		n.Labels[k] = v
	}
	n.Spec.ProviderID, n.Spec.Taints = in.Node.ProviderID, in.Node.Taints
	n.Status.Capacity, n.Status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for k, v := range in.Node.Allocatable {
		n.Status.Allocatable[k] = v
	}
	for k, v := range in.Node.Devices {
		n.Status.Allocatable[k] = v
	}
	now := metav1.Now()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: now,
		LastHeartbeatTime: now}}
	return n
}
