package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// known has the types that the cluster stores as Go types. All other objects are unstructured.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types are constants
		}
	}
	return s
}()

// id is the identity of an object.
type id struct {
	schema.GroupVersionKind
	client.ObjectKey
}

func idOf(o *unstructured.Unstructured) id {
	return id{o.GroupVersionKind(), client.ObjectKeyFromObject(o)}
}

// objects are those of a cluster, or of a cache. None is ever changed, only replaced.
type objects map[id]*unstructured.Unstructured

// of returns the objects of a kind in the order of their names.
func (all objects) of(kind schema.GroupVersionKind) (out []*unstructured.Unstructured) {
	for _, o := range all {
		if o.GroupVersionKind() == kind {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

// change is one of an object; before is nil for what is new, and after for what is gone.
type change struct {
	before, after *unstructured.Unstructured
	at            time.Time
}

// object is that which has changed.
func (c change) object() *unstructured.Unstructured {
	if c.after == nil {
		return c.before
	}
	return c.after
}

// apply takes a change in.
func (all objects) apply(c change) {
	if all[idOf(c.object())] = c.after; c.after == nil {
		delete(all, idOf(c.before))
	}
}

// cluster plays the API server.
type cluster struct {
	objects
	// converted are objects in their Go types, by which they are read most often.
	converted      map[*unstructured.Unstructured]client.Object
	now            time.Time
	revision, made int
	// written is called with each change and the name of its writer.
	written func(by string, c change)
	// refuses is an admission webhook for what Muster changes but statuses; nil if there is none.
	refuses func(*unstructured.Unstructured) error
	// indexes are the fields by which objects are selected.
	indexes map[string]client.IndexerFunc
}

// put stores a version of an object, or takes it away.
func (c *cluster) put(by string, before, after *unstructured.Unstructured) {
	c.revision++
	if after != nil {
		after.SetResourceVersion(strconv.Itoa(c.revision))
	}
	news := change{before, after, c.now}
	c.apply(news)
	c.written(by, news)
}

// edit changes an object as something does that always succeeds; it is gone if it is gone.
func (c *cluster) edit(by string, o *unstructured.Unstructured, f func(map[string]any)) {
	before := c.objects[idOf(o)]
	if before == nil {
		return
	}
	after := before.DeepCopy()
	f(after.Object)
	if equality.Semantic.DeepEqual(before.Object, after.Object) {
		return
	}
	if !equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"]) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	c.put(by, before, after)
}

// create stores a new object.
func (c *cluster) create(by string, o *unstructured.Unstructured) {
	c.made++
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprint("uid-", c.made)))
	}
	o.SetCreationTimestamp(metav1.NewTime(c.now))
	o.SetGeneration(1)
	c.put(by, nil, o)
}

// remove deletes an object. A pod that has been bound ends first, which its node sees to.
func (c *cluster) remove(by string, o *unstructured.Unstructured) {
	if bound, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); o.GetKind() == "Pod" && bound != "" && by != node {
		c.edit(by, o, func(pod map[string]any) {
			if o.GetDeletionTimestamp() == nil {
				set(pod, c.now.UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
			}
		})
		return
	}
	have := c.objects[idOf(o)]
	switch {
	case have == nil:
	case len(have.GetFinalizers()) > 0:
		c.edit(by, have, func(o map[string]any) {
			if have.GetDeletionTimestamp() == nil {
				set(o, c.now.UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
			}
		})
	default:
		c.put(by, have, nil)
	}
}

// keep adds a finalizer to an object.
func (c *cluster) keep(by string, o *unstructured.Unstructured, finalizer string) {
	c.edit(by, o, func(content map[string]any) {
		(&unstructured.Unstructured{Object: content}).SetFinalizers(append(o.GetFinalizers(), finalizer))
	})
}

// unkeep removes a finalizer. An object that is being deleted is gone once it has none.
func (c *cluster) unkeep(by string, o *unstructured.Unstructured, finalizer string) {
	have := c.objects[idOf(o)]
	if have == nil {
		return
	}
	left := slices.DeleteFunc(slices.Clone(have.GetFinalizers()), func(f string) bool { return f == finalizer })
	if len(left) == 0 && have.GetDeletionTimestamp() != nil {
		c.put(by, have, nil)
		return
	}
	c.edit(by, have, func(content map[string]any) { (&unstructured.Unstructured{Object: content}).SetFinalizers(left) })
}

// collect is the garbage collector: it takes what has lost its owner, and what is of an owner that is deleted in the foreground.
func (c *cluster) collect() {
	for _, owner := range slices.Collect(maps.Values(c.objects)) {
		if owner.GetDeletionTimestamp() != nil && slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			c.collectOf(owner)
		}
	}
	alive := map[types.UID]bool{}
	for _, o := range c.objects {
		alive[o.GetUID()] = true
	}
	for _, o := range slices.Collect(maps.Values(c.objects)) {
		owners := o.GetOwnerReferences()
		if len(owners) > 0 && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return alive[r.UID] }) {
			c.remove(collector, o)
		}
	}
}

