package removal

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/migration"
)

// keptKey is the key of the Secret's data: a JSON list of objects, compressed.
const keptKey = "objects.json.gz"

// keep are what of Kueue is changed or deleted, as it is as long as Kueue is whole: CRDs,
// webhooks, policies, APIServices, and how many replicas it has.
func (m *Migration) keep(ctx context.Context) ([]item, error) {
	objects, whole, err := m.present(ctx)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	data, err := pack(objects)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.names.Namespace, Name: beforeMuster}}
	err = m.Kube.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s: %w", describe(secret, "Secret"), err)
	}
	if missing := err != nil; !missing && (!whole || bytes.Equal(secret.Data[keptKey], data)) {
		return nil, nil
	}
	return []item{{fmt.Sprintf("keep %d objects of Kueue", len(objects)), func(ctx context.Context) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.names.Namespace}}
		if err := m.Kube.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		secret.Data = map[string][]byte{keptKey: data}
		if secret.ResourceVersion != "" {
			return m.Kube.Update(ctx, secret)
		}
		return m.Kube.Create(ctx, secret)
	}}}, nil
}

// present are Kueue's objects in the cluster that a migration changes. Kueue is whole while it
// runs.
func (m *Migration) present(ctx context.Context) (out []*unstructured.Unstructured, whole bool, err error) {
	found, err := m.called(ctx)
	if err != nil {
		return nil, false, err
	}
	crds, err := migration.CRDs(ctx, m.Kube)
	if err != nil {
		return nil, false, err
	}
	if slices.ContainsFunc(crds, migration.IsConverted) {
		found = append(found, crds...)
	}
	if len(found) == 0 {
		return nil, false, nil
	}
	deployments, err := m.deployments(ctx)
	if err != nil {
		return nil, false, err
	}
	for i := range deployments {
		d := &deployments[i]
		whole = whole || replicas(d) > 0
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			return nil, false, err
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		found = append(found, u)
	}
	leader, err := migration.Leader(ctx, m.Kube, m.Clock.Now(), migration.Lease)
	for _, o := range found {
		o := o.DeepCopy()
		for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		o.SetManagedFields(managers(o))
		delete(o.Object, "status")
		out = append(out, o)
	}
	return out, whole || leader != "", err
}

func pack(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(objects); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// kept are the objects in the Secret; none without it.
func (m *Migration) kept(ctx context.Context, kinds ...string) (out []*unstructured.Unstructured, err error) {
	secret := &corev1.Secret{}
	err = m.Kube.Get(ctx, client.ObjectKey{Namespace: m.names.Namespace, Name: beforeMuster}, secret)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(secret.Data[keptKey]))
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", m.names.Namespace, beforeMuster, err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", m.names.Namespace, beforeMuster, err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", m.names.Namespace, beforeMuster, err)
	}
	return slices.DeleteFunc(out, func(o *unstructured.Unstructured) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, o.GetKind())
	}), nil
}

// records are Helm's of the release that Kueue's CRDs are of.
func (m *Migration) records(ctx context.Context, label client.MatchingLabels, what string,
	change func(map[string]string)) (out []item, err error) {
	kept, err := m.kept(ctx, "CustomResourceDefinition")
	if err != nil {
		return nil, err
	}
	if len(kept) == 0 { // before the first step, as a plan
		if kept, _, err = m.present(ctx); err != nil {
			return nil, err
		}
	}
	for _, o := range kept {
		if release := o.GetAnnotations()[releaseAnnotation]; release != "" && o.GetKind() == "CustomResourceDefinition" {
			label["name"] = release
			var list corev1.SecretList
			err := m.list(ctx, &list, label, client.InNamespace(o.GetAnnotations()[releaseNamespaceAnnotation]))
			for i := range list.Items {
				s := &list.Items[i]
				out = append(out, item{what + " " + describe(s, "Secret"), func(ctx context.Context) error {
					before := s.DeepCopy()
					change(s.Labels)
					return m.Kube.Patch(ctx, s, client.MergeFrom(before))
				}})
			}
			return out, err
		}
	}
	return nil, nil
}

func (m *Migration) forget(ctx context.Context) ([]item, error) {
	return m.records(ctx, client.MatchingLabels{"owner": "helm"}, "hide from Helm", func(labels map[string]string) {
		delete(labels, "owner")
		labels[setAsideLabel] = "true"
	})
}

func (m *Migration) remember(ctx context.Context) ([]item, error) {
	return m.records(ctx, client.MatchingLabels{setAsideLabel: "true"}, "show to Helm", func(labels map[string]string) {
		delete(labels, setAsideLabel)
		labels["owner"] = "helm"
	})
}

// restoreCRDs gives the CRDs back the versions and conversions that they had.
func (m *Migration) restoreCRDs(ctx context.Context) (out []item, err error) {
	kept, err := m.kept(ctx, "CustomResourceDefinition")
	if err != nil {
		return nil, err
	}
	for _, was := range kept {
		live := migration.NewCRD()
		if err := m.Kube.Get(ctx, client.ObjectKeyFromObject(was), live); err != nil {
			return nil, fmt.Errorf("reading CRD %s: %w", was.GetName(), err)
		}
		if serves(live) == serves(was) {
			continue
		}
		out = append(out, item{"update CRD " + was.GetName(), func(ctx context.Context) error {
			live.Object["spec"] = was.Object["spec"]
			live.SetLabels(was.GetLabels())
			live.SetAnnotations(was.GetAnnotations())
			return m.Kube.Update(ctx, live)
		}})
	}
	return out, nil
}

