package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/testbed"
)

// serving is held while an external runs: one serves all groups of a cluster.
var serving sync.Mutex

// external is a `muster externalgrpc` that runs as Muster's service account, and an autoscaler's
// connection to it.
type external struct {
	*site
	protos.CloudProviderClient
	address    string
	kubeconfig string
	log        string
	process    *exec.Cmd
}

func newExternal(s *site) *external {
	s.Helper()
	serving.Lock()
	s.Cleanup(serving.Unlock)
	dir := s.TempDir()
	e := &external{site: s, address: testbed.FreeAddress(s.T), kubeconfig: filepath.Join(dir, "kubeconfig"), log: filepath.Join(dir, "log")}
	if err := managers.WriteKubeconfig(e.kubeconfig, s.account(deploy.Namespace, deploy.DefaultNames.ServiceAccount)); err != nil {
		s.Fatal(err)
	}
	conn, err := grpc.NewClient(e.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	e.CloudProviderClient = protos.NewCloudProviderClient(conn)
	e.start()
	s.Cleanup(func() {
		_ = conn.Close()
		e.kill()
		if s.Failed() {
			testbed.Tail(e.log)
		}
	})
	return e
}

// account are the credentials of a service account.
func (s *site) account(namespace, name string) *rest.Config {
	s.Helper()
	token := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := s.Kube.SubResource("token").Create(s.Context(), account, token); err != nil {
		s.Fatal(err)
	}
	out := rest.AnonymousClientConfig(s.RESTConfig())
	out.BearerToken = token.Status.Token
	return out
}

// start returns when it answers, as an autoscaler waits for it.
func (e *external) start() {
	e.Helper()
	e.process = e.run(e.log, os.Getenv(testbed.SandboxVariable), cluster.ComponentCommand, cluster.Muster, "externalgrpc",
		"--kubeconfig="+e.kubeconfig, "--config="+e.MusterConfig(), "--address="+e.address, "--health-probe-bind-address=0")
	e.Eventually("an answer of muster externalgrpc", func() bool {
		_, err := e.Refresh(e.Context(), &protos.RefreshRequest{}, grpc.WaitForReady(false))
		return err == nil
	}, func() string { return "it does not answer" })
}

// run starts a program.
func (e *external) run(log string, args ...string) *exec.Cmd {
	e.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(args[0], args[1:]...)
	// Credentials of the simulated clouds.
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=sandbox", "AWS_SECRET_ACCESS_KEY=sandbox", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	return cmd
}

// kill ends it at once. Its lease would keep the next one waiting, and a shorter one is lost where the
// API server stands still for a moment.
func (e *external) kill() {
	_ = e.process.Process.Kill()
	_ = e.process.Wait() // it was killed
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: "muster-externalgrpc"}}
	if err := e.Kube.Delete(context.Background(), lease); client.IgnoreNotFound(err) != nil {
		e.Error(err)
	}
}

func (e *external) increase(g *v1alpha1.NodeGroup, delta int32) error {
	_, err := e.NodeGroupIncreaseSize(e.Context(), &protos.NodeGroupIncreaseSizeRequest{Id: g.Name, Delta: delta})
	return err
}

func (e *external) target(g *v1alpha1.NodeGroup) int32 {
	e.Helper()
	out, err := e.NodeGroupTargetSize(e.Context(), &protos.NodeGroupTargetSizeRequest{Id: g.Name})
	if err != nil {
		e.Fatal(err)
	}
	return out.GetTargetSize()
}

func (e *external) instances(g *v1alpha1.NodeGroup) (out []*protos.Instance) {
	e.Helper()
	list, err := e.NodeGroupNodes(e.Context(), &protos.NodeGroupNodesRequest{Id: g.Name})
	if err != nil {
		e.Fatal(err)
	}
	return list.GetInstances()
}

// nodes of a group that are Ready.
func (e *external) nodes(g *v1alpha1.NodeGroup) (out []corev1.Node) {
	e.Helper()
	var list corev1.NodeList
	e.List(&list, client.MatchingLabels{v1alpha1.NodeGroupLabel: g.Name})
	return slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
		return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})
}

