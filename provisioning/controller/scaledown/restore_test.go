package scaledown

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	simgcp "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/group"
)

const (
	// fleet is the number of machines that run when etcd is restored.
	fleet      = 200
	clusterUID = "0a0a0a0a-0000-4000-8000-000000000001"
	// gangToken is the token of the launch of the fleet. The restored etcd does not have its request.
	gangToken = "6f9619ff-8b86-d011-b42d-00c04fc964ff-1"
	zone      = "us-east1-a"
	// step is the time between two updates of the cloud's clock.
	step = 20 * time.Second
)

// listGroups lists the NodeGroups of a cluster.
type listGroups = func(context.Context) ([]*v1alpha1.NodeGroup, error)

// simulatedCloud is a cloud with a group of machines.
type simulatedCloud struct {
	group *v1alpha1.NodeGroup
	front func(*cloudsim.World) (cloudsim.Front, error)
	adapt func(ctx context.Context, url string, groups listGroups) (cloudprovider.Provider, error)
}

func ofCloud(name string, cloud v1alpha1.Provider, edit func(*v1alpha1.NodeGroupSpec)) *v1alpha1.NodeGroup {
	g := newGroup(name)
	g.Spec.Provider, g.Spec.MaxNodes, g.Spec.Zone = cloud, fleet, zone
	edit(&g.Spec)
	return g
}

// simulatedClouds cover the ways in which machines are found: by their tags, by their names, and by the group that owns them.
var simulatedClouds = map[string]simulatedCloud{
	"AWS, by Fleet":           onAWS(v1alpha1.AWSFleet),
	"GCP, by BulkInsert":      onGCP(v1alpha1.GCPBulkInsert),
	"GCP, by CreateInstances": onGCP(v1alpha1.GCPCreateInstances),
}

func onAWS(method v1alpha1.AWSLaunchMethod) simulatedCloud {
	return simulatedCloud{
		group: ofCloud("gpu", v1alpha1.ProviderAWS, func(s *v1alpha1.NodeGroupSpec) {
			s.AWS = &v1alpha1.AWSGroup{Region: "us-east-1", AutoScalingGroup: "asg", InstanceType: "p5", Subnet: "subnet-a", LaunchMethod: method}
		}),
		front: func(w *cloudsim.World) (cloudsim.Front, error) {
			return simaws.New(simaws.Config{
				Region: "us-east-1", Cluster: "prod", Subnets: []simaws.Subnet{{ID: "subnet-a", Zone: zone}},
				Types:     []simaws.Type{{Name: "p5", VCPUs: 96, MemoryMiB: 1 << 20, GPUs: 8, GPUMaker: "NVIDIA", OnDemandUSD: "55"}},
				Templates: []simaws.Template{{ID: "lt-1", Name: "gpu", Type: "p5"}},
				Groups: []simaws.Group{{Name: "asg", Max: fleet, Template: "gpu", Subnets: []string{"subnet-a"},
					Suspended: []string{"AZRebalance", "ReplaceUnhealthy"},
					Tags: map[string]string{"muster.dev/enabled": "", "kubernetes.io/cluster/prod": "owned",
						"muster.dev/cluster-uid": clusterUID}}},
			}, w)
		},
		adapt: func(ctx context.Context, url string, groups listGroups) (cloudprovider.Provider, error) {
			return aws.New(ctx, aws.Config{Region: "us-east-1", Cluster: "prod", ClusterUID: clusterUID, Endpoint: url, Groups: groups,
				Clock: clock.RealClock{}})
		},
	}
}

