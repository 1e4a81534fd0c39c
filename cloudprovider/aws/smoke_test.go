package aws

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// realCloud says that the tests may ask AWS itself, too.
func realCloud() bool { return os.Getenv("MUSTER_TEST_AWS_REGION") != "" }

// AWS itself, without effect: dry runs, calls about what does not exist, and lists. Set
// MUSTER_TEST_AWS_REGION, and credentials as for any tool of AWS;
// MUSTER_TEST_AWS_CLUSTER names a cluster to look at.
func TestRealCloud(t *testing.T) {
	if !realCloud() {
		t.Skip("MUSTER_TEST_AWS_REGION is not set")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	p, err := New(ctx, Config{
		Region: os.Getenv("MUSTER_TEST_AWS_REGION"), ClusterUID: "nowhere", Cluster: cmp.Or(os.Getenv("MUSTER_TEST_AWS_CLUSTER"), "nowhere"),
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return nil, nil }, Clock: clock.RealClock{},
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
	for _, f := range found.Groups {
		t.Logf("found %s: %s %s at %s USD/h, %d warnings", f.Name, f.Spec.AWS.InstanceType, f.Spec.Zone, f.Spec.PricePerHour, len(f.Warnings))
	}
	for _, r := range found.Refused {
		t.Logf("refused %s: %s", r.Group, r.Reason)
	}
	list, err := p.list(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d machines and holds", len(list.Machines))
}
