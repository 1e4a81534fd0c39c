package gcp_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/discover"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const cordonable = "kube-labels"

// enabled is the metadata of a template whose group is Muster's.
func enabled(more ...string) map[string]string {
	out := map[string]string{"muster-dev-enabled": "", "muster-dev-cluster": cluster, "muster-dev-max-nodes": "16",
		cordonable: "muster.dev/cloud-group=x"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
		if more[i+1] == "-" {
			delete(out, more[i])
		}
	}
	return out
}

func discoveryOf(t *testing.T, sim gcpsim.Config) cloudprovider.Discovery {
	t.Helper()
	sim.Project, sim.MachineTypes = project, simulated().MachineTypes
	l := newLab(t, cloudsim.Config{}, sim)
	found, err := l.provider().Discover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestDiscoverOffering(t *testing.T) {
	found := discoveryOf(t, gcpsim.Config{
		PageSize: 1,
		Templates: []gcpsim.Template{
			{Name: "other", MachineType: h100},
			{Name: "gpu", MachineType: h100, DiskGB: 200, Metadata: enabled("muster-dev-min-nodes", "2", "kube-env",
				"NODE_LABELS: team=a,tier=gold\nNODE_TAINTS: nvidia.com/gpu=present:NoSchedule\nAUTOSCALER_ENV_VARS: "+
					"node_labels=tier=platinum;os=linux;extended_resources=example.com/fpga=2,bad=x\n")},
		},
		Groups: []gcpsim.Group{
			{Name: "not-ours", Zone: zoneA, Template: "other"}, {Name: "pool", Zone: zoneA, Template: "gpu"},
			{Name: "broken", Zone: zoneA, Template: "deleted"}, {Name: "none", Zone: zoneA},
		},
	})
	if len(found.Groups) != 1 || len(found.Refused) != 0 {
		t.Fatalf("got %+v, want one group", found)
	}
	price := resource.MustParse("87.83")
	want := v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderGCP, MinNodes: 2, MaxNodes: 16, CapacityType: v1alpha1.OnDemand, Zone: zoneA, PricePerHour: &price,
		Template: v1alpha1.NodeTemplate{
			Source: "projects/" + project + "/global/instanceTemplates/gpu",
			Labels: map[string]string{
				"team": "a", "tier": "platinum", "muster.dev/cloud-group": "x",
				corev1.LabelInstanceTypeStable: h100, corev1.LabelTopologyRegion: region,
			},
			Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}},
		},
		GCP: &v1alpha1.GCPGroup{Project: project, Location: zoneA, InstanceGroupManager: "pool", MachineType: h100,
			LaunchMethod: v1alpha1.GCPBulkInsert},
	}
	got := found.Groups[0].Spec
	capacity, allocatable := got.Template.Capacity, got.Template.Allocatable
	got.Template.Capacity, got.Template.Allocatable = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(found.Groups[0].Name, "pool-us-central1-a-") || len(found.Groups[0].Warnings) > 0 {
		t.Errorf("got name %s and warnings %v", found.Groups[0].Name, found.Groups[0].Warnings)
	}
	if gpus := capacity["nvidia.com/gpu"]; gpus.Value() != 8 || capacity.Cpu().Value() != 208 {
		t.Errorf("got capacity %v, want 208 CPUs and 8 GPUs", capacity)
	}
	if fpgas := capacity["example.com/fpga"]; fpgas.Value() != 2 || len(capacity) != 5 {
		t.Errorf("got capacity %v, want 2 FPGAs and 5 resources in all", capacity)
	}
	nominal := resource.MustParse("1872Gi")
	for name, most := range map[corev1.ResourceName]int64{"cpu": 208 * 1000, "memory": nominal.Value() * 1000,
		"ephemeral-storage": 200 << 30 * 1000} {
		q, c := allocatable[name], capacity[name]
		if q.MilliValue() >= most || c.MilliValue() > most || q.MilliValue() < most/100*45 {
			t.Errorf("%s: got %s of %s allocatable: want less than the machine type says, and not much less", name, q.String(), c.String())
		}
	}
}

