package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/discover"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func discovery(t *testing.T, s *sim) cloudprovider.Discovery {
	t.Helper()
	d, err := s.provider().Discover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// offers are a group's offerings in short.
func offers(d cloudprovider.Discovery) (out []string) {
	for _, f := range d.Groups {
		a := f.Spec.AWS
		out = append(out, fmt.Sprintf("%s %s %s %s %s min=%d max=%d usd=%s", a.AutoScalingGroup, a.InstanceType, f.Spec.Zone, f.Spec.CapacityType,
			a.LaunchMethod,
			f.Spec.MinNodes, f.Spec.MaxNodes, f.Spec.PricePerHour))
	}
	slices.Sort(out)
	return out
}

func TestDiscover(t *testing.T) {
	zones := func(w *cloudsim.Config) {
		for _, capacityType := range []v1alpha1.CapacityType{v1alpha1.OnDemand, v1alpha1.Spot} {
			w.Pools = append(w.Pools,
				cloudsim.Pool{PoolKey: cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: kind, Zone: "us-east-1b", CapacityType: capacityType},
					Prices: []cloudsim.Price{{PerHour: resource.MustParse("17.5")}}},
				cloudsim.Pool{PoolKey: cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: "p6-b300.48xlarge", Zone: zone, CapacityType: capacityType}},
				cloudsim.Pool{PoolKey: cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: "g6.xlarge", Zone: zone, CapacityType: capacityType},
					Prices: []cloudsim.Price{{PerHour: resource.MustParse("0.3")}}})
		}
	}
	for name, c := range map[string]struct {
		account func(*simaws.Config)
		want    []string
		refused string
	}{
		"one type in one zone is one offering, with the group's bounds": {
			account: func(c *simaws.Config) { c.Groups[0].Min = 2 },
			want:    []string{"gpu p5.48xlarge us-east-1a OnDemand Fleet min=2 max=256 usd=55040m"},
		},
		"a mixed policy is an offering for each type, zone and capacity type that is sold": {
			account: func(c *simaws.Config) {
				c.Types = append(c.Types, simaws.Type{Name: "g6.xlarge", VCPUs: 4, MemoryMiB: 16384, GPUs: 1, GPUMaker: "NVIDIA"})
				c.Groups[0].Min, c.Groups[0].Subnets = 2, []string{subnet, "subnet-b"}
				c.Groups[0].Mixed = &simaws.Mixed{Types: []string{kind, "g6.xlarge"}, OnDemandPercent: 50}
			},
			want: []string{
				"gpu g6.xlarge us-east-1a OnDemand Fleet min=0 max=256 usd=805m",
				"gpu g6.xlarge us-east-1a Spot Fleet min=0 max=256 usd=300m",
				"gpu p5.48xlarge us-east-1a OnDemand Fleet min=1 max=256 usd=55040m", // the minimum is shared
				"gpu p5.48xlarge us-east-1a Spot Fleet min=1 max=256 usd=18730m",     // no price of Spot there: the floor
				"gpu p5.48xlarge us-east-1b OnDemand Fleet min=0 max=256 usd=55040m",
				"gpu p5.48xlarge us-east-1b Spot Fleet min=0 max=256 usd=17500m",
			},
		},
		"prices of the group's own, for all of its types and for one": {
			account: func(c *simaws.Config) {
				c.Types = append(c.Types, simaws.Type{Name: "p6-b300.48xlarge", VCPUs: 192, MemoryMiB: 4 << 20, GPUs: 8, GPUMaker: "NVIDIA"},
					simaws.Type{Name: "g6.xlarge", VCPUs: 4, MemoryMiB: 16384, GPUs: 1, GPUMaker: "NVIDIA", OnDemandUSD: "0.805"})
				c.Groups[0].Mixed = &simaws.Mixed{Types: []string{"p6-b300.48xlarge", "g6.xlarge"}, OnDemandPercent: 100}
				c.Groups[0].Tags["muster.dev/price-per-hour"], c.Groups[0].Tags["muster.dev/price-per-hour/g6.xlarge"] = "142.40", "0.60"
			},
			want: []string{
				"gpu g6.xlarge us-east-1a OnDemand Fleet min=0 max=256 usd=600m",
				"gpu p6-b300.48xlarge us-east-1a OnDemand Fleet min=0 max=256 usd=142400m",
			},
		},
		"a price that is none": {
			account: func(c *simaws.Config) { c.Groups[0].Tags["muster.dev/price-per-hour"] = "55 USD" },
			refused: `its tag muster.dev/price-per-hour is "55 USD": it must be an amount of USD, for example 55.04`,
		},
		"a policy of Spot alone": {
			account: func(c *simaws.Config) { c.Groups[0].Mixed = &simaws.Mixed{} },
			want:    []string{"gpu p5.48xlarge us-east-1a Spot Fleet min=0 max=256 usd=18730m"},
		},
		"an EKS managed node group owns its machines": {
			account: func(c *simaws.Config) { c.Groups[0].Tags[asg.ManagedTag] = "workers" },
			want:    []string{"gpu p5.48xlarge us-east-1a OnDemand LaunchInstances min=0 max=256 usd=55040m"},
		},
		"an EKS managed node group of Spot": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[asg.ManagedTag], c.Groups[0].Mixed = "workers", &simaws.Mixed{}
			},
			want: []string{"gpu p5.48xlarge us-east-1a Spot LaunchInstances min=0 max=256 usd=18730m"},
		},
		"an EKS managed node group of two types would choose between them": {
			account: func(c *simaws.Config) {
				c.Types = append(c.Types, simaws.Type{Name: "g6.xlarge", VCPUs: 4, MemoryMiB: 16384, GPUs: 1, GPUMaker: "NVIDIA"})
				c.Groups[0].Tags[asg.ManagedTag], c.Groups[0].Mixed = "workers", &simaws.Mixed{Types: []string{kind, "g6.xlarge"}}
			},
			refused: "with LaunchInstances the group chooses the instance type and the capacity type: allow one of each, or make a group for each",
		},
		"an EKS managed node group of two zones would terminate a gang": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[asg.ManagedTag], c.Groups[0].Subnets, c.Groups[0].Suspended = "workers", []string{subnet, "subnet-b"}, nil
			},
			refused: "it spans 2 zones and terminates machines of a gang, which is in one zone, to balance them: make a managed node group " +
				"for each zone, since EKS does not let AZRebalance be suspended",
		},
		"a group of two zones that launches by itself, too": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[methodTag], c.Groups[0].Subnets, c.Groups[0].Suspended = "LaunchInstances", []string{subnet, "subnet-b"}, nil
			},
			refused: "it spans 2 zones and terminates machines of a gang, which is in one zone, to balance them: make a group for each zone, " +
				"or suspend its process AZRebalance",
		},
		"a group of two zones that does not balance them": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[methodTag], c.Groups[0].Subnets = "LaunchInstances", []string{subnet, "subnet-b"}
			},
			want: []string{
				"gpu p5.48xlarge us-east-1a OnDemand LaunchInstances min=0 max=256 usd=55040m",
				"gpu p5.48xlarge us-east-1b OnDemand LaunchInstances min=0 max=256 usd=55040m",
			},
		},
		"the minimum of a group is kept where its machines are": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[methodTag], c.Groups[0].Subnets, c.Groups[0].Min = "LaunchInstances", []string{"subnet-b", subnet}, 3
			},
			want: []string{
				"gpu p5.48xlarge us-east-1a OnDemand LaunchInstances min=1 max=256 usd=55040m",
				"gpu p5.48xlarge us-east-1b OnDemand LaunchInstances min=2 max=256 usd=55040m",
			},
		},
		"an EKS managed node group has no machines beside it": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[asg.ManagedTag], c.Groups[0].Tags[methodTag] = "workers", "Fleet"
			},
			refused: "it belongs to an EKS managed node group, which must own its machines: remove the tag muster.dev/launch-method",
		},
		"the tag chooses the method": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[methodTag] = "Reservation"
				c.Groups[0].Mixed = &simaws.Mixed{OnDemandPercent: 50}
			},
			want: []string{"gpu p5.48xlarge us-east-1a OnDemand Reservation min=0 max=256 usd=55040m"},
		},
		"a template that targets a reservation": {
			account: func(c *simaws.Config) { c.Templates[0].Reservation = "cr-bought" },
			want:    []string{"gpu p5.48xlarge us-east-1a Reserved Fleet min=0 max=4 usd=0"},
		},
		"a method that there is not": {
			account: func(c *simaws.Config) { c.Groups[0].Tags[methodTag] = "fleet" },
			refused: `its tag muster.dev/launch-method is "fleet": it must be Fleet, Reservation or LaunchInstances`,
		},
		"no launch template": {
			account: func(c *simaws.Config) { c.Groups[0].Template = "" },
			refused: "it has no launch template: move it from its launch configuration to a launch template",
		},
		"a version that is gone": {
			account: func(c *simaws.Config) { c.Groups[0].Version = "7" },
			refused: "its launch template gpu, version 7, cannot be found: name one that exists",
		},
		"no cluster": {
			account: func(c *simaws.Config) { delete(c.Groups[0].Tags, inventory.ClusterTag+cluster) },
			refused: "it has no tag of a cluster: tag it kubernetes.io/cluster/prod=owned",
		},
		"another cluster's is not looked at": {
			account: func(c *simaws.Config) {
				delete(c.Groups[0].Tags, inventory.ClusterTag+cluster)
				c.Groups[0].Tags[inventory.ClusterTag+"test"] = inventory.Owned
			},
		},
		"without the tag it is not Muster's": {
			account: func(c *simaws.Config) { delete(c.Groups[0].Tags, cloudprovider.Enabled) },
		},
		"types by attributes": {
			account: func(c *simaws.Config) { c.Groups[0].Mixed = &simaws.Mixed{Attributes: true} },
			refused: "it chooses instance types by their attributes: name the types, since a gang is planned for known machines",
		},
		"a template that buys Spot, in a fleet": {
			account: func(c *simaws.Config) { c.Templates[0].MarketType = "spot" },
			refused: "its launch template requests Spot, which a fleet does not accept: remove its market options and use a mixed instances policy",
		},
		"a template that buys Spot, launched by the group": {
			account: func(c *simaws.Config) {
				c.Templates[0].MarketType, c.Groups[0].Tags[methodTag] = "spot", "LaunchInstances"
			},
			want: []string{"gpu p5.48xlarge us-east-1a Spot LaunchInstances min=0 max=256 usd=18730m"},
		},
		"machines that cannot be ended": {
			account: func(c *simaws.Config) { c.Templates[0].Protected = true },
			refused: "its launch template protects machines from termination, and Muster has to end what it launches: turn off " +
				"DisableApiTermination",
		},
		"machines that their group ends all the same": {
			account: func(c *simaws.Config) {
				c.Templates[0].Protected, c.Groups[0].Tags[methodTag] = true, "LaunchInstances"
			},
			want: []string{"gpu p5.48xlarge us-east-1a OnDemand LaunchInstances min=0 max=256 usd=55040m"},
		},
		"a capacity block": {
			account: func(c *simaws.Config) { c.Templates[0].MarketType = "capacity-block" },
			refused: "its launch template has the market type capacity-block and targets no reservation: name the Capacity Block by its ID",
		},
		"a group that would choose by itself": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[methodTag], c.Groups[0].Mixed = "LaunchInstances", &simaws.Mixed{OnDemandPercent: 50}
			},
			refused: "with LaunchInstances the group chooses the instance type and the capacity type: allow one of each, or make a group for each",
		},
		"Spot cannot be reserved": {
			account: func(c *simaws.Config) {
				c.Groups[0].Tags[methodTag], c.Groups[0].Mixed = "Reservation", &simaws.Mixed{}
			},
			refused: "only on-demand machines can be reserved first, but it uses only Spot: use the launch method Fleet",
		},
		"a reservation that is not there": {
			account: func(c *simaws.Config) { c.Templates[0].Reservation = "cr-gone" },
			refused: "its reservation cr-gone is not active",
		},
		"a type that no zone of the group sells": {
			account: func(c *simaws.Config) {
				c.Types = append(c.Types, simaws.Type{Name: "p4d.24xlarge", VCPUs: 96, MemoryMiB: 1152 << 10})
				c.Templates[0].Type = "p4d.24xlarge"
			},
			refused: "none of its zones sells p4d.24xlarge",
		},
		"a taint that says nothing": {
			account: func(c *simaws.Config) { c.Groups[0].Tags[taintTag+"gpu"] = "true" },
			refused: `its tag k8s.io/cluster-autoscaler/node-template/taint/gpu is "true": write value:effect, for example true:NoSchedule`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, plenty(zones, func(w *cloudsim.Config) { w.Pools = append(w.Pools, cloudsim.Pool{PoolKey: reservedPool}) }),
				account(c.account))
			if _, refused := s.world.Reserve("cr-bought", cloudsim.Order{Pool: reservedPool, Count: 4}, time.Time{}); refused != nil {
				t.Fatal(refused)
			}
			d := discovery(t, s)
			if diff := cmp.Diff(c.want, offers(d)); diff != "" {
				t.Errorf("offerings (-want +got):\n%s", diff)
			}
			var refused []cloudprovider.Refused
			if c.refused != "" {
				refused = []cloudprovider.Refused{{Group: group, Reason: c.refused}}
			}
			if diff := cmp.Diff(refused, d.Refused); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			// What is found can be launched.
			for i, f := range d.Groups {
				ng := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: f.Name}, Spec: f.Spec}
				if got, err := s.provider().Launch(context.Background(), request(ng, 1, fmt.Sprint(token, i))); err != nil || len(got) != 1 {
					t.Errorf("launch of %s: %v", f.Name, err)
				}
			}
		})
	}
}

