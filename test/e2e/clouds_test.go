package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// cloudLabel keeps pods on the nodes of one group of the simulated clouds: see
// testdata/clouds.yaml.
const cloudLabel = "e2e.muster.dev/cloud"

// offering is a NodeGroup of a simulated cloud whose nodes bear the label, until the end
// of the test.
func (s *site) offering(name, label string, change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	s.Helper()
	g := s.Group("-"+name, func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok = nil
		g.Spec.Template.Labels = map[string]string{v1alpha1.CloudGroupLabel: label, cloudLabel: label}
		change(g)
	})
	s.Cleanup(func() {
		if err := s.Kube.Delete(context.Background(), g); err != nil {
			s.Error(err)
		}
	})
	return g
}

func onAWS(zone, autoScalingGroup, instanceType string) func(*v1alpha1.NodeGroup) {
	return func(g *v1alpha1.NodeGroup) {
		g.Spec.Provider, g.Spec.Zone = v1alpha1.ProviderAWS, "us-east-1"+zone
		g.Spec.AWS = &v1alpha1.AWSGroup{Region: "us-east-1", AutoScalingGroup: autoScalingGroup, InstanceType: instanceType,
			Subnet: "subnet-" + zone, LaunchMethod: v1alpha1.AWSFleet}
	}
}

func onGCP(zone, manager, machineType string) func(*v1alpha1.NodeGroup) {
	return func(g *v1alpha1.NodeGroup) {
		g.Spec.Provider, g.Spec.Zone = v1alpha1.ProviderGCP, "us-central1-"+zone
		g.Spec.GCP = &v1alpha1.GCPGroup{Project: "sandbox", Location: g.Spec.Zone, InstanceGroupManager: manager, MachineType: machineType,
			LaunchMethod: v1alpha1.GCPBulkInsert}
	}
}

// onto has the pods of a request select the label.
func onto(label string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{cloudLabel: label} }
}

// A gang that cannot be had in two zones and two capacity types starts on the fifth offering,
// and nothing of the four is ever billed.
func TestStoryAGangStartsOnTheFifthOffering(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cloud string
		at    func(zone string, capacityType v1alpha1.CapacityType) func(*v1alpha1.NodeGroup)
	}{
		{"aws", func(zone string, _ v1alpha1.CapacityType) func(*v1alpha1.NodeGroup) {
			return onAWS(zone, "fifth", "p5.48xlarge")
		}},
		{"gcp", func(zone string, capacityType v1alpha1.CapacityType) func(*v1alpha1.NodeGroup) {
			if capacityType == v1alpha1.Spot {
				return onGCP(zone, "fifth-"+zone+"-spot", "a3-highgpu-8g")
			}
			return onGCP(zone, "fifth-"+zone, "a3-highgpu-8g")
		}},
	} {
		t.Run(tc.cloud, func(t *testing.T) {
			s := newSite(t)
			born := s.births()
			var groups []*v1alpha1.NodeGroup
			for i, o := range []struct {
				zone         string
				capacityType v1alpha1.CapacityType
			}{{"a", v1alpha1.Spot}, {"b", v1alpha1.Spot}, {"a", v1alpha1.OnDemand}, {"b", v1alpha1.OnDemand}, {"c", v1alpha1.OnDemand}} {
				groups = append(groups, s.offering(fmt.Sprint(i+1), "fifth", func(g *v1alpha1.NodeGroup) {
					tc.at(o.zone, o.capacityType)(g)
					g.Spec.CapacityType = o.capacityType
					g.Spec.PricePerHour = resource.NewQuantity(int64(10+i), resource.DecimalSI)
				}))
			}
			began := time.Now()
			r := s.request("gang", 4, nil, onto("fifth"))
			s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
			t.Logf("Provisioned on the fifth offering after %s", time.Since(began).Round(10*time.Millisecond))
			for i, g := range groups {
				s.Eventually(fmt.Sprintf("offering %d has one attempt", i+1), func() bool { return s.Get(g) && len(g.Status.Attempts) == 1 },
					func() string { return fmt.Sprintf("attempts: %+v", g.Status.Attempts) })
				if i < 4 && (g.Status.Attempts[0].Class != v1alpha1.Stockout || g.Status.Attempts[0].Got != 0) {
					t.Errorf("the attempt of offering %d is %+v, want a stockout of which nothing came", i+1, g.Status.Attempts[0])
				}
				for _, l := range s.bill(g.Name) {
					if i < 4 {
						t.Errorf("offering %d is on the bill: %+v", i+1, l)
					}
				}
			}
			if got := len(s.bill(groups[4].Name)); got != 4 {
				t.Errorf("%d machines of the fifth offering are on the bill, want 4", got)
			}
			for name, cordoned := range born() {
				if !cordoned {
					t.Errorf("node %s was born open: pods could slip in", name)
				}
			}
			s.Delete(r)
			s.paidOff(groups...)
		})
	}
}