func TestDiscoverOfferings(t *testing.T) {
	offering := func(found cloudprovider.Found) string {
		g := found.Spec.GCP
		return strings.Join([]string{g.InstanceGroupManager, g.Location, found.Spec.Zone, g.MachineType, string(found.Spec.CapacityType),
			string(g.LaunchMethod)}, " ")
	}
	for name, tc := range map[string]struct {
		template gcpsim.Template
		group    gcpsim.Group
		want     []string
	}{
		"a regional group is one offering for each zone": {
			group: gcpsim.Group{Region: region, Zones: []string{zoneB, zoneA}},
			want: []string{"g us-central1 us-central1-a a3-highgpu-8g OnDemand BulkInsert",
				"g us-central1 us-central1-b a3-highgpu-8g OnDemand BulkInsert"},
		},
		"a flexible group is one offering for each machine type": {
			group: gcpsim.Group{Region: region, Zones: []string{zoneA}, MachineTypes: []string{h100, "g2-standard-96"}},
			want: []string{"g us-central1 us-central1-a a3-highgpu-8g OnDemand BulkInsert",
				"g us-central1 us-central1-a g2-standard-96 OnDemand BulkInsert"},
		},
		"Spot": {
			template: gcpsim.Template{ProvisioningModel: "SPOT"},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g Spot BulkInsert"},
		},
		"flex-start waits in the cloud's queue": {
			template: gcpsim.Template{ProvisioningModel: "FLEX_START"},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g OnDemand ResizeRequest"},
		},
		"machines bound to a reservation wait as well": {
			template: gcpsim.Template{ProvisioningModel: "RESERVATION_BOUND"},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g Reserved ResizeRequest"},
		},
		"a specific reservation": {
			template: gcpsim.Template{Reservation: "ours"},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g Reserved BulkInsert"},
		},
		"a node pool of GKE owns its machines": {
			template: gcpsim.Template{Metadata: enabled(cordonable, "cloud.google.com/gke-nodepool=gpu", "cluster-name", cluster,
				"cluster-location", region)},
			want: []string{"g us-central1-a us-central1-a a3-highgpu-8g OnDemand CreateInstances"},
		},
		"the template names the launch method": {
			template: gcpsim.Template{Metadata: enabled("muster-dev-launch-method", "CreateInstances")},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g OnDemand CreateInstances"},
		},
		"labels of the template count like its metadata": {
			template: gcpsim.Template{Metadata: map[string]string{}, Labels: map[string]string{"muster-dev-enabled": "",
				"muster-dev-cluster": cluster, "muster-dev-max-nodes": "4"}},
			want: []string{"g us-central1-a us-central1-a a3-highgpu-8g OnDemand BulkInsert"},
		},
		"a regional template": {
			template: gcpsim.Template{Region: region},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g OnDemand BulkInsert"},
		},
		"an autoscaler that is off gives the limit": {
			template: gcpsim.Template{Metadata: enabled("muster-dev-max-nodes", "-")},
			group:    gcpsim.Group{Autoscaler: &gcpsim.Autoscaler{Mode: "OFF", Max: 8}},
			want:     []string{"g us-central1-a us-central1-a a3-highgpu-8g OnDemand BulkInsert"},
		},
		"a group of another cluster": {
			template: gcpsim.Template{Metadata: enabled("muster-dev-cluster", "staging")},
		},
		"a node pool of another cluster of GKE": {
			template: gcpsim.Template{Metadata: enabled("muster-dev-cluster", "-", cordonable, "cloud.google.com/gke-nodepool=gpu", "cluster-name",
				"staging", "cluster-location", region)},
		},
		"a node pool of a cluster of GKE that has this name elsewhere": {
			template: gcpsim.Template{Metadata: enabled("muster-dev-cluster", "-", cordonable, "cloud.google.com/gke-nodepool=gpu", "cluster-name",
				cluster, "cluster-location", "us-east4")},
		},
		"a group that does not say that it is Muster's": {
			template: gcpsim.Template{Metadata: map[string]string{"muster-dev-max-nodes": "4"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := discoveryOf(t, single(tc.template, tc.group))
			var got []string
			seen := map[string]bool{}
			for _, f := range found.Groups {
				got = append(got, offering(f))
				if seen[f.Name] {
					t.Errorf("the name %s comes twice", f.Name)
				}
				seen[f.Name] = true
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" || len(found.Refused) > 0 {
				t.Errorf("refused %v, offerings (-want +got):\n%s", found.Refused, diff)
			}
		})
	}
}

// single is a project of one group.
func single(t gcpsim.Template, g gcpsim.Group) gcpsim.Config {
	t.Name, g.Name, g.Template = "t", "g", "t"
	if t.MachineType == "" {
		t.MachineType = h100
	}
	if t.Metadata == nil {
		t.Metadata = enabled()
	}
	if g.Region == "" {
		g.Zone = zoneA
	}
	return gcpsim.Config{
		Templates: []gcpsim.Template{t}, Groups: []gcpsim.Group{g}, Reservations: []gcpsim.Reservation{{Name: "ours", Zone: zoneA, Count: 8}},
	}
}

func TestDiscoverRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		template gcpsim.Template
		group    gcpsim.Group
		want     string
	}{
		"a time in a queue that is none":      {template: gcpsim.Template{ProvisioningModel: "FLEX_START", Metadata: enabled("muster-dev-queue-timeout", "a while")}, want: `is "a while": it must be a duration`},
		"a time in a queue without a queue":   {template: gcpsim.Template{Metadata: enabled("muster-dev-queue-timeout", "24h")}, want: "BulkInsert does not queue"},
		"GKE's queued provisioning":           {template: gkePool("cloud.google.com/gke-queued=true"), want: "class queued-provisioning.gke.io"},
		"GKE's flex-start":                    {template: gkePool("cloud.google.com/gke-flex-start=true"), want: "class queued-provisioning.gke.io"},
		"GKE's flex-start by its model":       {template: flexible(gkePool("a=b")), want: "class queued-provisioning.gke.io"},
		"a bulk insert for a node pool":       {template: gkePool("a=b", "muster-dev-launch-method", "BulkInsert"), want: "must own its machines"},
		"a group of no cluster":               {template: gcpsim.Template{Metadata: enabled("muster-dev-cluster", "-")}, want: "put muster-dev-cluster=prod into its metadata"},
		"no limit":                            {template: gcpsim.Template{Metadata: enabled("muster-dev-max-nodes", "-")}, want: "put muster-dev-max-nodes with a number into the metadata"},
		"a limit that is no number":           {template: gcpsim.Template{Metadata: enabled("muster-dev-max-nodes", "many")}, want: `muster-dev-max-nodes is "many": it must be a number`},
		"less than nothing":                   {template: gcpsim.Template{Metadata: enabled("muster-dev-min-nodes", "17")}, want: "minimum of 17 machines exceeds its maximum of 16"},
		"a launch method that there is not":   {template: gcpsim.Template{Metadata: enabled("muster-dev-launch-method", "Prayer")}, want: `is "Prayer": it must be BulkInsert, ResizeRequest or CreateInstances`},
		"a price that is no amount":           {template: gcpsim.Template{Metadata: enabled("muster-dev-price-per-hour", "dear")}, want: "it must be an amount of USD, for example 64.44"},
		"resize requests over several zones":  {template: gcpsim.Template{ProvisioningModel: "FLEX_START"}, group: gcpsim.Group{Region: region, Zones: []string{zoneA, zoneB}}, want: "over 2 zones, so ResizeRequest"},
		"resize requests of several types":    {template: gcpsim.Template{ProvisioningModel: "FLEX_START"}, group: gcpsim.Group{MachineTypes: []string{h100, "g2-standard-96"}}, want: "from 2 machine types, so ResizeRequest"},
		"resize requests with an autoscaler":  {template: gcpsim.Template{ProvisioningModel: "FLEX_START"}, group: gcpsim.Group{Autoscaler: &gcpsim.Autoscaler{Mode: "ON", Max: 4}}, want: "delete the autoscaler"},
		"resize requests without their model": {template: gcpsim.Template{Metadata: enabled("muster-dev-launch-method", "ResizeRequest")}, want: "this one has STANDARD"},
		"flex-start by a bulk insert":         {template: gcpsim.Template{ProvisioningModel: "FLEX_START", Metadata: enabled("muster-dev-launch-method", "BulkInsert")}, want: "only available by resize requests"},
		"target size mode BULK":               {template: gcpsim.Template{ProvisioningModel: "FLEX_START"}, group: gcpsim.Group{TargetSizeMode: "BULK"}, want: "use mode INDIVIDUAL"},
		"a machine type that the zone lacks":  {group: gcpsim.Group{MachineTypes: []string{"m9"}}, want: "zone us-central1-a has no machine type m9"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := single(tc.template, tc.group)
			sim.Project, sim.MachineTypes = project, simulated().MachineTypes
			if len(tc.group.MachineTypes) == 1 {
				sim.MachineTypes = append(sim.MachineTypes, gcpsim.MachineType{Name: "m9", VCPUs: 1, MemoryMB: 1})
			}
			l := newLab(t, cloudsim.Config{Calls: []cloudsim.CallFault{}}, sim)
			if len(tc.group.MachineTypes) == 1 {
				l = newLab(t, cloudsim.Config{Calls: []cloudsim.CallFault{{
					Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused, Action: "machineTypes.get", Error: &cloudsim.Error{Code: "notFound"},
				}}}, sim)
			}
			found, err := l.provider().Discover(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Groups) > 0 || len(found.Refused) != 1 || !strings.Contains(found.Refused[0].Reason, tc.want) {
				t.Errorf("got %+v, want a refusal that says %q", found, tc.want)
			}
		})
	}
}