func onGCP(method v1alpha1.GCPLaunchMethod) simulatedCloud {
	return simulatedCloud{
		group: ofCloud("gpu", v1alpha1.ProviderGCP, func(s *v1alpha1.NodeGroupSpec) {
			s.GCP = &v1alpha1.GCPGroup{Project: "lab", Location: zone, InstanceGroupManager: "mig", MachineType: "a3", LaunchMethod: method}
		}),
		front: func(w *cloudsim.World) (cloudsim.Front, error) {
			return simgcp.New(simgcp.Config{
				Project:      "lab",
				MachineTypes: []simgcp.MachineType{{Name: "a3", VCPUs: 96, MemoryMB: 1 << 20, GPUs: 8, GPUType: "nvidia-h100-80gb"}},
				Templates:    []simgcp.Template{{Name: "gpu", MachineType: "a3", Metadata: map[string]string{"muster-dev-cluster": "prod"}}},
				Groups:       []simgcp.Group{{Name: "mig", Zone: zone, Template: "gpu", ActionOnFailure: "DO_NOTHING"}},
			}, w)
		},
		adapt: func(ctx context.Context, url string, groups listGroups) (cloudprovider.Provider, error) {
			return gcp.New(ctx, gcp.Config{Project: "lab", Cluster: "prod", ClusterUID: clusterUID, Location: zone, Endpoint: url,
				Groups: groups, Clock: clock.RealClock{}, CallsPerSecond: 1000})
		},
	}
}

// restoring is a cluster on a simulated cloud whose etcd is restored.
type restoring struct {
	*world
	simulatedCloud
	cloud *cloudsim.World
	clock *clocktesting.FakeClock
	url   string
	// stop stops muster.
	stop func()
}

// newCloud serves a cloud over HTTP, outside of the bubble of the test. Its clock starts at that of the bubble.
func newCloud(t *testing.T, c simulatedCloud) *restoring {
	t.Helper()
	r := &restoring{simulatedCloud: c, clock: clocktesting.NewFakeClock(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))}
	pool := cloudsim.Pool{PoolKey: cloudsim.PoolKey{Cloud: c.group.Spec.Provider, Zone: zone, CapacityType: v1alpha1.OnDemand, Type: "p5"}}
	if c.group.Spec.GCP != nil {
		pool.Type, pool.Prices = "a3", []cloudsim.Price{{PerHour: resource.MustParse("88")}}
	}
	pool.Script.BootDelay = metav1.Duration{Duration: time.Minute}
	var err error
	if r.cloud, err = cloudsim.New(cloudsim.Config{Pools: []cloudsim.Pool{pool}}, r.clock); err != nil {
		t.Fatal(err)
	}
	front, err := c.front(r.cloud)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.cloud.Handler(front))
	server.Config.SetKeepAlivesEnabled(false) // an idle connection would stop the clock of the bubble
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// provider returns a new provider of the cloud.
func (r *restoring) provider() cloudprovider.Provider {
	r.Helper()
	p, err := r.adapt(r.Context(), r.url, func(ctx context.Context) ([]*v1alpha1.NodeGroup, error) {
		var list v1alpha1.NodeGroupList
		err := r.client.List(ctx, &list)
		var out []*v1alpha1.NodeGroup
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
		return out, err
	})
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// start starts muster on the state of the API server.
func (r *restoring) start() {
	ctx, cancel := context.WithCancel(r.Context())
	p := r.provider()
	r.controller.Providers = map[v1alpha1.Provider]cloudprovider.Provider{r.group.Spec.Provider: p}
	ended := make(chan error, 3)
	synced := make(chan struct{})
	r.controller.Synced = func(ctx context.Context) bool { <-synced; return ctx.Err() == nil }
	statuses := &group.Controller{Client: r.client, Live: r.client, Model: r.controller.Model, Synced: r.controller.Synced,
		Changed: r.controller.Model.Changed(), Clock: clock.RealClock{}}
	go func() { ended <- p.Watch(ctx, r.controller.Model.SetMachine, func() { close(synced) }) }()
	go func() { ended <- r.controller.Start(ctx) }()
	go func() { ended <- statuses.Start(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			for range 3 {
				if err := <-ended; err != nil {
					r.Error(err)
				}
			}
		})
	}
}