// births follows the nodes of the clouds that are made, and says of each whether it was
// born cordoned.
func (s *site) births() func() map[string]bool {
	s.Helper()
	s.birthPolicyActs()
	nodes, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		s.Fatal(err)
	}
	list, err := nodes.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	watch, err := nodes.CoreV1().Nodes().Watch(context.Background(),
		metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: cloudLabel})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(watch.Stop)
	var mu sync.Mutex
	born := map[string]bool{}
	go func() {
		for e := range watch.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && e.Type == "ADDED" {
				mu.Lock()
				born[n.Name] = n.Spec.Unschedulable
				mu.Unlock()
			}
		}
	}()
	return func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		if len(born) == 0 {
			s.Error("no node of a cloud was born")
		}
		return born
	}
}

// birthPolicyActs waits until nodes of a group with a launch in flight are born
// cordoned: kube-apiserver takes policies up a moment after it has them.
func (s *site) birthPolicyActs() {
	s.Helper()
	launching := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: deploy.Launching}}
	if err := s.Kube.Patch(s.Context(), launching, client.RawPatch(types.MergePatchType, []byte(`{"data":{"probe":""}}`))); err != nil {
		s.Fatal(err)
	}
	probe := &corev1.Node{}
	s.Eventually("the policy on births acts", func() bool {
		probe = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{v1alpha1.CloudGroupLabel: "probe"}}}
		return s.Kube.Create(s.Context(), probe, client.DryRunAll) == nil && probe.Spec.Unschedulable
	}, func() string { return "a node that is tried is born open" })
	if probe.Annotations[v1alpha1.CordonedAnnotation] != v1alpha1.CordonJoining {
		s.Errorf("the cordon of a young node bears no mark of Muster's: %v", probe.Annotations)
	}
}

// bill is what the clouds bill for a NodeGroup.
func (s *site) bill(group string) (out []cloudsim.Line) {
	s.Helper()
	g := &v1alpha1.NodeGroup{}
	if err := s.Kube.Get(s.Context(), client.ObjectKey{Name: group}, g); err != nil {
		s.Fatal(err)
	}
	for _, l := range s.wholeBill() {
		tag := cmp.Or(l.Tags["muster.dev/node-group"], l.Tags["muster-dev-node-group"])
		// Machines of a resize request have no tag. Those that other tests create in bulk with the same manager have one.
		owned := tag == "" && g.Spec.GCP != nil && l.Group == g.Spec.GCP.InstanceGroupManager && l.From.After(g.CreationTimestamp.Time)
		if tag == group || owned {
			out = append(out, l)
		}
	}
	return out
}

// paidOff waits until nothing of the groups is left, in the cluster and on the bill.
func (s *site) paidOff(groups ...*v1alpha1.NodeGroup) {
	s.Helper()
	for _, g := range groups {
		s.Empty(g.Name)
		s.Eventually("nothing of "+g.Name+" is billed on", func() bool {
			return !slices.ContainsFunc(s.bill(g.Name), func(l cloudsim.Line) bool { return l.Open })
		}, func() string { return fmt.Sprintf("the bill: %+v", s.bill(g.Name)) })
	}
}

