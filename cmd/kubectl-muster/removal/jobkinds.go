package removal

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// musterSettings is the key of Muster's settings in their ConfigMap.
const musterSettings = "muster.yaml"

// jobKinds are all kinds of jobs that Muster queues: those that it knows by itself, and those that
// its settings describe.
func (r *Removal) jobKinds(ctx context.Context) ([]jobs.Kind, error) {
	own := slices.Clone(r.Kinds)
	var list appsv1.DeploymentList
	if err := r.list(ctx, &list, client.InNamespace(r.names.Namespace), client.MatchingLabels{nameLabel: "muster"}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		for _, v := range list.Items[i].Spec.Template.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			more, err := r.kindsIn(ctx, v.ConfigMap.Name)
			if err != nil {
				return nil, err
			}
			own = append(own, more...)
		}
	}
	// A file may describe what the ConfigMap does.
	seen := map[any]bool{}
	own = slices.DeleteFunc(own, func(k *kinds.Kind) bool {
		known := seen[k.GroupVersionKind()]
		seen[k.GroupVersionKind()] = true
		return known
	})
	return kinds.All(own...), nil
}

// kindsIn are those that the settings in a ConfigMap describe.
func (r *Removal) kindsIn(ctx context.Context, name string) ([]*kinds.Kind, error) {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.names.Namespace, Name: name}}
	if err := client.IgnoreNotFound(r.Kube.Get(ctx, client.ObjectKeyFromObject(settings), settings)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", describe(settings, "ConfigMap"), err)
	}
	text, has := settings.Data[musterSettings]
	if !has {
		return nil, nil
	}
	c, _, err := configuration.Parse(musterSettings, []byte(text), r.names.Namespace)
	if err != nil {
		return nil, fmt.Errorf("%s has Muster's settings, which describe kinds of jobs: mend it first: %w", describe(settings, "ConfigMap"), err)
	}
	return c.Queueing.Kinds, nil
}