// collectOf deletes the dependents of an owner that is deleted in the foreground, and then removes the finalizer of the owner.
func (c *cluster) collectOf(owner *unstructured.Unstructured) {
	left := false
	for _, o := range slices.Collect(maps.Values(c.objects)) {
		for _, r := range o.GetOwnerReferences() {
			if r.UID == owner.GetUID() && ptr.Deref(r.BlockOwnerDeletion, false) {
				left = true
				c.remove(collector, o)
			}
		}
	}
	if !left {
		c.unkeep(collector, owner, metav1.FinalizerDeleteDependents)
	}
}

// view is a cluster as one client has it: it reads from a cache or from the API server, and
// writes to this. What is embedded is nil, for what nothing calls.
type view struct {
	client.Client
	*cluster
	by    string
	reads objects
	// write lets a write happen, or not.
	write func(do func() error) error
}

var _ client.Client = (*view)(nil)

// Scheme implements client.Client.
func (*view) Scheme() *runtime.Scheme { return known }

func (v *view) find(all objects, o client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(o, known)
	if err != nil {
		return nil, err
	}
	found := all[id{gvk, client.ObjectKeyFromObject(o)}]
	if found == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, o.GetName())
	}
	return found, nil
}

// into writes an object into one of any type.
func into(o *unstructured.Unstructured, out runtime.Object) error {
	if u, ok := out.(*unstructured.Unstructured); ok {
		u.Object = o.DeepCopy().Object
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// typed returns an object in its Go type if there is one. Like an informer's objects, it is shared and must not be changed.
func (c *cluster) typed(o *unstructured.Unstructured) client.Object {
	if o == nil {
		return nil
	}
	if out := c.converted[o]; out != nil {
		return out
	}
	var out runtime.Object = &unstructured.Unstructured{}
	var err error
	if known.Recognizes(o.GroupVersionKind()) {
		out, err = known.New(o.GroupVersionKind())
	}
	if err == nil {
		err = into(o, out)
	}
	if err != nil {
		panic(err) // it was written in that type
	}
	c.converted[o] = out.(client.Object)
	return c.converted[o]
}

// Get implements client.Reader.
func (v *view) Get(_ context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	out.SetNamespace(key.Namespace)
	out.SetName(key.Name)
	found, err := v.find(v.reads, out)
	if err != nil {
		return err
	}
	return into(found, out)
}

// List implements client.Reader.
func (v *view) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, known)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	var options client.ListOptions
	options.ApplyOptions(opts)
	items := []any{}
	for _, o := range v.reads.of(gvk) {
		if (options.Namespace == "" || o.GetNamespace() == options.Namespace) &&
			(options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(o.GetLabels()))) && v.selects(&options, o) {
			items = append(items, o.DeepCopy().Object)
		}
	}
	content := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List", "items": items}
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		u.SetUnstructuredContent(content)
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, list)
}

func (v *view) selects(options *client.ListOptions, o *unstructured.Unstructured) bool {
	if options.FieldSelector == nil {
		return true
	}
	for _, r := range options.FieldSelector.Requirements() {
		if index := v.indexes[r.Field]; index == nil || !slices.Contains(index(v.typed(o)), r.Value) {
			return false
		}
	}
	return true
}

// Create implements client.Writer.
func (v *view) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return v.write(func() error {
		if _, err := v.find(v.objects, o); err == nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
		}
		content, err := unstructuredOf(o)
		if err != nil {
			return err
		}
		delete(content.Object, "status")
		v.create(v.by, content)
		return into(content, o)
	})
}