func (e *external) joined(g *v1alpha1.NodeGroup, count int) []corev1.Node {
	e.Helper()
	e.Eventually(fmt.Sprintf("%d nodes of group %s", count, g.Name), func() bool { return len(e.nodes(g)) == count },
		func() string { return fmt.Sprint(e.Left(g.Name)) })
	return e.nodes(g)
}

// seen waits until so many of the instances that the autoscaler gets are Ready nodes, and returns these.
func (e *external) seen(g *v1alpha1.NodeGroup, count int) (out []corev1.Node) {
	e.Helper()
	e.Eventually(fmt.Sprintf("%d instances of group %s that are nodes", count, g.Name), func() bool {
		instances := e.instances(g)
		var list corev1.NodeList
		e.List(&list)
		out = slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
			return !slices.ContainsFunc(instances, func(i *protos.Instance) bool { return i.GetId() == n.Spec.ProviderID }) ||
				!slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
				})
		})
		return len(out) == count
	}, func() string { return fmt.Sprint(e.instances(g)) })
	return out
}

// remove deletes nodes as the autoscaler does, by its own view of them.
func (e *external) remove(g *v1alpha1.NodeGroup, nodes ...*protos.ExternalGrpcNode) error {
	_, err := e.NodeGroupDeleteNodes(e.Context(), &protos.NodeGroupDeleteNodesRequest{Id: g.Name, Nodes: nodes})
	return err
}

func known(n *corev1.Node) *protos.ExternalGrpcNode {
	return &protos.ExternalGrpcNode{ProviderID: n.Spec.ProviderID, Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}
}

func (e *external) machines(g *v1alpha1.NodeGroup) (out []kwokv1alpha1.Machine) {
	e.Helper()
	var list kwokv1alpha1.MachineList
	e.List(&list)
	return slices.DeleteFunc(list.Items, func(m kwokv1alpha1.Machine) bool { return m.Spec.Group != g.Name })
}

// TestAnAutoscalerScalesItsGroups makes the calls of a cluster-autoscaler, in its order.
func TestAnAutoscalerScalesItsGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.ScaledBy, g.Spec.IdleTimeout.Duration = v1alpha1.ScaledByClusterAutoscaler, 100*time.Millisecond
	})
	own := s.Group("-own", func(o *v1alpha1.NodeGroup) { o.Spec = *g.Spec.DeepCopy() })
	e := newExternal(s)
	for group, count := range map[*v1alpha1.NodeGroup]int32{g: 4, own: 1} {
		if err := e.increase(group, count); err != nil {
			t.Fatal(err)
		}
	}
	if n := e.target(g); n != 4 {
		t.Errorf("the target size is %d at once, want 4", n)
	}
	nodes := e.joined(g, 4)
	for i := range nodes {
		n := &nodes[i]
		of, err := e.NodeGroupForNode(t.Context(), &protos.NodeGroupForNodeRequest{Node: known(n)})
		if err != nil || of.GetNodeGroup().GetId() != g.Name || n.Spec.Unschedulable {
			t.Errorf("node %s is of group %q (%v), cordoned: %t", n.Name, of.GetNodeGroup().GetId(), err, n.Spec.Unschedulable)
		}
		if !slices.ContainsFunc(e.instances(g), func(i *protos.Instance) bool { return i.GetId() == n.Spec.ProviderID }) {
			t.Errorf("node %s is none of the instances", n.Name)
		}
	}

	// A machine that is released to Muster is scaled down once it is idle, and is not the autoscaler's any more.
	e.joined(own, 1)
	s.edit(own, func() { own.Spec.ScaledBy = v1alpha1.ScaledByMuster })
	s.Empty(own.Name)
	if n := len(e.joined(g, 4)); n != 4 || len(e.machines(g)) != 4 {
		t.Errorf("%d nodes and %d machines are left of 4", n, len(e.machines(g)))
	}
	s.Eventually("one group that is the autoscaler's", func() bool {
		groups, err := e.NodeGroups(t.Context(), &protos.NodeGroupsRequest{})
		return err == nil && slices.ContainsFunc(groups.GetNodeGroups(),
			func(l *protos.NodeGroup) bool { return l.GetId() == g.Name && l.GetMaxSize() == 8 }) &&
			!slices.ContainsFunc(groups.GetNodeGroups(), func(l *protos.NodeGroup) bool { return l.GetId() == own.Name })
	}, func() string { return "the groups are others" })

	// Muster books a free node there, which the autoscaler may not have then.
	booked := s.request("booked", 1, nil, func(p *corev1.PodSpec) { p.NodeSelector[v1alpha1.NodeGroupLabel] = g.Name })
	s.condition(booked, provreq.Provisioned, metav1.ConditionTrue)
	held := ""
	for _, n := range e.nodes(g) {
		for key := range n.Annotations {
			if strings.HasPrefix(key, v1alpha1.BookedLabelPrefix) {
				held = n.Name
			}
		}
	}
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == held })
	if i < 0 {
		t.Fatalf("no node of %s is booked", g.Name)
	}
	if err := e.remove(g, known(&nodes[i]), known(&nodes[(i+1)%4])); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("deleting a booked node: %v", err)
	}

	// Exactly the named machine goes.
	named := &nodes[(i+1)%4]
	if err := e.remove(g, known(named)); err != nil {
		t.Fatal(err)
	}
	if n := e.target(g); n != 3 {
		t.Errorf("the target size is %d at once, want 3", n)
	}
	for _, n := range e.joined(g, 3) {
		if n.Name == named.Name {
			t.Errorf("node %s was to go", named.Name)
		}
	}
}