func TestTheShapeOfANode(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) {
		c.Types[0].Interfaces, c.Types[0].AddressesPerInterface = 2, 10
		c.Templates[0].VolumeGiB = 100
		efa(c)
		for k, v := range map[string]string{
			labelTag + "team": "red", labelTag + cloudGroupLabel: "gpu",
			taintTag + "nvidia.com/gpu":                                         "present:NoSchedule",
			taintTag + "startup-taint.cluster-autoscaler.kubernetes.io/network": "true:NoExecute",
			resourceTag + "hugepages-2Mi":                                       "5Gi",
		} {
			c.Groups[0].Tags[k] = v
		}
	}))
	d := discovery(t, s)
	if len(d.Groups) != 1 {
		t.Fatalf("got %+v", d)
	}
	got := d.Groups[0].Spec.Template
	want := v1alpha1.NodeTemplate{
		Source: "lt-1/1",
		Labels: map[string]string{
			"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": kind,
			"topology.kubernetes.io/region": region, "team": "red", cloudGroupLabel: "gpu",
		},
		Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}},
		StartupTaints: []corev1.Taint{{Key: "startup-taint.cluster-autoscaler.kubernetes.io/network", Value: "true",
			Effect: corev1.TaintEffectNoExecute}},
		Capacity: corev1.ResourceList{
			"cpu": resource.MustParse("192"), "memory": resource.MustParse("1939866Mi"), "pods": resource.MustParse("20"),
			"nvidia.com/gpu": resource.MustParse("8"), "vpc.amazonaws.com/efa": resource.MustParse("2"), "hugepages-2Mi": resource.MustParse("5Gi"),
			"ephemeral-storage": resource.MustParse("100Gi"),
		},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("191450m"), "memory": resource.MustParse("1939291Mi"),
			"ephemeral-storage": resource.MustParse("80Gi")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if len(d.Groups[0].Warnings) > 0 {
		t.Errorf("warnings: %v", d.Groups[0].Warnings)
	}
}

