package simulation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store simulates the API server: objects by kind, one revision for all of them, merge patches of objects and of their status, and
// optimistic locks. A stored object is never changed, only replaced, so callers may keep what they get.
type store struct {
	// revision is that of the last write.
	revision uint64
	// made counts the objects ever made: UIDs follow from it.
	made   int
	tables map[string]*table
	// onChange is called for each version and each deletion, in order.
	onChange func(o client.Object, deleted bool)
}

// table holds the objects of one kind, also in the order of their keys.
type table struct {
	keys    []client.ObjectKey
	objects map[client.ObjectKey]client.Object
}

func newStore() *store { return &store{tables: map[string]*table{}} }

// kindOf names the kind of an object.
func kindOf(o any) string { return reflect.TypeOf(o).Elem().Name() }

func (s *store) table(kind string) *table {
	t := s.tables[kind]
	if t == nil {
		t = &table{objects: map[client.ObjectKey]client.Object{}}
		s.tables[kind] = t
	}
	return t
}

// list returns the objects of a kind in the order of their keys.
func (s *store) list(kind string) []client.Object {
	t := s.table(kind)
	out := make([]client.Object, len(t.keys))
	for i, key := range t.keys {
		out[i] = t.objects[key]
	}
	return out
}

// all returns the objects of one type in the order of their keys.
func all[T client.Object](s *store) []T {
	t := s.table(reflect.TypeFor[T]().Elem().Name())
	out := make([]T, len(t.keys))
	for i, key := range t.keys {
		out[i] = t.objects[key].(T)
	}
	return out
}

// find returns an object, or nil.
func find[T client.Object](s *store, namespace, name string) (out T) {
	t := s.table(reflect.TypeFor[T]().Elem().Name())
	out, _ = t.objects[client.ObjectKey{Namespace: namespace, Name: name}].(T)
	return out
}

func compareKeys(a, b client.ObjectKey) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func notFound(kind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
}

// get returns the object of the kind and key of another one.
func (s *store) get(like client.Object) (client.Object, error) {
	o := s.table(kindOf(like)).objects[client.ObjectKeyFromObject(like)]
	if o == nil {
		return nil, notFound(kindOf(like), like.GetName())
	}
	return o, nil
}

// create stores a new object.
func (s *store) create(o client.Object) (client.Object, error) {
	kind := kindOf(o)
	if _, err := s.get(o); err == nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: kind}, o.GetName())
	}
	o = o.DeepCopyObject().(client.Object)
	s.made++
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", strings.ToLower(kind), s.made)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetGeneration(1)
	return s.write(o)
}

// delete removes an object at once.
func (s *store) delete(like client.Object) error {
	o, err := s.get(like)
	if err != nil {
		return err
	}
	t, key := s.table(kindOf(o)), client.ObjectKeyFromObject(o)
	i, _ := slices.BinarySearchFunc(t.keys, key, compareKeys)
	t.keys = slices.Delete(t.keys, i, i+1)
	delete(t.objects, key)
	s.revision++
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	s.onChange(o, true)
	return nil
}

// evict deletes a pod as its kubelet will see, unless its budget says no.
func (s *store) evict(like client.Object, eviction *policyv1.Eviction) error {
	o, err := s.get(like)
	if err != nil {
		return err
	}
	p := o.(*corev1.Pod)
	if uid := eviction.DeleteOptions.Preconditions.UID; *uid != p.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, p.Name, fmt.Errorf("its UID is %s, not %s", p.UID, *uid))
	}
	if p.Annotations[budgetAnnotation] != "" {
		err := apierrors.NewTooManyRequests("the pod has a PodDisruptionBudget", 10)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "the budget needs all pods"}}
		return err
	}
	change(s, p, markDeleted)
	return nil
}

// markDeleted marks a pod as the API server does that leaves it to its kubelet.
func markDeleted(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		now := metav1.NewTime(moment(time.Now()))
		p.DeletionTimestamp = &now
	}
}

// change changes an object, if it exists, as a client that is not simulated.
func change[T client.Object](s *store, o T, f func(T)) {
	old, err := s.get(o)
	if err != nil {
		return
	}
	changed := old.DeepCopyObject().(T)
	f(changed)
	if equality.Semantic.DeepEqual(old, client.Object(changed)) {
		return
	}
	if _, err := s.write(changed); err != nil {
		panic(fmt.Sprintf("the simulated cluster wrote nonsense: %v", err))
	}
}

// patch applies a merge patch to an object, or to its status.
func (s *store) patch(like client.Object, data []byte, part part) (client.Object, error) {
	old, err := s.get(like)
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if meta, ok := patch["metadata"].(map[string]any); ok {
		if v, locked := meta["resourceVersion"]; locked && v != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: kindOf(old)}, old.GetName(),
				errors.New("the object has been modified"))
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return nil, err
	}
	patched := reflect.New(reflect.TypeOf(old).Elem()).Interface().(client.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merge(content, patch), patched); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	changed := old.DeepCopyObject().(client.Object)
	switch before := statusOf(changed); {
	case part == status:
		before.Set(statusOf(patched))
	case before.IsValid():
		statusOf(patched).Set(before)
		changed = patched
	default:
		changed = patched
	}
	if equality.Semantic.DeepEqual(old, changed) {
		return old, nil // as etcd is spared by the API server
	}
	if !equality.Semantic.DeepEqual(specOf(old), specOf(changed)) {
		changed.SetGeneration(old.GetGeneration() + 1)
	}
	return s.write(changed)
}

// part says what of an object is patched.
type part bool

const (
	// object: all but the status.
	object part = false
	// status: nothing else.
	status part = true
)

func statusOf(o client.Object) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName("Status") }

func specOf(o client.Object) any {
	if spec := reflect.ValueOf(o).Elem().FieldByName("Spec"); spec.IsValid() {
		return spec.Interface()
	}
	return nil
}

// merge applies a JSON merge patch (RFC 7396).
func merge(into, patch map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			inner, _ := into[key].(map[string]any)
			into[key] = merge(inner, value)
		default:
			into[key] = value
		}
	}
	return into
}

// write stores the next version of an object.
func (s *store) write(o client.Object) (client.Object, error) {
	if err := valid(o); err != nil {
		return nil, err
	}
	s.revision++
	o.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	t, key := s.table(kindOf(o)), client.ObjectKeyFromObject(o)
	if i, known := slices.BinarySearchFunc(t.keys, key, compareKeys); !known {
		t.keys = slices.Insert(t.keys, i, key)
	}
	t.objects[key] = o
	s.onChange(o, false)
	return o, nil
}

// valid refuses what the API server would, of that which Muster makes up: labels.
func valid(o client.Object) error {
	if errs := validation.ValidateLabels(o.GetLabels(), field.NewPath("metadata", "labels")); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: kindOf(o)}, o.GetName(), errs)
	}
	return nil
}