// By each way to launch, a job gets its machines, even if muster dies at any moment, and no machine is left or was created beyond those
// that it needs.
func killedLaunchingOnACloud(s *site) {
	random := rand.New(rand.NewPCG(seed, 1))
	for _, method := range []string{"Fleet", "Reservation", "LaunchInstances", "BulkInsert", "ResizeRequest", "CreateInstances"} {
		s.Run(method, func(t *testing.T) {
			s := &site{testbed.NewSite(t, s.Cluster)}
			g := s.offering("steady", "methods", func(g *v1alpha1.NodeGroup) {
				if aws := v1alpha1.AWSLaunchMethod(method); slices.Contains([]v1alpha1.AWSLaunchMethod{v1alpha1.AWSFleet, v1alpha1.AWSReservation,
					v1alpha1.AWSLaunchInstances}, aws) {
					onAWS("c", "methods", "p5.48xlarge")(g)
					g.Spec.AWS.LaunchMethod = aws
					return
				}
				onGCP("c", "methods", "a3-highgpu-8g")(g)
				if g.Spec.GCP.LaunchMethod = v1alpha1.GCPLaunchMethod(method); g.Spec.GCP.LaunchMethod == v1alpha1.GCPResizeRequest {
					g.Spec.GCP.InstanceGroupManager = "flex"
				}
			})
			s.queue(g)
			kills := (*kills + 3) / 4
			gangs := kills
			if method == string(v1alpha1.AWSLaunchInstances) {
				gangs++ // its machines are tagged late, which a new process would mend
			}
			for i := range gangs {
				j := s.job(fmt.Sprintf("job-%d", i), 4, func(j *batchv1.Job) { onto("methods")(&j.Spec.Template.Spec) })
				if i < kills {
					after := time.Duration(random.Int64N(int64(time.Duration(i+1) * time.Second)))
					t.Logf("killing muster %s after the job's creation", after)
					s.kill(after)
				}
				s.complete(j)
				s.paidOff(g)
				s.back()
			}
			machines := 0
			for _, l := range s.bill(g.Name) {
				if l.Places == 1 {
					machines++
				}
			}
			if machines != 4*gangs {
				t.Errorf("%d machines were bought for %d gangs of 4", machines, gangs)
			}
		})
	}
}

// A node with less than the cloud promises must not block a gang: the difference is detected, reported and learned, and the gang uses
// another group.
func TestNodesThatHaveLessThanTheCloudSays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cloud          string
		liar, truthful func(*v1alpha1.NodeGroup)
	}{
		{"aws", onAWS("c", "truth", "p4d.24xlarge"), onAWS("c", "methods", "p5.48xlarge")},
		{"gcp", onGCP("c", "truth", "a2-highgpu-8g"), onGCP("c", "methods", "a3-highgpu-8g")},
	} {
		t.Run(tc.cloud, func(t *testing.T) {
			s := newSite(t)
			liar := s.offering("liar", "truth", func(g *v1alpha1.NodeGroup) {
				tc.liar(g)
				g.Spec.PricePerHour = resource.NewQuantity(1, resource.DecimalSI)
				g.Spec.JoinTimeout = &metav1.Duration{Duration: 10 * time.Second}
			})
			truthful := s.offering("truthful", "methods", tc.truthful)
			r := s.request("gang", 2, nil, func(p *corev1.PodSpec) { p.NodeSelector = nil; p.Affinity = onEither("truth", "methods") })
			// This is reported while the nodes exist.
			s.Eventually("the difference is told", func() bool {
				s.Get(liar)
				c := meta.FindStatusCondition(liar.Status.Conditions, v1alpha1.ConditionTemplateMatches)
				return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "nvidia.com/gpu")
			}, func() string { return fmt.Sprintf("conditions: %v", liar.Status.Conditions) })
			s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
			s.Delete(r)
			s.paidOff(liar, truthful)
		})
	}
}