func unstructuredOf(o client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(o, known)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(gvk)
	return out, err
}

// conflicts reports that an object is not the one, or not in the version, that was meant.
func conflicts(have *unstructured.Unstructured, uid *types.UID, version *string) error {
	if uid != nil && *uid != "" && *uid != have.GetUID() || version != nil && *version != "" && *version != have.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Resource: have.GetKind()}, have.GetName(), errors.New("it has changed"))
	}
	return nil
}

// Delete implements client.Writer.
func (v *view) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	return v.write(func() error {
		have, err := v.find(v.objects, o)
		if err != nil {
			return err
		}
		var options client.DeleteOptions
		options.ApplyOptions(opts)
		if p := options.Preconditions; p != nil {
			if err := conflicts(have, p.UID, p.ResourceVersion); err != nil {
				return err
			}
		}
		if p := options.PropagationPolicy; p != nil && *p == metav1.DeletePropagationForeground &&
			!slices.Contains(have.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			v.keep(v.by, have, metav1.FinalizerDeleteDependents)
		}
		v.remove(v.by, v.objects[idOf(have)])
		return nil
	})
}

// Patch implements client.Writer.
func (v *view) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	return v.patch(o, p, v.refuses, func(after, patched map[string]any) {
		status := after["status"]
		maps.Copy(after, patched)
		if delete(after, "status"); status != nil {
			after["status"] = status
		}
	})
}

// Status implements client.Client.
func (v *view) Status() client.SubResourceWriter { return statusView{view: v} }

type statusView struct {
	client.SubResourceWriter
	view *view
}

// Patch implements client.SubResourceWriter.
func (s statusView) Patch(_ context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	var options client.SubResourcePatchOptions
	options.ApplyOptions(opts)
	return s.view.patch(o, p, nil, func(after, patched map[string]any) {
		if p.Type() != types.ApplyPatchType {
			after["status"] = patched["status"]
			return
		}
		// What the manager has applied before and does not now goes; each has fields of its own.
		mine := func(field string) bool {
			return (field == "reclaimablePods") == (options.FieldManager == "kueue-reclaimable-pods")
		}
		status, _ := after["status"].(map[string]any)
		wanted, _ := patched["status"].(map[string]any)
		maps.DeleteFunc(status, func(field string, _ any) bool { return mine(field) })
		for field, value := range wanted {
			if mine(field) {
				set(after, value, "status", field)
			}
		}
	})
}

// patch changes an object by what an apply or a merge patch makes of it, if no webhook refuses that.
func (v *view) patch(o client.Object, p client.Patch, refuses func(*unstructured.Unstructured) error,
	change func(after, patched map[string]any)) error {
	return v.write(func() error {
		have, err := v.find(v.objects, o)
		if err != nil {
			return err
		}
		data, err := p.Data(o)
		if err != nil {
			return err
		}
		var content map[string]any
		if err := json.Unmarshal(data, &content); err != nil {
			return err
		}
		meta := &unstructured.Unstructured{Object: content}
		if err := conflicts(have, new(meta.GetUID()), new(meta.GetResourceVersion())); err != nil {
			return err
		}
		patched := content
		if p.Type() == types.MergePatchType {
			patched = merge(have.DeepCopy().Object, content)
		}
		if v.by == muster && refuses != nil {
			if err := refuses(have); err != nil {
				return err
			}
		}
		v.edit(v.by, have, func(after map[string]any) { change(after, patched) })
		return into(v.objects[idOf(have)], o)
	})
}

// merge applies a JSON merge patch.
func merge(to, patch map[string]any) map[string]any {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(to, key)
		case map[string]any:
			inner, ok := to[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			to[key] = merge(inner, value)
		default:
			to[key] = value
		}
	}
	return to
}

// set writes a field below objects.
func set(in map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := in[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[key] = next
		}
		in = next
	}
	in[path[len(path)-1]] = value
}

// get reads a field below objects; nil where there is none.
func get[T any](in map[string]any, path ...string) (out T) {
	value, _, _ := unstructured.NestedFieldNoCopy(in, path...)
	out, _ = value.(T)
	return out
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")
