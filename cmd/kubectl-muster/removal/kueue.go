package removal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/health"
	"github.com/muster-dev/muster/cmd/muster/migration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// beforeMuster is the Secret that keeps what going back to Kueue needs.
	beforeMuster = "kueue-before-muster"
	// replicasAnnotation on a Deployment of Muster is how many replicas it had.
	replicasAnnotation = "muster.dev/replicas"
	// setAsideLabel marks a record of Helm that Helm is not to find.
	setAsideLabel = "muster.dev/set-aside"
	// podFinalizer of Kueue is on the pods that it queued, which stay without Kueue.
	podFinalizer = "kueue.x-k8s.io/managed"
	// applier owns what is applied, so that `kubectl apply --server-side` may go on from there.
	applier client.FieldOwner = "kubectl"
	// The annotations by which Helm knows the objects of a release.
	releaseAnnotation, releaseNamespaceAnnotation = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
)

// Migration takes a Kueue out in favour of Muster's queues, and brings it back. What runs goes on,
// and what waits keeps its place: Workloads and queues stay in either direction.
type Migration struct {
	Removal
	Dynamic dynamic.Interface
}

// away are the steps from Kueue to Muster, in their order. Helm forgets Kueue first, since with
// its release all queues would be deleted. The policies come before Kueue's webhooks go, so that
// no Job starts by itself; the webhooks go as soon as Kueue is down, since they refuse pods of the
// whole cluster then.
func (m *Migration) away() []step {
	return []step{
		{"What going back to Kueue needs is kept in Secret " + m.names.Namespace + "/" + beforeMuster, m.keep, nil},
		{"Helm forgets Kueue's release, whose removal would delete all queues", m.forget, nil},
		{"Kueue is stopped", m.stopKueue, m.kueueStopped},
		{"Muster's admission policies for queues are installed", func(ctx context.Context) ([]item, error) { return m.install(ctx, isAdmission) }, nil},
		{"Kueue's webhooks, admission policies and aggregated APIs are deleted", m.webhooks, nil},
		{"Kueue's kinds are served as Muster does, without conversion", m.convert, nil},
		{"Pods that Kueue queued lose its finalizer", m.pods, nil},
		{"Muster's CRDs and rights are installed", func(ctx context.Context) ([]item, error) {
			return m.install(ctx, func(o *unstructured.Unstructured) bool { return !isAdmission(o) })
		}, nil},
		{"Muster runs again, where it was stopped for Kueue", m.resume, nil},
	}
}

// back are the steps from Muster to Kueue. Its webhooks fail open until it serves them.
func (m *Migration) back() []step {
	return []step{
		{"Muster is stopped", m.stopMuster, m.nothingLeads},
		{"Muster's admission policies for queues are deleted", m.policies, nil},
		{"Suspended Jobs are as they were before Muster", m.jobs, nil},
		{"Workloads of pods that Kueue queued are as Kueue makes them", m.groups, nil},
		{"Kueue's CRDs are back", m.restoreCRDs, nil},
		{"Kueue's webhooks, admission policies and aggregated APIs are back; webhooks fail open", m.restoreWebhooks, nil},
		{"Kueue runs", m.startKueue, m.kueueRuns},
		{"Kueue's webhooks fail as they did", m.closeWebhooks, nil},
		{"What has installed Kueue may change it again", m.handOver, nil},
		{"Helm knows Kueue's release again", m.remember, nil},
		{"What was kept is deleted", m.dropKept, nil},
	}
}

// begin finds what is installed, for a caller that may do everything.
func (m *Migration) begin(ctx context.Context) error {
	m.Waiting = Keep
	return m.Removal.begin(ctx)
}

// Check prints what there is and what Apply would do.
func (m *Migration) Check(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := m.survey(ctx); err != nil {
		return err
	}
	return m.plan(ctx, m.away(), "Nothing is left to do: there is no Kueue in the way of Muster's queues.")
}

// Apply takes Kueue out. It may be called again after an error, and after Back.
func (m *Migration) Apply(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := m.survey(ctx); err != nil {
		return err
	}
	if err := m.perform(ctx, m.away()); err != nil {
		return err
	}
	fmt.Fprint(m.Out, `Now start Muster, if it does not run yet: docs/install.md. Its queues begin within seconds.
What is left of Kueue has no effect. Once you are sure that you do not go back, delete its namespace, its ClusterRoles and
their bindings. Do not delete its manifests as a whole: they have the CRDs, and with these go all queues.
`)
	return nil
}

