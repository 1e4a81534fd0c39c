package simulation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
)

// call is a call of a controller to the API server or to the cloud.
type call struct {
	// key names the caller and the call. It is unique among the calls that wait at the same time, so that a replay can distinguish them.
	key  string
	kind callKind
	// target is the object that a patch or deletion is about.
	target client.Object
	// blocked holds the call back, if not nil.
	blocked func() bool
	// effect is what the call does.
	effect func() (client.Object, error)
	// into gets what the effect returns.
	into client.Object

	reply chan error
	// number distinguishes calls that take effect late.
	number int
}

// callKind says what may become of a call.
type callKind int

const (
	// turn: it is no call, but a goroutine that waits for its turn.
	turn callKind = iota
	// read: it may fail.
	read
	// write: it may fail with or without an effect, also with one that comes later.
	write
	// sent: it may fail before it reaches the cloud.
	sent
	// answer: it may be lost on its way back from the cloud.
	answer
)

// point says that the sweep crashes before and after such calls.
func (k callKind) point() bool { return k >= write }

// nothing is the effect of a call that only waits for its turn.
func nothing() (client.Object, error) { return nil, nil }

// finish lets the caller go on.
func (c *call) finish(o client.Object, err error) {
	if err == nil && c.into != nil && o != nil {
		copyInto(c.into, o)
	}
	c.reply <- err
}

// api is the client of one controller. What is embedded is nil, for what no
// controller uses.
type api struct {
	client.Client
	process *process
	store   *store
	who     string
}

func (a *api) key(ctx context.Context, verb string, o client.Object) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	who := a.who
	if during, ok := ctx.Value(duringKey{}).(string); ok {
		who += " during the " + during
	}
	return fmt.Sprintf("%s %s %s %s", who, verb, kindOf(o), name)
}

// duringKey is that of the call to the cloud in whose course a call is made.
type duringKey struct{}

// Get implements client.Reader: it reads from the API server itself.
func (a *api) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	return a.process.call(&call{key: a.key(ctx, "gets", o), kind: read, into: o,
		effect: func() (client.Object, error) { return a.store.get(o) }})
}

// List implements client.Reader: the pods of a namespace, or of all, on a node, from the API server itself.
func (a *api) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	node, _ := o.FieldSelector.RequiresExactMatch("spec.nodeName")
	return a.process.call(&call{key: fmt.Sprintf("%s lists the pods of namespace %q on %s", a.who, o.Namespace, node), kind: read,
		effect: func() (client.Object, error) {
			pods := list.(*corev1.PodList)
			for _, p := range all[*corev1.Pod](a.store) {
				if (o.Namespace == "" || p.Namespace == o.Namespace) && p.Spec.NodeName == node {
					pods.Items = append(pods.Items, *p.DeepCopy())
				}
			}
			return nil, nil
		}})
}

// Create implements client.Writer.
func (a *api) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return a.process.call(&call{key: a.key(ctx, "creates", o), kind: write, into: o,
		effect: func() (client.Object, error) { return a.store.create(o) }})
}

// Delete implements client.Writer.
func (a *api) Delete(ctx context.Context, o client.Object, _ ...client.DeleteOption) error {
	return a.process.call(&call{key: a.key(ctx, "deletes", o), kind: write, target: o,
		effect: func() (client.Object, error) { return nil, a.store.delete(o) }})
}

// Patch implements client.Writer.
func (a *api) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return a.patch(ctx, "patches", o, patch, object)
}

// Status implements client.StatusClient.
func (a *api) Status() client.SubResourceWriter { return &statusAPI{api: a} }

// SubResource implements client.SubResourceClientConstructor, for evictions alone.
func (a *api) SubResource(string) client.SubResourceClient { return &evictionAPI{api: a} }

// evictionAPI evicts pods.
type evictionAPI struct {
	client.SubResourceClient
	api *api
}

// Create implements client.SubResourceWriter.
func (e *evictionAPI) Create(ctx context.Context, pod, eviction client.Object, _ ...client.SubResourceCreateOption) error {
	return e.api.process.call(&call{key: e.api.key(ctx, "evicts", pod), kind: write, target: pod,
		effect: func() (client.Object, error) { return nil, e.api.store.evict(pod, eviction.(*policyv1.Eviction)) }})
}

// statusAPI writes statuses.
type statusAPI struct {
	client.SubResourceWriter
	api *api
}

// Patch implements client.SubResourceWriter.
func (s *statusAPI) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.api.patch(ctx, "patches the status of", o, patch, status)
}

func (a *api) patch(ctx context.Context, verb string, o client.Object, patch client.Patch, part part) error {
	if patch.Type() != types.MergePatchType {
		return fmt.Errorf("the simulated API server has no patches of type %s", patch.Type())
	}
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return a.process.call(&call{key: a.key(ctx, verb, o) + " " + string(data), kind: write, target: o, into: o,
		effect: func() (client.Object, error) { return a.store.patch(o, data, part) }})
}

// storeReader reads for the cloud, whose own memory the store is: at once.
type storeReader struct {
	client.Reader
	store *store
}

// Get implements client.Reader.
func (r *storeReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	found, err := r.store.get(o)
	if err != nil {
		return err
	}
	copyInto(o, found)
	return nil
}

// List implements client.Reader.
func (r *storeReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	var items []runtime.Object
	for _, object := range r.store.list(strings.TrimSuffix(kindOf(list), "List")) {
		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object.DeepCopyObject())
		}
	}
	return meta.SetList(list, items)
}

func copyInto(o, from client.Object) {
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// errAway is the error of calls to a cloud that does not answer.
var errAway = errors.New("the simulated cloud does not answer")

// cloud makes the calls to a provider wait for their turn, both on their way
// there and on their way back.
type cloud struct {
	cloudprovider.Provider
	process *process
	// caller is the controller that calls.
	caller string
}

// Launch implements cloudprovider.Launcher. The adapter lets one launch a group
// run at a time and locks out the others, which a bubble does not see as waiting:
// so they wait here.
func (c *cloud) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	what := fmt.Sprintf("launch of %d machines of group %s for %s by %s", req.Count, req.Group.Name, req.Token, c.caller)
	group, launching := req.Group.Name, c.process.launching
	if err := c.process.call(&call{key: "the " + what, kind: sent,
		blocked: func() bool { return launching[group] },
		effect: func() (client.Object, error) {
			launching[group] = true
			return nil, nil
		}}); err != nil {
		return nil, err
	}
	if c.process.away(group) {
		launching[group] = false
		return nil, errAway
	}
	machines, err := c.Provider.Launch(context.WithValue(ctx, duringKey{}, what), req)
	if err := c.process.call(&call{key: "the answer to the " + what, kind: answer, effect: func() (client.Object, error) {
		launching[group] = false
		return nil, nil
	}}); err != nil {
		return nil, err
	}
	return machines, err
}

// Terminate implements cloudprovider.Terminator.
func (c *cloud) Terminate(ctx context.Context, group string, names []string) error {
	what := fmt.Sprintf("termination of %v of group %s by %s", names, group, c.caller)
	if err := c.process.call(&call{key: "the " + what, kind: sent, effect: nothing}); err != nil {
		return err
	}
	if c.process.away(group) {
		return errAway
	}
	if err := c.Provider.Terminate(context.WithValue(ctx, duringKey{}, what), group, names); err != nil {
		return err
	}
	return c.process.call(&call{key: "the answer to the " + what, kind: answer, effect: nothing})
}
