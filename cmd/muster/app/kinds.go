package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// kinds are the kinds that a half requires. The other half may use them, too, and works without.
var kinds = map[deploy.Half][]schema.GroupVersionKind{
	deploy.Provisioning: {
		provreq.SchemeGroupVersion.WithKind("ProvisioningRequest"),
		v1alpha1.GroupVersion.WithKind("NodeGroup"),
		v1alpha1.GroupVersion.WithKind("CapacityPolicy"),
	},
	deploy.Queueing: {
		kueue.SchemeGroupVersion.WithKind("ClusterQueue"),
		kueue.SchemeGroupVersion.WithKind("LocalQueue"),
		kueue.SchemeGroupVersion.WithKind("ResourceFlavor"),
		kueue.SchemeGroupVersion.WithKind("Workload"),
		kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"),
	},
}

// checkKinds returns an error if the cluster does not serve the kinds that the halves need.
// Without it, watches would retry for minutes without naming what is missing.
func checkKinds(mapper meta.RESTMapper, halves []deploy.Half) error {
	for _, half := range halves {
		for _, kind := range kinds[half] {
			switch _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); {
			case meta.IsNoMatchError(err):
				return fmt.Errorf("the cluster has no kind %s of %s, which --%s needs; install what `muster manifests` prints, or start muster with "+
					"--%s=false",
					kind.Kind, kind.GroupVersion(), half, half)
			case err != nil:
				return fmt.Errorf("looking for the kind %s of %s: %w", kind.Kind, kind.GroupVersion(), err)
			}
		}
	}
	return nil
}
