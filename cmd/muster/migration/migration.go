// Package migration converts the objects that an older Kueue stored to v1beta2, the one
// version of Kueue's API that Muster serves.
//
// Kueue converts between v1beta1 and v1beta2 by a webhook, and Muster has none. An object
// that is stored as v1beta1 would be read without the fields that v1beta2 renamed, such as
// the cohort of a ClusterQueue. So Kueue's CRDs cannot stay as they are. During the
// migration, each CRD serves a single version without a schema, under a name that no client
// uses. Every field is then seen as it was stored, no other client reads half of an object
// or writes one as v1beta1, and an API server that has not seen the change yet rejects
// requests that would do harm. Each object is converted by Kueue's own functions and written
// back, and the CRD is replaced with Muster's.
//
// The migration may be interrupted between any two writes and run again: the state of an
// object is recognized by its fields, and no field is lost.
package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
)

const (
	oldVersion, newVersion = "v1beta1", "v1beta2"
	// openVersion is the only version that is served while objects are converted.
	openVersion = "v0migration"

	fieldManager = "muster-migrate"
	// pageSize is the number of objects of a list call.
	pageSize = 500
	// reportEvery is the number of objects per line of progress.
	reportEvery = 1000
	// propagation is how long API servers may take to serve a changed CRD.
	propagation = 30 * time.Second
	// mostPasses is the maximum number of passes over all objects until none has changed.
	mostPasses = 10
)

var definitions = apiextensions.SchemeGroupVersion.WithResource("customresourcedefinitions")

// Migration of one cluster.
type Migration struct {
	Client dynamic.Interface
	// Out gets a line for each step.
	Out io.Writer
}

// Pending returns Muster's CRDs of the kinds that are not migrated yet, without kinds that the cluster does not have.
func (m *Migration) Pending(ctx context.Context) (out []*apiextensions.CustomResourceDefinition, err error) {
	manifests, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		return nil, err
	}
	for _, object := range manifests {
		target := &apiextensions.CustomResourceDefinition{}
		if !isKueueCRD(object) {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, target); err != nil {
			return nil, err
		}
		crd, err := (&kind{Migration: m, target: target}).definition(ctx)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading CRD %s: %w", target.Name, err)
		}
		if err == nil &&
			slices.ContainsFunc(crd.Spec.Versions, func(v apiextensions.CustomResourceDefinitionVersion) bool { return v.Name != newVersion }) {
			out = append(out, target)
		}
	}
	return out, nil
}

// Kind migrates a kind to Muster's CRD of it.
func (m *Migration) Kind(ctx context.Context, target *apiextensions.CustomResourceDefinition) error {
	if err := (&kind{Migration: m, target: target}).migrate(ctx); err != nil {
		return fmt.Errorf("%s: %w", target.Name, err)
	}
	return nil
}

// kind is a CRD that is migrated.
type kind struct {
	*Migration
	// target is Muster's CRD.
	target *apiextensions.CustomResourceDefinition
}

func (k *kind) report(format string, args ...any) {
	fmt.Fprintf(k.Out, k.target.Spec.Names.Plural+": "+format+"\n", args...)
}

func (k *kind) migrate(ctx context.Context) error {
	crd, err := k.definition(ctx)
	if err != nil {
		return err
	}
	if other := slices.DeleteFunc(slices.Clone(crd.Status.StoredVersions),
		func(v string) bool { return v == oldVersion || v == newVersion }); len(other) > 0 {
		return fmt.Errorf("status.storedVersions has %s, for which there is no conversion; follow Kueue's release notes to upgrade "+
			"to a release that stores %s or %s", strings.Join(other, ", "), oldVersion, newVersion)
	}
	if err := k.open(ctx); err != nil {
		return fmt.Errorf("serving all fields for the time of the migration: %w", err)
	}
	total, changed, err := k.convert(ctx)
	if err != nil {
		return fmt.Errorf("%w. The kind is served only as %s until the migration is run again and completes", err, openVersion)
	}
	if err := k.close(ctx); err != nil {
		return fmt.Errorf("installing Muster's version of it: %w", err)
	}
	k.report("objects stored as %s: %d, of them converted: %d", newVersion, total, changed)
	return nil
}

func (k *kind) definition(ctx context.Context) (*apiextensions.CustomResourceDefinition, error) {
	object, err := k.Client.Resource(definitions).Get(ctx, k.target.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	crd := &apiextensions.CustomResourceDefinition{}
	return crd, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd)
}