// TestALaunchForAnAutoscalerOutlivesItsProcess: it is killed at once after it has promised machines.
func TestALaunchForAnAutoscalerOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.ScaledBy, g.Spec.MaxNodes, g.Spec.Kwok.Holds = v1alpha1.ScaledByClusterAutoscaler, 24, new(int32(14))
	})
	e := newExternal(s)
	for i := range 4 {
		if err := e.increase(g, 3); err != nil {
			t.Fatal(err)
		}
		e.kill()
		e.start()
		if n := e.target(g); n != int32(3*i+3) {
			t.Errorf("the target size is %d, want %d", n, 3*i+3)
		}
	}
	e.joined(g, 12)
	if n := len(e.machines(g)); n != 12 {
		t.Errorf("%d machines, want 12", n)
	}

	// Only two of the next three machines are available; the third is reported, and forgotten once it is deleted.
	if err := e.increase(g, 3); err != nil {
		t.Fatal(err)
	}
	var failed []*protos.Instance
	s.Eventually("the cloud's error", func() bool {
		failed = slices.DeleteFunc(e.instances(g), func(i *protos.Instance) bool { return i.GetStatus().GetErrorInfo().GetErrorCode() == "" })
		return len(failed) > 0
	}, func() string { return fmt.Sprint(e.instances(g)) })
	if len(failed) != 1 || failed[0].GetStatus().GetErrorInfo().GetInstanceErrorClass() != 1 || e.target(g) != 15 {
		t.Errorf("of a target size of %d these have failed: %v", e.target(g), failed)
	}
	if err := e.remove(g, &protos.ExternalGrpcNode{ProviderID: failed[0].GetId(), Name: failed[0].GetId()}); err != nil {
		t.Fatal(err)
	}
	if n := e.target(g); n != 14 {
		t.Errorf("the target size is %d, want 14", n)
	}
	e.joined(g, 14)
}

