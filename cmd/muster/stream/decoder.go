package stream

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// plain are the options by which client-go decodes objects.
var plain = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decoding are those for whole objects: what a Workload runs, and where, is shared with others, and no cache of Muster keeps managed
// fields.
var decoding = json.JoinOptions(plain, json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(newShared[kueue.PodSet]().decode),
	json.UnmarshalFromFunc(newShared[kueue.PodSetAssignment]().decode),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error { return d.SkipValue() }),
)))

// decoder decodes the events of a watch.
type decoder struct {
	body io.ReadCloser
	json *jsontext.Decoder
	// kind of the objects, a struct.
	kind reflect.Type
	// event is the one at hand; its buffer is used again.
	event struct {
		Type   watch.EventType `json:"type"`
		Object jsontext.Value  `json:"object"`
	}
}

func newDecoder(body io.ReadCloser, kind reflect.Type) *decoder {
	return &decoder{body: body, json: jsontext.NewDecoder(body, plain), kind: kind}
}

// Decode returns the next event, or io.EOF once the watch has ended.
func (d *decoder) Decode() (watch.EventType, runtime.Object, error) {
	d.event.Type, d.event.Object = "", d.event.Object[:0]
	if err := json.UnmarshalDecode(d.json, &d.event); err != nil {
		// The watch distinguishes the two by identity.
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return "", nil, io.ErrUnexpectedEOF
		}
		return "", nil, err
	}
	var object runtime.Object = &metav1.Status{}
	switch d.event.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		object = reflect.New(d.kind).Interface().(runtime.Object) //nolint:forcetypeassert // a pointer to each streamed kind is one
	case watch.Error:
	default:
		return "", nil, fmt.Errorf("a watch of %s has an event of the type %q", d.kind.Name(), d.event.Type)
	}
	if err := json.Unmarshal(d.event.Object, object, decoding); err != nil {
		return "", nil, fmt.Errorf("decoding a %s of a watch: %w", d.kind.Name(), err)
	}
	// Typed objects do not bear their kind.
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return d.event.Type, object, nil
}

// Close ends the watch.
func (d *decoder) Close() { _ = d.body.Close() }