// Back brings Kueue back. It may be called again after an error.
func (m *Migration) Back(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	kept, err := m.kept(ctx)
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		return fmt.Errorf("there is no Secret %s/%s, which `kubectl muster migrate --apply` keeps and going back deletes at its end: there is "+
			"nothing to go back to", m.names.Namespace, beforeMuster)
	}
	return m.perform(ctx, m.back())
}

// deployments are those that run Kueue.
func (m *Migration) deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := m.list(ctx, &list, client.MatchingLabels{nameLabel: "kueue", "control-plane": "controller-manager"})
	return list.Items, err
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// scale sets the replicas of a Deployment.
func (m *Migration) scale(d *appsv1.Deployment, to int32, change func(*appsv1.Deployment)) item {
	return item{fmt.Sprintf("scale %s to %d", describe(d, "Deployment"), to), func(ctx context.Context) error {
		before := d.DeepCopy()
		d.Spec.Replicas = &to
		if change != nil {
			change(d)
		}
		return m.Kube.Patch(ctx, d, client.MergeFrom(before))
	}}
}

func (m *Migration) stopKueue(ctx context.Context) (out []item, err error) {
	all, err := m.deployments(ctx)
	for i := range all {
		if replicas(&all[i]) > 0 {
			out = append(out, m.scale(&all[i], 0, nil))
		}
	}
	return out, err
}

func (m *Migration) kueueStopped(ctx context.Context) (bool, string, error) {
	all, err := m.deployments(ctx)
	if err != nil {
		return false, "", err
	}
	for i := range all {
		if n := all[i].Status.Replicas; n > 0 {
			return false, fmt.Sprintf("%d pods of %s are left", n, describe(&all[i], "Deployment")), nil
		}
	}
	holder, err := migration.Leader(ctx, m.Kube, m.Clock.Now(), migration.Lease)
	return holder == "" && err == nil, fmt.Sprintf("Kueue leads by lease %s: %v", holder, errOutside), err
}

// webhooks are what kube-apiserver would call of Kueue, or does for it.
func (m *Migration) webhooks(ctx context.Context) (out []item, err error) {
	found, err := m.called(ctx)
	for _, o := range found {
		out = append(out, m.deletion(o))
	}
	return out, err
}