// TestAnAutoscalerScalesGroupsOnClouds by each way to launch: a launch outlives the process that has accepted it, a stockout is reported,
// exactly the named machine is terminated, and at the end nothing is billed.
func TestAnAutoscalerScalesGroupsOnClouds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := newExternal(s)
	byFleet := func(method v1alpha1.AWSLaunchMethod) func(*v1alpha1.NodeGroup) {
		return func(g *v1alpha1.NodeGroup) {
			onAWS("c", "methods", "p5.48xlarge")(g)
			g.Spec.AWS.LaunchMethod = method
		}
	}
	byManager := func(method v1alpha1.GCPLaunchMethod, manager string) func(*v1alpha1.NodeGroup) {
		return func(g *v1alpha1.NodeGroup) {
			onGCP("c", manager, "a3-highgpu-8g")(g)
			g.Spec.GCP.LaunchMethod = method
		}
	}
	onDryAWS, onDryGCP := onAWS("b", "fifth", "p5.48xlarge"), onGCP("b", "fifth-b", "a3-highgpu-8g")
	for _, tc := range []struct {
		name    string
		at, dry func(*v1alpha1.NodeGroup)
		// inFull: test/e2e with -short leaves it out.
		inFull bool
	}{
		{"aws-fleet", byFleet(v1alpha1.AWSFleet), onDryAWS, false},
		{"gcp-bulk", byManager(v1alpha1.GCPBulkInsert, "methods"), onDryGCP, false},
		{"aws-reservation", byFleet(v1alpha1.AWSReservation), onDryAWS, true},
		{"aws-instances", byFleet(v1alpha1.AWSLaunchInstances), onDryAWS, true},
		{"gcp-instances", byManager(v1alpha1.GCPCreateInstances, "methods"), onDryGCP, true},
		{"gcp-resize", byManager(v1alpha1.GCPResizeRequest, "flex"), onDryGCP, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.inFull && testing.Short() {
				t.Skip("one way for each cloud is enough with -short")
			}
			defer func(outer *site) { e.site = outer }(e.site)
			s := &site{testbed.NewSite(t, e.Cluster)}
			e.site = s
			scaled := func(at func(*v1alpha1.NodeGroup)) func(*v1alpha1.NodeGroup) {
				return func(g *v1alpha1.NodeGroup) {
					at(g)
					g.Spec.ScaledBy = v1alpha1.ScaledByClusterAutoscaler
				}
			}
			g, dry := s.offering("made", "methods", scaled(tc.at)), s.offering("dry", "fifth", scaled(tc.dry))
			began := time.Now()
			tell := func(what string) { t.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond)) }
			if err := e.increase(g, 3); err != nil {
				t.Fatal(err)
			}
			e.kill()
			e.start()
			if n := e.target(g); n != 3 {
				t.Errorf("the target size is %d, want 3", n)
			}
			tell("it has been killed and answers again")
			nodes := e.seen(g, 3)
			tell("3 nodes are there")
			ready := time.Now()
			e.joined(g, 3)
			if late := time.Since(ready); late > poll.Calm/4 {
				t.Errorf("the nodes bear the label of their group %s after they are Ready: for pods that select it an autoscaler launches again", late)
			}
			tell("they bear the label of their group")
			for i := range nodes {
				of, err := e.NodeGroupForNode(t.Context(), &protos.NodeGroupForNodeRequest{Node: known(&nodes[i])})
				if err != nil || of.GetNodeGroup().GetId() != g.Name || nodes[i].Spec.Unschedulable {
					t.Errorf("node %s is of group %q (%v), cordoned: %t", nodes[i].Name, of.GetNodeGroup().GetId(), err, nodes[i].Spec.Unschedulable)
				}
			}

			if err := e.increase(dry, 2); err != nil {
				t.Fatal(err)
			}
			var failed []*protos.ExternalGrpcNode
			s.Eventually("the stockout is told", func() bool {
				failed = nil
				for _, i := range e.instances(dry) {
					if i.GetStatus().GetErrorInfo().GetInstanceErrorClass() == 1 {
						failed = append(failed, &protos.ExternalGrpcNode{ProviderID: i.GetId(), Name: i.GetId()})
					}
				}
				return len(failed) == 2
			}, func() string { return fmt.Sprint(e.instances(dry)) })
			tell("a stockout has been told")
			if err := e.remove(dry, failed...); err != nil || e.target(dry) != 0 {
				t.Errorf("the target size is %d after the failed ones were deleted (%v)", e.target(dry), err)
			}

			if err := e.remove(g, known(&nodes[1])); err != nil || e.target(g) != 2 {
				t.Errorf("the target size is %d after a deletion, want 2 (%v)", e.target(g), err)
			}
			s.Eventually("the node goes", func() bool {
				return apierrors.IsNotFound(s.Kube.Get(t.Context(), client.ObjectKeyFromObject(&nodes[1]), &corev1.Node{}))
			}, func() string { return nodes[1].Name })
			staying := slices.DeleteFunc(e.instances(g), func(i *protos.Instance) bool { // the cloud may still end the machine
				return i.GetStatus().GetInstanceState() == protos.InstanceStatus_instanceDeleting
			})
			if !s.Get(&nodes[0]) || !s.Get(&nodes[2]) || len(staying) != 2 {
				t.Errorf("others went, too: %v are left", staying)
			}
			tell("one node has gone")
			if err := e.remove(g, known(&nodes[0]), known(&nodes[2])); err != nil {
				t.Error(err)
			}
			s.paidOff(g, dry)
			tell("nothing is left")
		})
	}
}

