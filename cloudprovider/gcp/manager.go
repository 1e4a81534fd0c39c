package gcp

import (
	"strings"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func managerOf(g *v1alpha1.NodeGroup) api.Manager {
	return api.Manager{Project: g.Spec.GCP.Project, Location: g.Spec.GCP.Location, Name: g.Spec.GCP.InstanceGroupManager}
}

// zoneOf the link of an instance.
func zoneOf(link string) string {
	_, rest, ok := strings.Cut(link, "zones/")
	if !ok {
		return ""
	}
	zone, _, _ := strings.Cut(rest, "/")
	return zone
}