// TestNodesThatOutliveTheirMachinesGo: in a cluster without a cloud-controller-manager nothing
// else deletes them. A rollback does not wait for them.
func TestNodesThatOutliveTheirMachinesGo(t *testing.T) {
	t.Parallel()
	c := withClouds()
	sandbox.AddCloudsOf(&c, append(slices.Clone(clouds), "\nnodesStay: [{cloud: gcp}]\n"...))
	s := &site{testbed.NewSite(t, started(t, "remains", c))}
	liar := s.offering("liar", "truth", func(g *v1alpha1.NodeGroup) {
		onGCP("c", "truth", "a2-highgpu-8g")(g)
		g.Spec.PricePerHour = resource.NewQuantity(1, resource.DecimalSI)
		g.Spec.JoinTimeout = &metav1.Duration{Duration: 10 * time.Second}
	})
	truthful := s.offering("truthful", "methods", onGCP("c", "methods", "a3-highgpu-8g"))
	r := s.request("gang", 2, nil, func(p *corev1.PodSpec) { p.NodeSelector = nil; p.Affinity = onEither("truth", "methods") })
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	if left := s.Left(liar.Name); len(left) == 0 {
		t.Error("no node has outlived its machine: the test shows nothing")
	}
	s.Delete(r)
	for _, g := range []*v1alpha1.NodeGroup{liar, truthful} {
		s.Within(3*time.Minute, "no machine or node of "+g.Name, func() bool { return len(s.Left(g.Name)) == 0 },
			func() string { return fmt.Sprint("left: ", s.Left(g.Name)) })
	}
}

// onEither is the affinity to nodes of one of the labels.
func onEither(labels ...string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: cloudLabel, Operator: corev1.NodeSelectorOpIn, Values: labels},
		}}},
	}}}
}

// Groups that are labelled as Muster's are discovered in both clouds, although they have the same name. One that cannot be used is
// reported.
func TestGroupsOfCloudsAreFound(t *testing.T) {
	s := newSite(t)
	found := func() map[string]v1alpha1.NodeGroup {
		list := &v1alpha1.NodeGroupList{}
		if err := s.Kube.List(t.Context(), list, client.HasLabels{v1alpha1.DiscoveredLabel}); err != nil {
			return nil
		}
		out := map[string]v1alpha1.NodeGroup{}
		for _, g := range list.Items {
			out[fmt.Sprintf("%s %s", g.Spec.Provider, g.Spec.Zone)] = g
		}
		return out
	}
	want := []string{"aws us-east-1b", "aws us-east-1c", "gcp us-central1-c"}
	s.Eventually("a NodeGroup for each offering", func() bool {
		groups := found()
		return len(groups) == len(want) && !slices.ContainsFunc(want, func(o string) bool {
			g, ok := groups[o]
			return !ok || meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionSound) == nil
		})
	}, func() string { return fmt.Sprintf("found: %+v", found()) })
	for name, g := range found() {
		gpus := g.Spec.Template.Capacity["nvidia.com/gpu"]
		if gpus.Value() != 8 || g.Spec.PricePerHour == nil || g.Spec.PricePerHour.Sign() <= 0 ||
			g.Spec.Template.Labels[v1alpha1.CloudGroupLabel] != "found" {
			t.Errorf("%s has %s GPUs at %s USD per hour and labels %v", name, gpus.String(), g.Spec.PricePerHour, g.Spec.Template.Labels)
		}
	}
	s.Eventually("word of the group that has no launch template", func() bool {
		list := &eventsv1.EventList{}
		return s.Kube.List(t.Context(), list) == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "GroupRefused" && strings.Contains(e.Note, "old") && strings.Contains(e.Note, "launch template")
		})
	}, func() string { return "no such event" })
}
