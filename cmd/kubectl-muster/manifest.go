package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// manifest is an object that a file describes.
type manifest struct {
	object client.Object
	// kind of job that it is; nil for others.
	kind jobs.Kind
	// at names the file and the document in it, for errors.
	at string
}

// stdin is the file name that means standard input.
const stdin = "-"

// readManifests reads all objects of a file, which may have several documents and Lists.
func readManifests(file string, in io.Reader, scheme *runtime.Scheme) ([]manifest, error) {
	name := file
	if file == stdin {
		name = "standard input"
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		defer opened.Close()
		in = opened
	}
	var out []manifest
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for i := 1; ; i++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		found, err := decode(text, fmt.Sprintf("%s, document %d", name, i), scheme)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s contains no object", name)
	}
	return out, nil
}

// decode reads one document; an unknown field is an error.
func decode(text []byte, at string, scheme *runtime.Scheme) ([]manifest, error) {
	asJSON, err := utilyaml.ToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	if string(bytes.TrimSpace(asJSON)) == "null" {
		return nil, nil // nothing but comments
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
	object, _, err := strict.Decode(asJSON, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		// Only the cluster knows its fields.
		object, _, err = unstructured.UnstructuredJSONScheme.Decode(asJSON, nil, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	if list, ok := object.(*corev1.List); ok {
		var out []manifest
		for i, item := range list.Items {
			found, err := decode(item.Raw, fmt.Sprintf("%s, item %d", at, i+1), scheme)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
		return out, nil
	}
	one, ok := object.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s: kind %s is not supported: give single objects, or a List of them", at,
			object.GetObjectKind().GroupVersionKind().Kind)
	}
	return []manifest{{object: one, at: at}}, nil
}

// errorf is an error about a field of the manifest.
func (m manifest) errorf(format string, args ...any) error {
	return fmt.Errorf(m.at+": "+format, args...)
}

// tried is the result of a dry run of creating an object.
type tried struct {
	// exists reports whether an object of its name exists.
	exists bool
	// note says why the object is taken from the file, without the API server's defaults.
	note string
}

// try creates the object in a dry run, which leaves it as it would be in the cluster. It
// returns an error if the API server or a policy refuses it.
func (m *manifest) try(ctx context.Context, kube client.Client) (out tried, err error) {
	o := m.object
	if o.GetName() == "" && o.GetGenerateName() == "" {
		return out, m.errorf("metadata.name is empty")
	}
	guessed, _ := apimeta.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
	resource := guessed.GroupResource()
	if k, ok := m.kind.(*kinds.Kind); ok { // the others have regular plurals
		resource.Resource = k.Resource
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: o.GetNamespace(), Verb: "create", Group: resource.Group, Resource: resource.Resource,
		}}}
	if err := kube.Create(ctx, review); err != nil {
		return out, fmt.Errorf("asking whether you may create %s: %w", resource, err)
	}
	const unasked = "so it is taken from the file as is, without the cluster's defaults and admission policies"
	if !review.Status.Allowed {
		out.note = fmt.Sprintf("you may not create %s, %s", resource, unasked)
		return out, nil
	}
	created := o.DeepCopyObject().(client.Object)
	switch err := kube.Create(ctx, created, client.DryRunAll); {
	case apierrors.IsAlreadyExists(err):
		return tried{exists: true, note: "an object of its name exists, " + unasked}, nil
	case apimeta.IsNoMatchError(err):
		if m.kind == nil {
			return out, view.NotServed(resource)
		}
		return tried{note: fmt.Sprintf("%s. This is the answer for when it is: the job is taken from the file as is",
			view.NotServed(resource))}, nil
	case apierrors.IsNotFound(err) && o.GetNamespace() != "" &&
		kube.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, &corev1.Namespace{}) == nil:
		return tried{note: "its namespace is in the file alone, " + unasked}, nil
	case err != nil:
		return out, m.errorf("the API server would refuse it: %w", err)
	}
	m.object = created
	return out, nil
}
