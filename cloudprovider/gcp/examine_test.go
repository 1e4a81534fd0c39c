package gcp_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/permissions"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestMissingPermissions(t *testing.T) {
	tests := map[string][]string{
		"none":     nil,
		"a few":    {"compute.disks.create", "compute.instances.create", "iam.serviceAccounts.actAs"},
		"a viewer": {"compute.instanceGroupManagers.update", "compute.instances.create", "compute.instances.delete"},
	}
	for _, permission := range permissions.All() {
		tests[permission] = []string{permission}
	}
	for name, denied := range tests {
		t.Run(name, func(t *testing.T) {
			sim := simulated()
			sim.Denied = denied
			l := newLab(t, cloudsim.Config{}, sim)
			missing, err := l.provider().MissingPermissions(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(denied, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int64{"projects.testIamPermissions": 1}, l.callsSince(nil)); diff != "" {
				t.Errorf("it is to try nothing (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLaunchWithoutAPermission: the lack of each permission that a launch needs is reported by its name, as a lack of rights, and
// nothing is left.
func TestLaunchWithoutAPermission(t *testing.T) {
	for method, action := range map[string]string{
		"bulk": "instances.bulkInsert", "flex": "instanceGroupManagerResizeRequests.insert", "owned": "instanceGroupManagers.createInstances",
		"flex-regional": "regionInstanceGroupManagerResizeRequests.insert", "owned-regional": "regionInstanceGroupManagers.createInstances",
	} {
		for _, permission := range permissions.ByMethod[action] {
			t.Run(method+" "+permission, func(t *testing.T) {
				t.Parallel()
				sim := simulated()
				sim.Denied, sim.Templates[0].PlacementPolicy = []string{permission}, "compact"
				l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
				_, err := launch(t, l, l.provider(), launchOf(l.nodeGroup(method), 2))
				told := permission
				if permission == "iam.serviceAccounts.actAs" {
					told = "iam.serviceAccountUser" // the role that has it
				}
				if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Auth || !strings.Contains(refusal.Message, told) {
					t.Errorf("got %v, want a refusal of class Auth that names %s", err, told)
				}
				if len(l.open()) > 0 {
					t.Errorf("%d machines are left", len(l.open()))
				}
			})
		}
	}
}

// TestPlacementPolicy: what a template uses needs a permission, which is found to be missing
// before the first launch is refused.
func TestPlacementPolicy(t *testing.T) {
	const permission = "compute.resourcePolicies.use"
	sim := simulated()
	sim.Denied, sim.Templates[0].PlacementPolicy = []string{permission}, "compact"
	l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
	_, err := l.provider().Launch(context.Background(), launchOf(l.nodeGroup("bulk"), 2))
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Auth ||
		!strings.Contains(refusal.Message, permission) {
		t.Errorf("got %v, want a refusal that names %s", err, permission)
	}
	if missing, err := l.provider().MissingPermissions(context.Background()); err != nil || !slices.Equal(missing, sim.Denied) {
		t.Errorf("got %q, %v: want %q", missing, err, sim.Denied)
	}
}

// TestAdvice: the cloud knows of Spot, and one group of which it says nothing does
// not keep it from others.
func TestAdvice(t *testing.T) {
	sim := simulated()
	sim.Obtainability = []gcpsim.Obtainability{{Zone: zoneA, MachineType: h100, Milli: 730}}
	l := newLab(t, cloudsim.Config{}, sim)
	groups := []*v1alpha1.NodeGroup{l.nodeGroup("spot"), l.nodeGroup("bulk"), l.nodeGroup("spot"), l.nodeGroup("spot")}
	groups[2].Name, groups[2].Spec.Zone = "elsewhere", zoneB
	groups[3].Name, groups[3].Spec.GCP = "of-another-project", groups[3].Spec.GCP.DeepCopy()
	groups[3].Spec.GCP.Project = "another"
	got, err := l.provider().Advise(context.Background(), groups, 16)
	if err == nil || !strings.Contains(err.Error(), "of-another-project") {
		t.Errorf("got %v, want an error about the group of another project", err)
	}
	want := map[string]cloudprovider.Advice{"spot.h100": {Chance: 730, Source: "advice.capacity"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("advice (-want +got):\n%s", diff)
	}
}