// passes advances the clock of the test and of the cloud.
func (r *restoring) passes(d time.Duration) {
	for range d / step {
		r.pass(step)
		r.clock.Step(step)
	}
	r.sync()
	synctest.Wait()
}

// runsOn counts the running machines.
func (r *restoring) runsOn() (n int) {
	for _, in := range r.cloud.Instances(true) {
		if in.Phase == cloudsim.Running {
			n++
		}
	}
	return n
}

// launch launches the fleet and runs a pod on each of its nodes.
func (r *restoring) launch() {
	r.Helper()
	provider := r.provider()
	request := cloudprovider.LaunchRequest{Group: r.group, Count: fleet, Token: gangToken, Request: "ns/gang"}
	var machines []cloudprovider.Machine
	var err error
	for range 20 {
		if machines, err = provider.Launch(r.Context(), request); err == nil {
			break
		}
		r.passes(step)
	}
	if len(machines) != fleet {
		r.Fatalf("%d machines came, want %d: %v", len(machines), fleet, err)
	}
	for _, m := range machines {
		n := newNode(strings.ToLower(m.Name), r.group)
		n.Labels, n.Annotations = nodegroups.Labels(r.group), map[string]string{v1alpha1.LaunchAnnotation: gangToken}
		n.Spec.ProviderID = m.ProviderID
		pod := newReplica("gang-"+n.Name, n.Name)
		pod.OwnerReferences[0].Kind = "Job"
		for _, o := range []client.Object{n, pod} {
			if err := r.client.Create(r.Context(), o); err != nil {
				r.Fatal(err)
			}
		}
	}
	r.passes(2 * time.Minute) // all have booted
}

// restore deletes all nodes and pods from the API server.
func (r *restoring) restore() {
	r.Helper()
	if err := errors.Join(r.client.DeleteAllOf(r.Context(), &corev1.Pod{}, client.InNamespace("ns")),
		r.client.DeleteAllOf(r.Context(), &corev1.Node{})); err != nil {
		r.Fatal(err)
	}
	r.sync()
}

// reported returns the events with a reason.
func (r *restoring) reported(reason string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.story {
		if strings.Contains(line, " "+reason+" of ") {
			out = append(out, line)
		}
	}
	return out
}

func (r *restoring) condition() *metav1.Condition {
	g := &v1alpha1.NodeGroup{}
	if err := r.client.Get(r.Context(), types.NamespacedName{Name: r.group.Name}, g); err != nil {
		r.Fatal(err)
	}
	return meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionNodesPresent)
}

// TestAnEtcdRestoreLosesNoMachine: etcd is restored to a time before two hundred nodes of a running gang, and muster is restarted or keeps
// running. No machine is terminated. One event and a condition report it until a person decides or the kubelets have registered their
// nodes again.
func TestAnEtcdRestoreLosesNoMachine(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	for name, c := range simulatedClouds {
		t.Run(name+", and muster starts again", func(t *testing.T) {
			r := newCloud(t, c)
			synctest.Test(t, func(t *testing.T) {
				r.scenario(t, func() {
					r.stop()
					r.world = newWorld(t, clock.RealClock{}, []client.Object{r.group.DeepCopy()})
					r.start()
				}, r.decide)
			})
		})
		t.Run(name+", and muster goes on", func(t *testing.T) {
			r := newCloud(t, c)
			synctest.Test(t, func(t *testing.T) { r.scenario(t, r.restore, r.register) })
		})
	}
}

