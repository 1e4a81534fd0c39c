// Package clouds makes the adapters of the clouds. It depends on the clouds' SDKs, so only
// the programs import it, and no test but its own.
package clouds

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Connect makes an adapter for each configured cloud. It makes no call.
func Connect(ctx context.Context, c configuration.Clouds, cluster cloudprovider.Cluster) (
	map[v1alpha1.Provider]cloudprovider.Provider, error) {
	out := map[v1alpha1.Provider]cloudprovider.Provider{}
	if c.AWS != nil {
		p, err := aws.New(ctx, aws.Config{
			Region: c.AWS.Region, Cluster: c.AWS.Cluster, ClusterUID: cluster.UID, Endpoint: c.AWS.Endpoint,
			Groups: cluster.Groups, MayAct: cluster.MayAct, InUse: cluster.InUse, Clock: clock.RealClock{},
		})
		if err != nil {
			return nil, fmt.Errorf("aws: %w", err)
		}
		out[v1alpha1.ProviderAWS] = p
	}
	if c.GCP != nil {
		p, err := gcp.New(ctx, gcp.Config{
			Project: c.GCP.Project, Cluster: c.GCP.Cluster, Location: c.GCP.Location, ClusterUID: cluster.UID, Endpoint: c.GCP.Endpoint,
			Groups: cluster.Groups, MayAct: cluster.MayAct, InUse: cluster.InUse, Clock: clock.RealClock{},
		})
		if err != nil {
			return nil, fmt.Errorf("gcp: %w", err)
		}
		out[v1alpha1.ProviderGCP] = p
	}
	return out, nil
}
