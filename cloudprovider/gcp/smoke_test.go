package gcp_test

import (
	"context"
	"os"
	"testing"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestRealCloud reads a real project: the one that MUSTER_GCP_PROJECT names, with
// the credentials of the environment. It changes nothing.
func TestRealCloud(t *testing.T) {
	id := os.Getenv("MUSTER_GCP_PROJECT")
	if id == "" {
		t.Skip("MUSTER_GCP_PROJECT names no project")
	}
	ctx := context.Background()
	p, err := gcp.New(ctx, gcp.Config{
		Project: id, Cluster: "muster-smoke-test", ClusterUID: "muster-smoke-test", Clock: clock.RealClock{},
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	missing, err := p.MissingPermissions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("missing permissions: %q", missing)
	found, err := p.Discover(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range found.Groups {
		t.Logf("found %s: %+v, warnings %v", g.Name, g.Spec, g.Warnings)
	}
	for _, g := range found.Refused {
		t.Logf("refused %s: %s", g.Group, g.Reason)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := p.Watch(ctx, func(m cloudprovider.Machine) { t.Logf("machine %+v", m) }, cancel); err != nil {
		t.Fatal(err)
	}
}
