package stream

import (
	"context"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns the client of a manager. It differs from controller-runtime's in one way: it reads the responses to status writes in
// one pass, and without managed fields, as Informers does with events. For most Workloads such a write is all that Muster sends.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	if options.HTTPClient == nil {
		over, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		options.HTTPClient = over
	}
	inner, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	clients, err := clientsOf(config, options.HTTPClient)
	if err != nil {
		return nil, err
	}
	return answered{inner, clients}, nil
}

type answered struct {
	client.Client

	clients map[reflect.Type]*rest.RESTClient
}

func (a answered) Status() client.SubResourceWriter { return statuses{a.Client.Status(), a.clients} }

type statuses struct {
	client.SubResourceWriter

	clients map[reflect.Type]*rest.RESTClient
}

func (s statuses) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	kind := reflect.TypeOf(o).Elem()
	kube := s.clients[kind]
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	if kube == nil || options.SubResourceBody != nil {
		return s.SubResourceWriter.Patch(ctx, o, patch, opts...)
	}
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	answer := kube.Patch(patch.Type()).Namespace(o.GetNamespace()).Resource(streamed[kind].Resource).Name(o.GetName()).SubResource("status").
		VersionedParams(options.AsPatchOptions(), metav1.ParameterCodec).Body(data).Do(ctx)
	if err := answer.Error(); err != nil {
		return err
	}
	text, err := answer.Raw()
	if err != nil {
		return err
	}
	// Fields that the answer lacks must not keep their values from before.
	reflect.ValueOf(o).Elem().SetZero()
	if err := json.Unmarshal(text, o, decoding); err != nil {
		return fmt.Errorf("decoding the answer to a write of a %s's status: %w", kind.Name(), err)
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}