// TestAStockAutoscaler runs one for pods that are pending, until they are gone.
func TestAStockAutoscaler(t *testing.T) {
	program := os.Getenv(managers.AutoscalerVariable)
	if program == "" {
		t.Skip(managers.AutoscalerVariable + " is not set: build a cluster-autoscaler with -tags externalgrpc to run this test")
	}
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.ScaledBy, g.Spec.IdleTimeout.Duration = v1alpha1.ScaledByClusterAutoscaler, 3*time.Second
		// Without the label the autoscaler takes nodes for ready that have no GPUs yet, and launches others for the pods.
		if g.Spec.Template.Labels == nil {
			g.Spec.Template.Labels = map[string]string{}
		}
		g.Spec.Template.Labels["nvidia.com/gpu.product"] = "H100"
	})
	e := newExternal(s)
	dir := t.TempDir()
	config, kubeconfig, log := filepath.Join(dir, "cloud.yaml"), filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")
	if err := os.WriteFile(config, []byte("address: "+e.address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "cluster-autoscaler"}}
	s.Create(account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.Name, Name: account.Name}},
	})
	if err := managers.WriteKubeconfig(kubeconfig, s.account(s.Name, account.Name)); err != nil {
		t.Fatal(err)
	}
	autoscaler := e.run(log, program, "--cloud-provider=externalgrpc", "--cloud-config="+config, "--kubeconfig="+kubeconfig,
		"--namespace="+s.Name,
		"--leader-elect=false", "--scan-interval=1s", "--scale-down-delay-after-add=1s", "--scale-down-unneeded-time=1h",
		"--address=127.0.0.1:0", "--v=2", "--skip-nodes-with-system-pods=false")
	t.Cleanup(func() {
		_ = autoscaler.Process.Kill()
		_ = autoscaler.Wait() // it was killed
		if t.Failed() {
			testbed.Tail(log)
		}
	})

	// Three pods of a whole machine each.
	job := s.job("web", 3, func(j *batchv1.Job) {
		delete(j.Labels, "kueue.x-k8s.io/queue-name")
		j.Spec.Template.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
	})
	began := time.Now()
	e.joined(g, 3)
	s.complete(job)
	t.Logf("3 pending pods were complete %s after they were created", time.Since(began).Round(time.Second))
	if n := len(e.machines(g)); n != 3 {
		t.Errorf("%d machines were launched for 3 pods", n)
	}
	began = time.Now()
	s.Within(3*time.Minute, "the end of all machines", func() bool { return len(e.machines(g)) == 0 },
		func() string { return fmt.Sprint(e.Left(g.Name)) })
	t.Logf("the machines were gone %s later", time.Since(began).Round(time.Second))
}
