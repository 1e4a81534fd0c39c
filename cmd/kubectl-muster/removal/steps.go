package removal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// The labels of the chart's own objects.
const (
	nameLabel     = "app.kubernetes.io/name"
	instanceLabel = "app.kubernetes.io/instance"
)

// begin finds the names of the installation, for a caller that may do everything.
func (r *Removal) begin(ctx context.Context) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	if err := r.Kube.Create(ctx, review); err != nil {
		return fmt.Errorf("asking for your rights: %w", err)
	}
	if !review.Status.Allowed {
		return errors.New("this takes the rights of a cluster administrator, the ClusterRole cluster-admin, which you lack")
	}
	r.names = deploy.DefaultNames
	for _, name := range []string{"muster-health", "muster-metrics", "muster-provisioning", "muster-queueing"} {
		binding := &rbacv1.ClusterRoleBinding{}
		switch err := r.Kube.Get(ctx, client.ObjectKey{Name: name}, binding); {
		case apierrors.IsNotFound(err) || err == nil && len(binding.Subjects) == 0:
			continue
		case err != nil:
			return fmt.Errorf("reading ClusterRoleBinding %s: %w", name, err)
		}
		r.names.Namespace, r.names.ServiceAccount = binding.Subjects[0].Namespace, binding.Subjects[0].Name
		break
	}
	binding := &rbacv1.ClusterRoleBinding{}
	if err := r.Kube.Get(ctx, client.ObjectKey{Name: "muster-dashboard"}, binding); err == nil && len(binding.Subjects) > 0 {
		r.names.Dashboard = binding.Subjects[0].Name
	}
	return nil
}

// list reads objects of a kind that the cluster may not have.
func (r *Removal) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := r.Kube.List(ctx, list, options...); err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	return nil
}

// launches are the Workloads that wait, which are deactivated so that no machine is launched for
// them, and the requests that have none of their pods yet. With Muster gone already there is
// nothing that would undo them.
func (r *Removal) launches(ctx context.Context) (out []item, err error) {
	if leads, err := r.leads(ctx); leads == "" || err != nil {
		return nil, err
	}
	var workloads kueue.WorkloadList
	if err := r.list(ctx, &workloads); err != nil {
		return nil, err
	}
	for i := range workloads.Items {
		w := &workloads.Items[i]
		if workload.IsFinished(w) || workload.IsAdmitted(w) || w.Spec.Active != nil && !*w.Spec.Active {
			continue
		}
		out = append(out, item{"deactivate " + describe(w, "Workload"), func(ctx context.Context) error {
			before := w.DeepCopy()
			w.Spec.Active = new(false)
			return r.Kube.Patch(ctx, w, client.MergeFrom(before))
		}})
	}
	var requests provreq.ProvisioningRequestList
	if err := r.list(ctx, &requests); err != nil {
		return nil, err
	}
	for i := range requests.Items {
		if q := &requests.Items[i]; !apimeta.IsStatusConditionTrue(q.Status.Conditions, provreq.Provisioned) {
			out = append(out, item{"delete " + describe(q, "ProvisioningRequest"), func(ctx context.Context) error { return r.Kube.Delete(ctx, q) }})
		}
	}
	return out, nil
}

func (r *Removal) nothingInFlight(ctx context.Context) (bool, string, error) {
	var requests provreq.ProvisioningRequestList
	if err := r.list(ctx, &requests); err != nil {
		return false, "", err
	}
	for i := range requests.Items {
		q := &requests.Items[i]
		record, ok := q.Status.ProvisioningClassDetails[transaction.AttemptDetail]
		if !ok {
			continue
		}
		attempt, err := transaction.DecodeAttempt(string(record))
		if err != nil || attempt.InFlight() {
			why := describe(q, "ProvisioningRequest") + " has a launch in flight"
			if leads, err := r.leads(ctx); leads == "" && err == nil {
				return false, "", fmt.Errorf("%s, and no Muster runs that would undo it: start it and run the command again, or delete the request "+
					"and look in the cloud for its machines", why)
			}
			return false, why, nil
		}
	}
	return true, "", nil
}

// leads returns the holder of the lease; empty if no process leads.
func (r *Removal) leads(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	err := r.Kube.Get(ctx, client.ObjectKey{Namespace: r.names.Namespace, Name: "muster"}, lease)
	switch s := lease.Spec; {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading the lease %s/muster: %w", r.names.Namespace, err)
	case s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil:
		return "", nil
	case r.Clock.Since(s.RenewTime.Time).Seconds() > float64(*s.LeaseDurationSeconds):
		return "", nil
	default:
		return *s.HolderIdentity, nil
	}
}