// edit changes the CRD, retrying on conflicts.
func (k *kind) edit(ctx context.Context, change func(*apiextensions.CustomResourceDefinition), subresources ...string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd, err := k.definition(ctx)
		if err != nil {
			return err
		}
		change(crd)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return err
		}
		_, err = k.Client.Resource(definitions).Update(ctx, &unstructured.Unstructured{Object: object},
			metav1.UpdateOptions{FieldManager: fieldManager}, subresources...)
		return err
	})
}

// open serves all objects as they are stored. The versions in which objects may be stored
// remain, unserved, so that the API server can read them.
func (k *kind) open(ctx context.Context) error {
	err := k.edit(ctx, func(crd *apiextensions.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter}
		crd.Spec.Versions = nil
		for _, name := range []string{newVersion, oldVersion, openVersion} {
			crd.Spec.Versions = append(crd.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{
				Name: name, Served: name == openVersion, Storage: name == newVersion,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
				Subresources: k.target.Spec.Versions[0].Subresources,
			})
		}
	})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, propagation, true, func(ctx context.Context) (bool, error) {
		_, err := k.objects().List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, unless(err, apierrors.IsNotFound)
	})
}

// unless returns the error, or nil if it is of a kind that passes.
func unless(err error, passes func(error) bool) error {
	if err != nil && passes(err) {
		return nil
	}
	return err
}

// objects returns a client of the kind in the version that is served during the migration.
func (k *kind) objects() dynamic.NamespaceableResourceInterface {
	return k.Client.Resource(schema.GroupVersionResource{Group: k.target.Spec.Group, Version: openVersion,
		Resource: k.target.Spec.Names.Plural})
}

// convert rewrites all objects until a pass finds each as it was left: an API server that
// had not seen the change may have written one meanwhile.
func (k *kind) convert(ctx context.Context) (total, changed int, err error) {
	left := map[types.UID]string{}
	for range mostPasses {
		written := 0
		total = 0
		err := k.each(ctx, func(o *unstructured.Unstructured) error {
			total++
			if left[o.GetUID()] == o.GetResourceVersion() {
				return nil
			}
			after, converted, err := k.rewrite(ctx, o)
			switch {
			case apierrors.IsNotFound(err), apierrors.IsConflict(err):
				// It has changed or was deleted; the next pass sees that.
				written++
				return nil
			case err != nil:
				return fmt.Errorf("%s: %w", strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), err)
			}
			left[o.GetUID()] = after
			if converted {
				changed++
			}
			if written++; written%reportEvery == 0 {
				k.report("%d objects so far", written)
			}
			return nil
		})
		switch {
		case apierrors.IsResourceExpired(err), apierrors.IsNotFound(err):
			continue // the list took too long, or an API server lags behind: read it again
		case err != nil:
			return 0, 0, err
		case written == 0:
			return total, changed, nil
		}
	}
	return 0, 0, errors.New("its objects keep changing; stop the controllers that write them and run the migration again")
}

// each reads all objects, page by page.
func (k *kind) each(ctx context.Context, do func(*unstructured.Unstructured) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := k.objects().List(ctx, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// rewrite stores an object as v1beta2 and returns its new resourceVersion. The API server
// writes it even if nothing is converted, unless it is stored like this already.
func (k *kind) rewrite(ctx context.Context, o *unstructured.Unstructured) (resourceVersion string, changed bool, err error) {
	out, main, state, err := converted(k.target.Spec.Names.Plural, o)
	if err != nil {
		return "", false, err
	}
	objects, options := k.objects().Namespace(o.GetNamespace()), metav1.UpdateOptions{FieldManager: fieldManager}
	stored, err := objects.Update(ctx, out, options)
	if err == nil && state {
		out.SetResourceVersion(stored.GetResourceVersion())
		stored, err = objects.UpdateStatus(ctx, out, options)
	}
	if err != nil {
		return "", false, err
	}
	return stored.GetResourceVersion(), main || state, nil
}

// close records that nothing is stored as v1beta1 and replaces the CRD with Muster's.
func (k *kind) close(ctx context.Context) error {
	if err := k.edit(ctx, func(crd *apiextensions.CustomResourceDefinition) { crd.Status.StoredVersions = []string{newVersion} },
		status); err != nil {
		return err
	}
	return k.edit(ctx, func(crd *apiextensions.CustomResourceDefinition) {
		crd.Spec = *k.target.Spec.DeepCopy()
		// The annotation makes cert-manager maintain the certificate of a webhook that is gone.
		delete(crd.Annotations, "cert-manager.io/inject-ca-from")
	})
}