func TestDiscoverWarns(t *testing.T) {
	owned := func(more ...string) gcpsim.Template {
		return gcpsim.Template{Metadata: enabled(append([]string{"muster-dev-launch-method", "CreateInstances"}, more...)...)}
	}
	calm := "DO_NOTHING"
	for name, tc := range map[string]struct {
		template gcpsim.Template
		group    gcpsim.Group
		want     []string
	}{
		"nothing fights us":                  {group: gcpsim.Group{}},
		"nodes are born open":                {template: gcpsim.Template{Metadata: enabled(cordonable, "-")}, want: []string{"BornOpen"}},
		"the cloud's own autoscaler":         {group: gcpsim.Group{Autoscaler: &gcpsim.Autoscaler{Mode: "ON", Max: 4}}, want: []string{"OtherAutoscaler"}},
		"an autoscaler that is off":          {group: gcpsim.Group{Autoscaler: &gcpsim.Autoscaler{Mode: "OFF", Max: 4}}},
		"an autoscaler that only grows":      {group: gcpsim.Group{Autoscaler: &gcpsim.Autoscaler{Mode: "ONLY_SCALE_OUT", Max: 4}}, want: []string{"OtherAutoscaler"}},
		"the autoscaler of GKE":              {template: gcpsim.Template{Metadata: enabled(cordonable, "muster.dev/cloud-group=x,cloud.google.com/gke-nodepool=p", "kube-env", "ENABLE_CLUSTER_AUTOSCALER: \"true\"", "cluster-name", cluster, "cluster-location", region)}, group: gcpsim.Group{ActionOnFailure: calm}, want: []string{"OtherAutoscaler"}},
		"repairs of machines that are owned": {template: owned(), want: []string{"Repairs"}},
		"autohealing":                        {template: owned(), group: gcpsim.Group{ActionOnFailure: calm, HealthCheck: "h"}, want: []string{"Replaces"}},
		"updates of machines that are owned": {template: owned(), group: gcpsim.Group{ActionOnFailure: calm, UpdateType: "PROACTIVE"}, want: []string{"Replaces"}},
		"redistribution between zones":       {template: owned(), group: gcpsim.Group{ActionOnFailure: calm, Region: region, Zones: []string{zoneA}, Redistribution: "PROACTIVE"}, want: []string{"Replaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := discoveryOf(t, single(tc.template, tc.group))
			if len(found.Groups) != 1 {
				t.Fatalf("got %+v, want one group", found)
			}
			var got []string
			for _, w := range found.Groups[0].Warnings {
				got = append(got, w.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// gkePool is the template of a node pool of GKE, whose nodes have the labels.
func gkePool(labels string, more ...string) gcpsim.Template {
	return gcpsim.Template{Metadata: enabled(append([]string{"muster-dev-cluster", "-", cordonable,
		"muster.dev/cloud-group=x,cloud.google.com/gke-nodepool=p," + labels, "cluster-name", cluster, "cluster-location", region}, more...)...)}
}

func flexible(t gcpsim.Template) gcpsim.Template {
	t.ProvisioningModel = "FLEX_START"
	return t
}

// TestDevicesUnknown: GPUs that are partitioned in a way that is not known are warned of.
func TestDevicesUnknown(t *testing.T) {
	found := discoveryOf(t, single(gkePool("cloud.google.com/gke-gpu-partition-size=1g.99gb"), gcpsim.Group{ActionOnFailure: "DO_NOTHING"}))
	if len(found.Groups) != 1 {
		t.Fatalf("got %+v, want one group", found)
	}
	if !slices.ContainsFunc(found.Groups[0].Warnings, func(w cloudprovider.Warning) bool { return w.Reason == discover.DevicesUnknown }) {
		t.Errorf("got the warnings %v, want that the devices are unknown", found.Groups[0].Warnings)
	}
}

// TestQueueTimeout: how long a launch may wait in the cloud's queue is the template's to say.
func TestQueueTimeout(t *testing.T) {
	found := discoveryOf(t, single(gcpsim.Template{ProvisioningModel: "FLEX_START",
		Metadata: enabled("muster-dev-queue-timeout", "24h")}, gcpsim.Group{}))
	if len(found.Groups) != 1 || found.Groups[0].Spec.QueueTimeout == nil || found.Groups[0].Spec.QueueTimeout.Duration != 24*time.Hour {
		t.Errorf("got %+v, want a group with a queueTimeout of 24h", found)
	}
}

// TestDiscoverWithoutLocation: GKE has a cluster of one name in each location, so it is not
// known whose a node pool is.
func TestDiscoverWithoutLocation(t *testing.T) {
	sim := single(gcpsim.Template{Metadata: enabled("muster-dev-cluster", "-", cordonable, "cloud.google.com/gke-nodepool=gpu",
		"cluster-name", cluster, "cluster-location", region)}, gcpsim.Group{})
	sim.Project, sim.MachineTypes = project, simulated().MachineTypes
	l := newLab(t, cloudsim.Config{}, sim)
	p, err := gcp.New(context.Background(), gcp.Config{Project: project, Cluster: cluster, ClusterUID: "u", Clock: l.clock, Endpoint: l.url})
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.Discover(context.Background())
	if err != nil || len(found.Groups) > 0 || len(found.Refused) != 1 ||
		!strings.Contains(found.Refused[0].Reason, "set provisioning.clouds.gcp.location to us-central1") {
		t.Errorf("got %+v, %v: want a refusal that names the setting", found, err)
	}
}

// TestDiscoveredLaunches: what is discovered can be launched as it is.
func TestDiscoveredLaunches(t *testing.T) {
	sim := simulated()
	for i := range sim.Templates {
		sim.Templates[i].Metadata = enabled()
	}
	l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
	p := l.provider()
	found, err := p.Discover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Groups) < len(methods) {
		t.Fatalf("got %+v", found)
	}
	for _, f := range found.Groups {
		req := launchOf(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: f.Name}, Spec: f.Spec}, 2)
		l.groups = append(l.groups, req.Group)
		if machines, err := launch(t, l, p, req); err != nil || len(machines) != 2 {
			t.Errorf("%s: got %v, %v", f.Name, machines, err)
		}
	}
}

// TestDiscoverAgain: templates and machine types are read once, prices twice a day.
func TestDiscoverAgain(t *testing.T) {
	sim := single(gcpsim.Template{}, gcpsim.Group{})
	sim.Project, sim.MachineTypes = project, simulated().MachineTypes
	l := newLab(t, cloudsim.Config{}, sim)
	p := l.provider()
	for range 3 {
		if _, err := p.Discover(context.Background()); err != nil {
			t.Fatal(err)
		}
		l.clock.Step(5 * time.Hour)
	}
	want := map[string]int64{
		"instanceGroupManagers.aggregatedList": 3, "autoscalers.aggregatedList": 3, "instanceTemplates.get": 1, "machineTypes.get": 1, "services.skus.list": 1,
	}
	if diff := cmp.Diff(want, l.callsSince(nil)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	l.clock.Step(5 * time.Hour)
	if _, err := p.Discover(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := l.callsSince(nil)["services.skus.list"]; n != 2 {
		t.Errorf("the catalog was read %d times after 15 hours, want 2", n)
	}
}

func TestDiscoverFails(t *testing.T) {
	sim := single(gcpsim.Template{}, gcpsim.Group{})
	sim.Project, sim.MachineTypes, sim.Denied = project, simulated().MachineTypes, []string{"compute.instanceGroupManagers.list"}
	_, err := newLab(t, cloudsim.Config{}, sim).provider().Discover(context.Background())
	cause := cloudprovider.CauseOf(err)
	if cause == nil || cause.Class != v1alpha1.Auth || !strings.Contains(err.Error(), "compute.instanceGroupManagers.list") {
		t.Errorf("got %v, want an error that names the permission", err)
	}
}

func TestNew(t *testing.T) {
	for name, tc := range map[string]struct {
		config gcp.Config
		want   string
	}{
		"no project":              {gcp.Config{Cluster: "c"}, "project of provider gcp is missing"},
		"a cluster of capitals":   {gcp.Config{Project: "p", Cluster: "Prod"}, `cluster of provider gcp is "Prod"`},
		"no cluster":              {gcp.Config{Project: "p"}, `cluster of provider gcp is ""`},
		"no cluster UID":          {gcp.Config{Project: "p", Cluster: "c"}, `cluster UID of provider gcp is ""`},
		"calls that are negative": {gcp.Config{Project: "p", Cluster: "c", ClusterUID: "u", CallsPerSecond: -1}, "are -1"},
	} {
		if _, err := gcp.New(context.Background(), tc.config); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// TestDiscoverLevels: the instance template says which labels name the domains of machines.
func TestDiscoverLevels(t *testing.T) {
	found := discoveryOf(t, single(gcpsim.Template{Metadata: enabled("muster-dev-topology", "example.com/rack=4")}, gcpsim.Group{}))
	if len(found.Groups) != 1 || len(found.Groups[0].Spec.Topology) != 1 {
		t.Errorf("got %+v, want a group with a level", found)
	}
}