func TestDevices(t *testing.T) {
	for name, c := range map[string]struct {
		kind simaws.Type
		want map[corev1.ResourceName]string
	}{
		"NVIDIA": {simaws.Type{GPUs: 4, GPUMaker: "NVIDIA"}, map[corev1.ResourceName]string{"nvidia.com/gpu": "4"}},
		"AMD":    {simaws.Type{GPUs: 4, GPUMaker: "AMD"}, map[corev1.ResourceName]string{"amd.com/gpu": "4"}},
		"Neuron": {simaws.Type{Neurons: 16}, map[corev1.ResourceName]string{"aws.amazon.com/neuron": "16"}},
		"none":   {simaws.Type{Arch: "arm64"}, map[corev1.ResourceName]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, plenty(), account(func(a *simaws.Config) {
				c.kind.Name, c.kind.VCPUs, c.kind.MemoryMiB = kind, 8, 65536
				a.Types = []simaws.Type{c.kind}
			}))
			got := map[corev1.ResourceName]string{}
			capacity := discovery(t, s).Groups[0].Spec.Template.Capacity
			for name, q := range capacity {
				if strings.Contains(string(name), "/") {
					got[name] = q.String()
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		account func(*simaws.Config)
		want    string
	}{
		"cluster-autoscaler": {func(c *simaws.Config) { c.Groups[0].Tags["k8s.io/cluster-autoscaler/enabled"] = "true" },
			"OtherAutoscaler: its tag k8s.io/cluster-autoscaler/enabled"},
		"a scaling policy": {func(c *simaws.Config) { c.Policies = []simaws.GroupItem{{Group: group, Name: "cpu"}} },
			"OtherAutoscaler: its scaling policies cpu resize it: delete them"},
		"a policy that is off, and one of another group": {func(c *simaws.Config) {
			c.Policies = []simaws.GroupItem{{Group: group, Name: "cpu", Disabled: true}, {Group: "web", Name: "cpu"}}
		}, ""},
		"a scheduled action": {func(c *simaws.Config) { c.Schedules = []simaws.GroupItem{{Group: group, Name: "night"}} },
			"OtherAutoscaler: its scheduled actions night resize it: delete them"},
		"zones are balanced": {func(c *simaws.Config) {
			c.Groups[0].Suspended, c.Groups[0].Subnets = nil, []string{subnet, "subnet-b"}
		}, "ZoneRebalancing: it spans 2 zones"},
		"zones would be balanced, and the process is suspended": {func(c *simaws.Config) { c.Groups[0].Subnets = []string{subnet, "subnet-b"} },
			""},
		"Spot is rebalanced": {func(c *simaws.Config) { c.Groups[0].CapacityRebalance = true }, "CapacityRebalancing: "},
		"Spot is rebalanced by EKS": {func(c *simaws.Config) {
			c.Groups[0].CapacityRebalance, c.Groups[0].Tags[asg.ManagedTag] = true, "gpus"
		}, "CapacityRebalancing: it replaces Spot machines that may be reclaimed, before they are: use a group that EKS does not manage"},
		"EKS repairs nodes": {func(c *simaws.Config) {
			c.Groups[0].NodeRepair, c.Groups[0].Tags[asg.ManagedTag], c.Groups[0].Tags["eks:cluster-name"] = true, "gpus", "prod"
		}, "NodeRepair: EKS replaces nodes that it finds unhealthy"},
		"a refresh is under way": {func(c *simaws.Config) { c.Refreshes = []simaws.Refresh{{Group: group, Status: "InProgress"}} },
			"InstanceRefresh: "},
		"a refresh is over": {func(c *simaws.Config) { c.Refreshes = []simaws.Refresh{{Group: group, Status: "Successful"}} }, ""},
		"machines have a lifetime": {func(c *simaws.Config) { c.Groups[0].MaxInstanceLifetime = 86400 },
			"InstanceLifetime: it replaces machines after 24 hours"},
		"volumes stay": {func(c *simaws.Config) { c.Templates[0].KeepsVolumes = true },
			"VolumesStay: its launch template keeps the volume /dev/xvda of machines that have ended, and it is billed: set DeleteOnTermination"},
		"a warm pool": {func(c *simaws.Config) { c.Groups[0].WarmPool = true }, "WarmPool: "},
		"dead machines are replaced": {func(c *simaws.Config) { c.Groups[0].Suspended, c.Groups[0].Tags[methodTag] = nil, "LaunchInstances" },
			"ReplacesMachines: "},
		"nodes are born open": {func(c *simaws.Config) { delete(c.Groups[0].Tags, labelTag+cloudGroupLabel) },
			"BornOpen: its nodes are not known to register with the label muster.dev/cloud-group"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, plenty(), account(func(a *simaws.Config) { a.Groups[0].Tags[labelTag+cloudGroupLabel] = "gpu" }, c.account))
			d := discovery(t, s)
			var got []string
			for _, w := range d.Groups[0].Warnings {
				got = append(got, w.Reason+": "+w.Message)
			}
			if all := strings.Join(got, "\n"); c.want == "" && all != "" || !strings.HasPrefix(all, c.want) || len(got) > 1 {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

func TestDiscoveryReadsAllPages(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) {
		c.PageSize = 2
		for i := range 5 {
			g := c.Groups[0]
			g.Name = fmt.Sprintf("gpu-%d", i)
			c.Groups = append(c.Groups, g)
			c.Policies = append(c.Policies, simaws.GroupItem{Group: g.Name, Name: "cpu"})
		}
	}))
	d := discovery(t, s)
	warned := 0
	seen := map[string]bool{}
	for _, f := range d.Groups {
		seen[f.Name] = true
		for _, w := range f.Warnings {
			if w.Reason == cloudprovider.OtherAutoscaler {
				warned++
			}
		}
	}
	if len(seen) != 6 || warned != 5 {
		t.Errorf("got %d groups, %d warned of: want 6 and 5", len(seen), warned)
	}
}

func TestAListThatFailsIsNoEmptyList(t *testing.T) {
	for _, action := range []string{"DescribeAutoScalingGroups", "DescribeInstanceTypes", "DescribeSubnets", "DescribePolicies",
		"DescribeLaunchTemplateVersions"} {
		s := newSim(t, plenty(fault(action, cloudsim.CallLost)), account())
		if d, err := s.provider().Discover(context.Background()); err == nil || len(d.Groups) > 0 {
			t.Errorf("%s: got %v and %v, want an error", action, d, err)
		}
	}
}

// The taints and labels of a managed node group are EKS's to know; what the tags of its Auto
// Scaling group declare comes on top.
func TestAManagedNodeGroupIsRead(t *testing.T) {
	managed := func(c *simaws.Config) {
		c.Groups[0].Tags[asg.ManagedTag], c.Groups[0].Tags["eks:cluster-name"] = "gpus", "prod"
		c.Groups[0].Tags[taintTag+"team"] = "red:NoSchedule"
		c.Templates[0].Labels = map[string]string{"pool": "training"}
		c.Templates[0].Taints = []corev1.Taint{
			{Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule},
			{Key: "team", Value: "blue", Effect: corev1.TaintEffectNoSchedule},
			{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
		}
	}
	s := newSim(t, plenty(), account(managed))
	got := discovery(t, s).Groups[0].Spec.Template
	want := []corev1.Taint{
		{Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "team", Value: "red", Effect: corev1.TaintEffectNoSchedule},
	}
	if want := "lt-1/1"; got.Source != want {
		t.Errorf("the source is %q, want the launch template and the version that $Default stands for, %s", got.Source, want)
	}
	if diff := cmp.Diff(want, got.Taints); diff != "" || got.Labels["pool"] != "training" {
		t.Errorf("labels are %v, taints (-want +got):\n%s", got.Labels, diff)
	}
	s = newSim(t, plenty(), account(managed, func(c *simaws.Config) { c.Denied = []string{"eks:DescribeNodegroup"} }))
	found := discovery(t, s).Groups[0]
	if !slices.ContainsFunc(found.Warnings, func(w cloudprovider.Warning) bool {
		return w.Reason == discover.NodegroupUnread && strings.Contains(w.Message, "AccessDenied")
	}) {
		t.Errorf("warnings are %v, want that the node group could not be read", found.Warnings)
	}
}

// What the tags of a group say of its levels stands beside what the type has.
func TestLevels(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) {
		c.Groups[0].Tags["muster.dev/topology/example.com/rack"] = "16"
		c.Groups[0].Tags["muster.dev/topology/nvidia.com/gpu.clique"] = "18"
		c.Groups[0].Tags["muster.dev/topology/topology.k8s.aws/network-node-layer-3"] = "64"
	}))
	d := discovery(t, s)
	if len(d.Groups) != 1 {
		t.Fatalf("got %+v", d)
	}
	want := []v1alpha1.TopologyLevel{
		{NodeLabel: "topology.k8s.aws/network-node-layer-1"}, {NodeLabel: "topology.k8s.aws/network-node-layer-2"},
		{NodeLabel: "example.com/rack", MachinesPerDomain: 16}, {NodeLabel: "nvidia.com/gpu.clique", MachinesPerDomain: 18},
		{NodeLabel: "topology.k8s.aws/network-node-layer-3", MachinesPerDomain: 64},
	}
	if diff := cmp.Diff(want, d.Groups[0].Spec.Topology); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
	s = newSim(t, plenty(), account(func(c *simaws.Config) { c.Groups[0].Tags["muster.dev/topology/rack"] = "many" }))
	if d = discovery(t, s); len(d.Groups) > 0 || len(d.Refused) != 1 ||
		!strings.Contains(fmt.Sprint(d.Refused), `tag muster.dev/topology/rack is "many"`) {
		t.Errorf("got %+v, want a refusal that names the tag", d)
	}
}
