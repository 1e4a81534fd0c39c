package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// overlay reads the cluster as it would be with these objects in it.
type overlay struct {
	client.Client
	objects []client.Object
}

// isSurrounding reports whether decisions about a job read objects of that kind.
func isSurrounding(o client.Object) bool {
	switch o.(type) {
	case *kueue.ClusterQueue, *kueue.LocalQueue, *kueue.Cohort, *kueue.ResourceFlavor, *kueue.Topology, *kueue.AdmissionCheck,
		*kueue.ProvisioningRequestConfig, *kueue.WorkloadPriorityClass, *v1alpha1.NodeGroup, *v1alpha1.CapacityPolicy,
		*corev1.Namespace, *corev1.LimitRange, *corev1.ResourceQuota, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume,
		*storagev1.StorageClass, *nodev1.RuntimeClass, *schedulingv1.PriorityClass,
		*resourcev1.DeviceClass, *resourcev1.ResourceClaimTemplate:
		return true
	}
	return false
}

// laidOver is the cluster with the objects of a file, each as the API server would have it, and what the answer rests on therefore.
func laidOver(ctx context.Context, kube client.Client, surroundings []manifest, namespace string) (out overlay, notes []string, err error) {
	out.Client = kube
	var changes []string
	for _, m := range surroundings {
		m.object = inNamespace(m.object, namespace)
		name := fmt.Sprintf("%s %s", kindOf(m.object), m.object.GetName())
		done, err := m.try(ctx, out)
		if err != nil {
			return out, nil, err
		}
		if done.exists {
			if m.object, err = changed(ctx, kube, m.object); err != nil {
				return out, nil, m.errorf("changing %s, which exists: %w", name, err)
			}
			changes, done.note = append(changes, name), ""
		}
		if g, ok := m.object.(*v1alpha1.NodeGroup); ok {
			m.object = defaulted(g)
		}
		if done.note != "" {
			notes = append(notes, name+": "+done.note)
		}
		out.objects = append(out.objects, m.object)
	}
	if len(changes) > 0 {
		notes = append(notes, "taken as the file changes them: "+strings.Join(changes, ", "))
	}
	return out, notes, nil
}

// inNamespace is a copy of the object, in the current namespace if its kind has namespaces and it names none.
func inNamespace(o client.Object, namespace string) client.Object {
	out := o.DeepCopyObject().(client.Object)
	switch o.(type) {
	case *kueue.LocalQueue, *corev1.LimitRange, *corev1.ResourceQuota, *corev1.PersistentVolumeClaim:
		if out.GetNamespace() == "" {
			out.SetNamespace(namespace)
		}
	}
	return out
}

// changed is an object of the cluster as it would be with what a file says of it. It keeps its status.
func changed(ctx context.Context, kube client.Client, o client.Object) (client.Object, error) {
	there := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err := kube.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return nil, err
	}
	o.SetUID(there.GetUID())
	o.SetResourceVersion(there.GetResourceVersion())
	o.SetFinalizers(there.GetFinalizers())
	return o, kube.Update(ctx, o, client.DryRunAll)
}

func (c overlay) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	for _, o := range c.objects {
		if reflect.TypeOf(o) == reflect.TypeOf(into) && client.ObjectKeyFromObject(o) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return c.Client.Get(ctx, key, into, opts...)
}

func (c overlay) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	selected := (&client.ListOptions{}).ApplyOptions(opts)
	items, err := apimeta.ExtractList(list)
	if err != nil {
		return err
	}
	of, err := itemTypeOf(list)
	if err != nil {
		return err
	}
	for _, o := range c.objects {
		if reflect.TypeOf(o) != of || selected.Namespace != "" && o.GetNamespace() != selected.Namespace ||
			selected.LabelSelector != nil && !selected.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		items = slices.DeleteFunc(items, func(had runtime.Object) bool {
			return client.ObjectKeyFromObject(had.(client.Object)) == client.ObjectKeyFromObject(o)
		})
		items = append(items, o.DeepCopyObject())
	}
	return apimeta.SetList(list, items)
}

// itemTypeOf is the type of a pointer to an item of a list.
func itemTypeOf(list client.ObjectList) (reflect.Type, error) {
	items, err := apimeta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	return reflect.PointerTo(reflect.TypeOf(items).Elem().Elem()), nil
}