// processes are the Deployments that run Muster.
func (r *Removal) processes(ctx context.Context) (out []item, err error) {
	var list appsv1.DeploymentList
	if err := r.list(ctx, &list, client.InNamespace(r.names.Namespace), client.MatchingLabels{nameLabel: "muster"}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if d := &list.Items[i]; d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			out = append(out, item{"scale " + describe(d, "Deployment") + " to 0", func(ctx context.Context) error {
				before := d.DeepCopy()
				d.Spec.Replicas = new(int32(0))
				return r.Kube.Patch(ctx, d, client.MergeFrom(before))
			}})
		}
	}
	return out, nil
}

func (r *Removal) nothingLeads(ctx context.Context) (bool, string, error) {
	holder, err := r.leads(ctx)
	if err != nil || holder == "" {
		return err == nil, "", err
	}
	return false, fmt.Sprintf("%s holds the lease %s/muster: %v", holder, r.names.Namespace, errOutside), nil
}

// there returns the manifests of these kinds that the cluster has, to be deleted.
func (r *Removal) there(ctx context.Context, chosen func(*unstructured.Unstructured) bool) (out []item, err error) {
	objects, err := r.manifests()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, o := range objects {
		what := describe(o, o.GetKind())
		if seen[what] || !chosen(o) {
			continue
		}
		seen[what] = true
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		switch err := r.Kube.Get(ctx, client.ObjectKeyFromObject(o), live); {
		case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", what, err)
		default:
			out = append(out, r.deletion(live))
		}
	}
	return out, nil
}

func (r *Removal) deletion(o client.Object) item {
	return item{"delete " + describe(o, o.GetObjectKind().GroupVersionKind().Kind), func(ctx context.Context) error {
		return r.Kube.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}}
}

func (r *Removal) admission(ctx context.Context) ([]item, error) {
	return r.there(ctx, isAdmission)
}