// TestARestartDoesNotLiftTheBrake: etcd is restored to a time before the machines' nodes, and Muster restarts. Only the condition of the
// group still records that the machines had nodes. No machine is terminated until a person decides or the kubelets have registered their
// nodes again.
func TestARestartDoesNotLiftTheBrake(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	for how, end := range map[string]func(*restoring, *testing.T){
		"a person decides": (*restoring).decide, "the nodes come": (*restoring).register,
	} {
		t.Run("until "+how, func(t *testing.T) {
			r := newCloud(t, onAWS(v1alpha1.AWSFleet))
			synctest.Test(t, func(t *testing.T) {
				r.world = newWorld(t, clock.RealClock{}, []client.Object{r.group.DeepCopy()})
				r.launch()
				r.start()
				defer func() { r.stop() }()
				r.passes(time.Minute)
				r.restore()
				r.passes(time.Minute)
				if c := r.condition(); c == nil || c.Status != metav1.ConditionFalse {
					t.Fatalf("the condition is %+v, want False, for all have lost their node", c)
				}
				r.stop()
				left := &v1alpha1.NodeGroup{}
				if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(r.group), left); err != nil {
					t.Fatal(err)
				}
				left.ResourceVersion = ""
				r.world = newWorld(t, clock.RealClock{}, []client.Object{left})
				r.start()
				r.passes(30 * time.Minute)
				if n := r.runsOn(); n != fleet {
					t.Fatalf("%d machines run after the restart, want all %d", n, fleet)
				}
				if c := r.condition(); c == nil || c.Status != metav1.ConditionFalse {
					t.Errorf("the condition is %+v after the restart, want False as before", c)
				}
				end(r, t)
			})
		})
	}
}

// scenario runs a fleet from its launch until end, which is what a person does about it.
func (r *restoring) scenario(t *testing.T, restore func(), end func(*testing.T)) {
	r.world = newWorld(t, clock.RealClock{}, []client.Object{r.group.DeepCopy()})
	r.launch()
	r.start()
	defer func() { r.stop() }()
	r.passes(11 * time.Minute)
	if n, reported := r.runsOn(), r.reported("ScaleDownBlocked"); n != fleet || len(reported) > 0 {
		t.Fatalf("%d machines run before the restore, want %d; reported was %v", n, fleet, reported)
	}
	restore()
	r.passes(30 * time.Minute)
	if n := r.runsOn(); n != fleet {
		t.Errorf("%d machines run after the restore, want all %d", n, fleet)
	}
	if reported := r.reported("ScaleDownBlocked"); len(reported) != 1 {
		t.Errorf("reported was %q, want once that many have lost their node", reported)
	}
	if c := r.condition(); c == nil || c.Status != metav1.ConditionFalse ||
		!strings.HasPrefix(c.Message, fmt.Sprintf("%d of %d machines of the group have lost their node", fleet, fleet)) {
		t.Errorf("the condition is %+v, want False, for all have lost their node", c)
	}
	end(t)
}

// decide declares the machines lost, as a person does.
func (r *restoring) decide(t *testing.T) {
	approved := r.group.DeepCopy()
	approved.Annotations = map[string]string{v1alpha1.TerminateAtOnceAnnotation: fmt.Sprint(fleet)}
	if err := r.client.Patch(t.Context(), approved, client.MergeFrom(r.group)); err != nil {
		t.Fatal(err)
	}
	r.passes(10 * time.Minute)
	if n := r.runsOn(); n > 0 {
		t.Errorf("%d machines run on after a person has decided", n)
	}
}

// register restarts the kubelets. They register their nodes, and their pods keep running.
func (r *restoring) register(t *testing.T) {
	for _, in := range slices.Backward(r.cloud.Instances(true)) {
		n := newNode(strings.ToLower(in.ID), r.group)
		n.Spec.ProviderID = r.providerID(in.ID)
		if err := r.client.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		pod := newReplica("gang-"+n.Name, n.Name)
		pod.OwnerReferences[0].Kind = "Job"
		if err := r.client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	r.sync()
	r.passes(12 * time.Minute)
	if n := r.runsOn(); n != fleet {
		t.Errorf("%d machines run once all have a node again, want all %d", n, fleet)
	}
	if c := r.condition(); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %+v, want True once all have a node", c)
	}
}

// providerID returns the provider ID of an instance in the kubelet's format.
func (r *restoring) providerID(id string) string {
	if r.group.Spec.GCP != nil {
		return "gce://lab/" + zone + "/" + id
	}
	return "aws:///" + zone + "/" + id
}