// serves reports which versions a CRD has, how they are converted, and of which release it is. The
// certificate of a conversion changes.
func serves(crd *unstructured.Unstructured) (out string) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		out += fmt.Sprint(v["name"], v["served"], v["storage"], " ")
	}
	return out + fmt.Sprint(migration.IsConverted(crd), crd.GetAnnotations()[releaseAnnotation])
}

// restoreWebhooks creates what kube-apiserver called of Kueue.
func (m *Migration) restoreWebhooks(ctx context.Context) (out []item, err error) {
	kept, err := m.kept(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range kept {
		if o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Deployment" {
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		switch err := m.Kube.Get(ctx, client.ObjectKeyFromObject(o), live); {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("reading %s: %w", describe(o, o.GetKind()), err)
		case err == nil:
			continue
		}
		if _, err := setFailure(o, func(string) any { return string(admissionregistration.Ignore) }); err != nil {
			return nil, err
		}
		o.SetManagedFields(nil)
		out = append(out, item{"create " + describe(o, o.GetKind()), func(ctx context.Context) error { return m.Kube.Create(ctx, o) }})
	}
	return out, nil
}

// setFailure sets what becomes of requests for which the webhooks do not answer, by the names of
// the webhooks; nil leaves it. It reports whether that changed anything.
func setFailure(o *unstructured.Unstructured, to func(name string) any) (changed bool, err error) {
	webhooks, found, err := unstructured.NestedSlice(o.Object, "webhooks")
	if !found || err != nil {
		return false, err
	}
	for _, w := range webhooks {
		w, _ := w.(map[string]any)
		name, _ := w["name"].(string)
		if policy := to(name); policy != nil && policy != w["failurePolicy"] {
			w["failurePolicy"], changed = policy, true
		}
	}
	return changed, unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
}

func (m *Migration) closeWebhooks(ctx context.Context) (out []item, err error) {
	kept, err := m.kept(ctx, "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	for _, was := range kept {
		had := map[string]any{}
		webhooks, _, _ := unstructured.NestedSlice(was.Object, "webhooks")
		for _, w := range webhooks {
			w, _ := w.(map[string]any)
			had[fmt.Sprint(w["name"])] = w["failurePolicy"]
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(was.GroupVersionKind())
		if err := m.Kube.Get(ctx, client.ObjectKeyFromObject(was), live); err != nil {
			return nil, fmt.Errorf("reading %s: %w", describe(was, was.GetKind()), err)
		}
		changed, err := setFailure(live, func(name string) any { return had[name] })
		if err != nil {
			return nil, err
		}
		if changed {
			out = append(out, item{"restore failurePolicy in " + describe(live, live.GetKind()),
				func(ctx context.Context) error { return m.Kube.Update(ctx, live) }})
		}
	}
	return out, nil
}

// managers are those of an object's fields, but for its status.
func managers(o *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource != "" })
}

func isSameManager(a, b metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation
}

// handOver makes the fields of Kueue's objects those of their managers again. Otherwise `kubectl apply --server-side` of Kueue's
// manifests, of the same or another release, would be in conflict with this command.
func (m *Migration) handOver(ctx context.Context) (out []item, err error) {
	kept, err := m.kept(ctx)
	if err != nil {
		return nil, err
	}
	for _, was := range kept {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(was.GroupVersionKind())
		if err := m.Kube.Get(ctx, client.ObjectKeyFromObject(was), live); err != nil {
			return nil, fmt.Errorf("reading %s: %w", describe(was, was.GetKind()), err)
		}
		before := managers(was)
		if len(before) == 0 || slices.EqualFunc(before, managers(live), isSameManager) {
			continue
		}
		out = append(out, item{"hand over the fields of " + describe(was, was.GetKind()), func(ctx context.Context) error {
			after := live.DeepCopy()
			status := slices.DeleteFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "" })
			after.SetManagedFields(append(before, status...))
			return m.Kube.Patch(ctx, after, client.MergeFrom(live))
		}})
	}
	return out, nil
}

func (m *Migration) startKueue(ctx context.Context) (out []item, err error) {
	kept, err := m.kept(ctx, "Deployment")
	if err != nil {
		return nil, err
	}
	for _, o := range kept {
		was, d := &appsv1.Deployment{}, &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, was); err != nil {
			return nil, err
		}
		if err := m.Kube.Get(ctx, client.ObjectKeyFromObject(was), d); err != nil {
			return nil, fmt.Errorf("reading %s: %w; install Kueue's manifests again, and run the command again", describe(was, "Deployment"), err)
		}
		if to := max(1, replicas(was)); replicas(d) == 0 {
			out = append(out, m.scale(d, to, nil))
		}
	}
	return out, nil
}

func (m *Migration) kueueRuns(ctx context.Context) (bool, string, error) {
	all, err := m.deployments(ctx)
	if err != nil {
		return false, "", err
	}
	for i := range all {
		if all[i].Status.AvailableReplicas == 0 {
			return false, describe(&all[i], "Deployment") + " is not available", nil
		}
	}
	var leases coordinationv1.LeaseList
	if err := m.list(ctx, &leases, client.MatchingFields{"metadata.name": migration.Lease}); err != nil {
		return false, "", err
	}
	if len(all) > 0 && len(leases.Items) == 0 { // it has no leader election
		return true, "", nil
	}
	leader, err := migration.Leader(ctx, m.Kube, m.Clock.Now(), migration.Lease)
	return leader != "" && err == nil, "no Kueue leads: start the process that ran before", err
}

func (m *Migration) dropKept(ctx context.Context) ([]item, error) {
	kept, err := m.kept(ctx)
	if len(kept) == 0 || err != nil {
		return nil, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.names.Namespace, Name: beforeMuster}}
	return []item{{"delete " + describe(secret, "Secret"), func(ctx context.Context) error { return m.Kube.Delete(ctx, secret) }}}, nil
}