// called are Kueue's webhooks, admission policies and aggregated APIs.
func (m *Migration) called(ctx context.Context) (out []*unstructured.Unstructured, err error) {
	found, _, err := migration.Webhooks(ctx, m.Kube)
	if err != nil {
		return nil, err
	}
	for _, o := range found {
		kind := "ValidatingWebhookConfiguration"
		if _, ok := o.(*admissionregistration.MutatingWebhookConfiguration); ok {
			kind = "MutatingWebhookConfiguration"
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(admissionregistration.SchemeGroupVersion.WithKind(kind))
		out = append(out, u)
	}
	for _, kind := range []struct{ version, kind string }{
		{"admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"}, {"admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"},
		{"apiregistration.k8s.io/v1", "APIService"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind.version)
		list.SetKind(kind.kind + "List")
		if err := m.list(ctx, list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			o := &list.Items[i]
			// The API server's own APIServices of Kueue's group have no service.
			if _, aggregated, _ := unstructured.NestedMap(o.Object, "spec", "service"); o.GetLabels()[nameLabel] == "kueue" ||
				aggregated && strings.HasSuffix(o.GetName(), ".visibility."+kueue.SchemeGroupVersion.Group) {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// install are the manifests for queues that the cluster lacks or has otherwise. They can be taken
// over by Muster's charts.
func (m *Migration) install(ctx context.Context, chosen func(*unstructured.Unstructured) bool) (out []item, err error) {
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		return nil, err
	}
	mutations := deploy.ByPolicies
	policies := admissionregistration.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy")
	if _, err := m.Kube.RESTMapper().RESTMapping(policies.GroupKind(), policies.Version); apimeta.IsNoMatchError(err) {
		mutations = deploy.ByControllers
	}
	if objects, err = mutations.By(objects); err != nil {
		return nil, err
	}
	for _, o := range m.names.In(objects) {
		if !chosen(o) {
			continue
		}
		there, err := m.isThere(ctx, o)
		if err != nil {
			return nil, err
		}
		if there {
			continue
		}
		chart := "muster"
		if o.GetKind() == "CustomResourceDefinition" {
			chart = "muster-crds"
		}
		if o.GetKind() != "Namespace" {
			o.SetLabels(with(o.GetLabels(), "app.kubernetes.io/managed-by", "Helm"))
			o.SetAnnotations(with(o.GetAnnotations(), releaseAnnotation, chart, releaseNamespaceAnnotation, m.names.Namespace))
		}
		out = append(out, item{"apply " + describe(o, o.GetKind()), func(ctx context.Context) error {
			return m.Kube.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), applier, client.ForceOwnership)
		}})
	}
	return out, nil
}

// with returns a map with these keys and values, too.
func with(in map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(in)
	if out == nil {
		out = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// isThere reports whether the cluster has an object of the manifests, of a CRD or a policy with its
// content, and not as one of Kueue's release.
func (m *Migration) isThere(ctx context.Context, want *unstructured.Unstructured) (bool, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	switch err := m.Kube.Get(ctx, client.ObjectKeyFromObject(want), live); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", describe(want, want.GetKind()), err)
	case want.GetKind() == "CustomResourceDefinition" && isOfKueue(live):
		return false, nil
	}
	return health.Installed(m.Kube, []*unstructured.Unstructured{want})(ctx) == nil, nil
}

// isOfKueue reports whether a CRD is still marked as one of Kueue's: as one of its release by Helm, or by the label in its manifests.
func isOfKueue(crd *unstructured.Unstructured) bool {
	switch crd.GetAnnotations()[releaseAnnotation] {
	case "muster-crds":
		return false
	case "":
		return crd.GetLabels()[nameLabel] == "kueue"
	}
	return true
}

func (m *Migration) convert(ctx context.Context) (out []item, err error) {
	kinds := &migration.Migration{Client: m.Dynamic, Out: m.Out}
	pending, err := kinds.Pending(ctx)
	for _, crd := range pending {
		out = append(out, item{"rewrite the objects of " + crd.Name + " and serve them as v1beta2 alone",
			func(ctx context.Context) error { return kinds.Kind(ctx, crd) }})
	}
	return out, err
}

func (m *Migration) pods(ctx context.Context) (out []item, err error) {
	var list corev1.PodList
	if err := m.list(ctx, &list, client.MatchingLabels{workload.ManagedLabel: "true"}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p := &list.Items[i]; controllerutil.ContainsFinalizer(p, podFinalizer) {
			out = append(out, item{"take " + podFinalizer + " off " + describe(p, "Pod"), func(ctx context.Context) error {
				before := p.DeepCopy()
				controllerutil.RemoveFinalizer(p, podFinalizer)
				return m.Kube.Patch(ctx, p, client.MergeFrom(before))
			}})
		}
	}
	return out, nil
}

// stopMuster stops Muster as its removal does, and notes how many replicas to start again.
func (m *Migration) stopMuster(ctx context.Context) ([]item, error) {
	return m.musters(ctx, func(d *appsv1.Deployment) (item, bool) {
		now := replicas(d)
		return m.scale(d, 0, func(d *appsv1.Deployment) {
			d.Annotations = with(d.Annotations, replicasAnnotation, strconv.Itoa(int(now)))
		}), now > 0
	})
}

func (m *Migration) resume(ctx context.Context) ([]item, error) {
	return m.musters(ctx, func(d *appsv1.Deployment) (item, bool) {
		had, err := strconv.ParseInt(d.Annotations[replicasAnnotation], 10, 32)
		return m.scale(d, int32(had), func(d *appsv1.Deployment) { delete(d.Annotations, replicasAnnotation) }), err == nil && replicas(d) == 0
	})
}

// musters are the items for the Deployments that run Muster.
func (m *Migration) musters(ctx context.Context, toDo func(*appsv1.Deployment) (item, bool)) (out []item, err error) {
	var list appsv1.DeploymentList
	err = m.list(ctx, &list, client.InNamespace(m.names.Namespace), client.MatchingLabels{nameLabel: "muster"})
	for i := range list.Items {
		if it, needed := toDo(&list.Items[i]); needed {
			out = append(out, it)
		}
	}
	return out, err
}

// policies are Muster's admission policies for queues. Those of the provisioner suit Kueue.
func (m *Migration) policies(ctx context.Context) ([]item, error) {
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		return nil, err
	}
	return m.there(ctx, func(o *unstructured.Unstructured) bool {
		return isAdmission(o) && slices.ContainsFunc(objects, func(q *unstructured.Unstructured) bool {
			return q.GetKind() == o.GetKind() && q.GetName() == o.GetName()
		})
	})
}
