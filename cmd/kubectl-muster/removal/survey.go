package removal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/cmd/muster/migration"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// settingsKey is the key of Kueue's configuration in its ConfigMap.
const settingsKey = "controller_manager_config.yaml"

// survey reports what of Kueue there is, and what of it would be otherwise with Muster.
func (m *Migration) survey(ctx context.Context) error {
	for _, part := range []func(context.Context) error{m.tellKueue, m.tellWorkloads, m.tellQueues, m.tellSettings} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *Migration) tell(format string, args ...any) { fmt.Fprintf(m.Out, format+"\n", args...) }

func (m *Migration) tellKueue(ctx context.Context) error {
	deployments, err := m.deployments(ctx)
	if err != nil {
		return err
	}
	for i := range deployments {
		d := &deployments[i]
		m.tell("Kueue: %s, %d replicas of %s", describe(d, "Deployment"), replicas(d), d.Spec.Template.Spec.Containers[0].Image)
	}
	leader, err := migration.Leader(ctx, m.Kube, m.Clock.Now(), migration.Lease)
	if err != nil {
		return fmt.Errorf("reading Kueue's lease: %w", err)
	}
	if len(deployments) == 0 {
		m.tell("Kueue: no Deployment")
	}
	if leader != "" {
		m.tell("It leads by lease %s", leader)
	}
	found, webhooks, err := migration.Webhooks(ctx, m.Kube)
	if err != nil {
		return err
	}
	m.tell("Webhooks: %d in %d configurations", webhooks, len(found))
	crds, err := migration.CRDs(ctx, m.Kube)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		by := map[string]bool{}
		for _, f := range crd.GetManagedFields() {
			if f.Subresource == "" {
				by[f.Manager] = true
			}
		}
		if release := crd.GetAnnotations()[releaseAnnotation]; release != "" {
			by["the Helm release "+release] = true
		}
		converted := ""
		if migration.IsConverted(crd) {
			converted = ", converted by a webhook"
		}
		m.tell("CRD %s: stored as %s%s, of %s", crd.GetName(), strings.Join(stored, " and "), converted,
			strings.Join(slices.Sorted(maps.Keys(by)), ", "))
	}
	return nil
}

// servedKinds are the kinds of the owners of Workloads that Muster queues.
func (m *Migration) servedKinds(ctx context.Context) (map[schema.GroupKind]bool, error) {
	out := map[schema.GroupKind]bool{
		{Kind: "Pod"}: true, {Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "StatefulSet"}: true,
		{Group: "apps", Kind: "ReplicaSet"}: true, {Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: true,
	}
	all, err := m.jobKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range all {
		out[kind.GroupVersionKind().GroupKind()] = true
	}
	return out, nil
}

func (m *Migration) tellWorkloads(ctx context.Context) error {
	var list kueue.WorkloadList
	if err := m.list(ctx, &list); err != nil {
		return err
	}
	served, err := m.servedKinds(ctx)
	if err != nil {
		return err
	}
	running, waiting := 0, 0
	for i := range list.Items {
		w := &list.Items[i]
		switch {
		case workload.IsFinished(w):
			continue
		case workload.IsAdmitted(w):
			running++
		default:
			waiting++
		}
		if owner := metav1.GetControllerOf(w); owner != nil {
			if kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind); !served[kind.GroupKind()] {
				m.tell("NOT SERVED: %s is of %s %s. It stays as it is: if it runs, it goes on, and holds its quota; if it waits, it waits on. "+
					"Let it end first, or describe the kind to Muster (docs/add-a-job-kind.md)", describe(w, "Workload"), kind.GroupKind(), owner.Name)
			}
		}
	}
	m.tell("Workloads: %d admitted, %d waiting", running, waiting)
	return nil
}

func (m *Migration) tellQueues(ctx context.Context) error {
	var all kueue.AdmissionCheckList
	if err := m.list(ctx, &all); err != nil {
		return err
	}
	for i := range all.Items {
		if c := &all.Items[i]; c.Spec.ControllerName == kueue.MultiKueueControllerName {
			m.tell("AdmissionCheck %s is of %s: what needs it waits until muster dispatcher --make-copies runs (docs/multikueue.md)", c.Name,
				c.Spec.ControllerName)
		} else if c.Spec.ControllerName == cache.CapacityController {
			m.tell("AdmissionCheck %s is Muster's own: after --back, what needs it waits", c.Name)
		}
	}
	return nil
}

// tellSettings reads Kueue's settings as Muster would.
func (m *Migration) tellSettings(ctx context.Context) error {
	deployments, err := m.deployments(ctx)
	if err != nil {
		return err
	}
	for i := range deployments {
		for _, v := range deployments[i].Spec.Template.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: deployments[i].Namespace, Name: v.ConfigMap.Name}}
			if err := client.IgnoreNotFound(m.Kube.Get(ctx, client.ObjectKeyFromObject(settings), settings)); err != nil {
				return fmt.Errorf("reading %s: %w", describe(settings, "ConfigMap"), err)
			}
			text, has := settings.Data[settingsKey]
			if !has {
				continue
			}
			_, warnings, err := configuration.Parse(settingsKey, []byte(text), m.names.Namespace)
			m.tell("Settings: %s, which Muster takes as a file by its flag --config", describe(settings, "ConfigMap"))
			if err != nil {
				m.tell("   - to be changed first: %v", err)
			}
			for _, line := range warnings {
				m.tell("   - %s", line)
			}
		}
	}
	return nil
}