func isAdmission(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

// queuedJob is a job of a kind that Muster queues by itself.
type queuedJob struct {
	client.Object
	kind jobs.Kind
}

// queuedJobs are the jobs of all kinds that the cluster has.
func (r *Removal) queuedJobs(ctx context.Context) (out []queuedJob, err error) {
	all, err := r.jobKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range all {
		gvk := kind.GroupVersionKind()
		var list client.ObjectList = &batchv1.JobList{}
		if gvk.Group != batchv1.GroupName {
			untyped := &unstructured.UnstructuredList{}
			untyped.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			list = untyped
		}
		if err := r.list(ctx, list); err != nil {
			return nil, err
		}
		if err := apimeta.EachListItem(list, func(o runtime.Object) error {
			out = append(out, queuedJob{o.(client.Object), kind})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// resolve gives a job the object that its pods come from, where it has one.
func (r *Removal) resolve(ctx context.Context, j queuedJob) error {
	kind, ok := j.kind.(jobs.Resolver)
	if !ok || kind.Source().Empty() {
		return nil
	}
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(kind.Source())
	switch err := r.Kube.Get(ctx, client.ObjectKeyFromObject(j), source); {
	case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		kind.Resolve(j.Object, nil)
	case err != nil:
		return fmt.Errorf("reading %s: %w", describe(source, kind.Source().Kind), err)
	default:
		kind.Resolve(j.Object, source)
	}
	return nil
}

func (j queuedJob) String() string { return describe(j, j.kind.GroupVersionKind().Kind) }

// waits reports whether a job waits in a queue.
func (j queuedJob) waits() bool {
	return j.kind.IsSuspended(j.Object) && j.GetLabels()[jobs.QueueLabel] != ""
}

// jobs takes off what Muster wrote on jobs. The template of a Job that runs cannot be changed: it
// keeps its node selectors, and its nodes their labels. So it is done with all kinds, since a
// change of a template may have an operator replace the pods.
func (r *Removal) jobs(ctx context.Context) (out []item, err error) {
	list, err := r.queuedJobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range list {
		record := j.GetAnnotations()[jobs.StartedAnnotation]
		release := r.Waiting == Release && j.waits()
		if record == "" && !release {
			continue
		}
		what := "restore " + j.String()
		if release {
			what = "start " + j.String() + ", which waits"
		}
		out = append(out, item{what, func(ctx context.Context) error {
			if err := r.resolve(ctx, j); err != nil {
				return err
			}
			before := j.DeepCopyObject().(client.Object)
			if j.kind.IsSuspended(j.Object) && record != "" {
				if _, err := j.kind.Restore(j.Object, []byte(record), nil); err != nil {
					return err
				}
			}
			annotations := j.GetAnnotations()
			delete(annotations, jobs.StartedAnnotation)
			j.SetAnnotations(annotations)
			if release {
				j.kind.Resume(j.Object)
			}
			return r.Kube.Patch(ctx, j.Object, client.MergeFrom(before))
		}})
	}
	return out, nil
}

// runningOn are the booking labels that pods of running jobs select, by their jobs.
func (r *Removal) runningOn(ctx context.Context) (map[string][]string, error) {
	list, err := r.queuedJobs(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, j := range list {
		if outcome, _ := j.kind.Outcome(j.Object); j.kind.IsSuspended(j.Object) || outcome != jobs.Unfinished {
			continue
		}
		if err := r.resolve(ctx, j); err != nil {
			return nil, err
		}
		podSets, _ := j.kind.PodSets(j.Object)
		for i := range podSets {
			for label := range podSets[i].Template.Spec.NodeSelector {
				if strings.HasPrefix(label, v1alpha1.BookedLabelPrefix) && !slices.Contains(out[label], j.String()) {
					out[label] = append(out[label], j.String())
				}
			}
		}
	}
	return out, nil
}

func (r *Removal) nodes(ctx context.Context) (out []item, err error) {
	needed, err := r.runningOn(ctx)
	if err != nil {
		return nil, err
	}
	var list corev1.NodeList
	if err := r.list(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		n := &list.Items[i]
		before := n.DeepCopy()
		if _, ours := n.Annotations[v1alpha1.CordonedAnnotation]; ours && !state.IsTainted(n) {
			n.Spec.Unschedulable = false
		}
		state.Untaint(n)
		if _, ours := n.Annotations[v1alpha1.KeptAnnotation]; ours {
			delete(n.Annotations, v1alpha1.ScaleDownDisabledAnnotation)
		}
		delete(n.Labels, v1alpha1.HeldLabel)
		for _, key := range []string{v1alpha1.CordonedAnnotation, v1alpha1.KeptAnnotation, v1alpha1.LaunchAnnotation} {
			delete(n.Annotations, key)
		}
		for label := range n.Labels {
			if strings.HasPrefix(label, v1alpha1.BookedLabelPrefix) && needed[label] == nil {
				delete(n.Labels, label)
			}
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(n.Labels)),
			func(l string) bool { return strings.HasPrefix(l, v1alpha1.BookedLabelPrefix) }) {
			delete(n.Labels, v1alpha1.BookedByLabel)
		}
		for key := range n.Annotations {
			if strings.HasPrefix(key, v1alpha1.BookedLabelPrefix) {
				delete(n.Annotations, key)
			}
		}
		patch := client.MergeFrom(before)
		if data, err := patch.Data(n); err != nil || string(data) == "{}" {
			continue
		}
		what := "clean " + describe(n, "Node")
		if before.Spec.Unschedulable && !n.Spec.Unschedulable || state.IsTainted(before) {
			what += " and lift its cordon"
		}
		out = append(out, item{what, func(ctx context.Context) error { return r.Kube.Patch(ctx, n, patch) }})
	}
	return out, nil
}

// objects of Muster's kinds. Those of the simulation are machines, which other pods run on.
func (r *Removal) objects(ctx context.Context) (out []item, err error) {
	crds, err := r.crds(ctx)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if deploy.ForSimulation(crd) {
			continue
		}
		objects, err := r.objectsOf(ctx, crd)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			o := &objects[i]
			out = append(out, item{"delete " + describe(o, o.GetKind()), func(ctx context.Context) error {
				if len(o.GetFinalizers()) > 0 {
					before := o.DeepCopy()
					o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool {
						return f == kueue.ResourceInUseFinalizerName || f == workload.CopiesFinalizer
					}))
					if err := r.Kube.Patch(ctx, o, client.MergeFrom(before)); err != nil {
						return err
					}
				}
				return r.deletion(o).do(ctx)
			}})
		}
	}
	return out, nil
}

// noObjects waits for what the objects own, too: pod templates are collected as long as the kinds
// of their owners are there.
func (r *Removal) noObjects(ctx context.Context) (bool, string, error) {
	left, err := r.objects(ctx)
	if err != nil || len(left) > 0 {
		return false, fmt.Sprintf("%d objects are left", len(left)), err
	}
	var templates corev1.PodTemplateList
	if err := r.list(ctx, &templates); err != nil {
		return false, "", err
	}
	for i := range templates.Items {
		for _, owner := range templates.Items[i].OwnerReferences {
			if strings.HasPrefix(owner.APIVersion, kueue.SchemeGroupVersion.Group+"/") ||
				strings.HasPrefix(owner.APIVersion, provreq.SchemeGroupVersion.Group+"/") {
				return false, describe(&templates.Items[i], "PodTemplate") + " is left", nil
			}
		}
	}
	return true, "", nil
}

// installed is what manifests, the chart and Helm left, the namespace only if it is the usual one.
func (r *Removal) installed(ctx context.Context) (out []item, err error) {
	instances := map[string]bool{}
	for _, kind := range []struct{ version, kind string }{
		{"apps/v1", "Deployment"}, {"v1", "Service"}, {"v1", "ConfigMap"}, {"policy/v1", "PodDisruptionBudget"},
		{"networking.k8s.io/v1", "NetworkPolicy"}, {"networking.k8s.io/v1", "Ingress"},
		{"monitoring.coreos.com/v1", "ServiceMonitor"}, {"monitoring.coreos.com/v1", "PrometheusRule"},
	} {
		for _, name := range []string{"muster", "muster-dashboard"} {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(kind.version)
			list.SetKind(kind.kind + "List")
			if err := r.list(ctx, list, client.InNamespace(r.names.Namespace), client.MatchingLabels{nameLabel: name}); err != nil {
				return nil, err
			}
			for i := range list.Items {
				instances[list.Items[i].GetLabels()[instanceLabel]] = true
				out = append(out, r.deletion(&list.Items[i]))
			}
		}
	}
	manifests, err := r.there(ctx, func(o *unstructured.Unstructured) bool {
		return !isAdmission(o) && o.GetKind() != "CustomResourceDefinition" && (o.GetKind() != "Namespace" || o.GetName() == deploy.Namespace)
	})
	if err != nil {
		return nil, err
	}
	// The namespace goes last.
	slices.Reverse(manifests)
	var releases corev1.SecretList
	if err := r.list(ctx, &releases, client.MatchingLabels{"owner": "helm"}); err != nil {
		return nil, err
	}
	for i := range releases.Items {
		s := &releases.Items[i]
		if name := s.Labels["name"]; name == "muster-crds" || s.Namespace == r.names.Namespace && instances[name] {
			out = append(out, item{"delete Helm's record of " + name + ", Secret " + s.Namespace + "/" + s.Name,
				func(ctx context.Context) error { return r.Kube.Delete(ctx, s) }})
		}
	}
	for kind, o := range map[string]client.Object{
		"Lease":  &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.names.Namespace, Name: "muster"}},
		"Secret": &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.names.Namespace, Name: beforeMuster}},
	} {
		if err := r.Kube.Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
			out = append(out, item{"delete " + describe(o, kind), func(ctx context.Context) error { return r.Kube.Delete(ctx, o) }})
		}
	}
	return append(out, manifests...), nil
}

func (r *Removal) definitions(ctx context.Context) (out []item, err error) {
	crds, err := r.crds(ctx)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if deploy.ForSimulation(crd) {
			if machines, err := r.objectsOf(ctx, crd); len(machines) > 0 || err != nil {
				continue // told by remarks
			}
		}
		out = append(out, r.deletion(crd))
	}
	return out, nil
}

func (r *Removal) noDefinitions(ctx context.Context) (bool, string, error) {
	left, err := r.definitions(ctx)
	return err == nil && len(left) == 0, fmt.Sprintf("%d CustomResourceDefinitions are left", len(left)), err
}

// remarks report what is left, and for which reason.
func (r *Removal) remarks(ctx context.Context) error {
	list, err := r.queuedJobs(ctx)
	if err != nil {
		return err
	}
	var waiting []string
	for _, j := range list {
		if j.waits() {
			waiting = append(waiting, j.String())
		}
	}
	if len(waiting) > 0 {
		becomes := "they stay suspended; --waiting=release starts them, without quota"
		if r.Waiting == Release {
			becomes = "they start at once, without quota"
		}
		fmt.Fprintf(r.Out, "%d jobs wait in a queue: %s\n", len(waiting), becomes)
		for _, what := range waiting {
			fmt.Fprintln(r.Out, "   -", what)
		}
	}
	needed, err := r.runningOn(ctx)
	if err != nil {
		return err
	}
	for label, by := range needed {
		fmt.Fprintf(r.Out, "The label %s stays on nodes: pods of %s select it, and templates are not changed while they run. Once it has ended: "+
			"kubectl label nodes -l %s %s-\n", label, strings.Join(by, ", "), label, label)
	}
	crds, err := r.crds(ctx)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if !deploy.ForSimulation(crd) {
			continue
		}
		machines, err := r.objectsOf(ctx, crd)
		if err != nil {
			return err
		}
		if len(machines) > 0 {
			fmt.Fprintf(r.Out, "%d simulated machines stay, with the nodes and pods on them: kubectl delete machines.kwok.muster.dev --all; "+
				"kubectl delete crd machines.kwok.muster.dev\n", len(machines))
		}
	}
	return nil
}
