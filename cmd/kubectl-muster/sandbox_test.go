package main

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

//go:embed testdata/stockout.yaml
var stockout []byte

// onSandbox runs the plugin as kubectl would.
type onSandbox struct {
	*testing.T
	kubeconfig string
}

func (s *onSandbox) run(args ...string) (string, error) {
	var out bytes.Buffer
	command := newRootCommand(clock.RealClock{})
	command.SetArgs(append([]string{"--kubeconfig", s.kubeconfig}, args...))
	command.SetOut(&out)
	err := command.ExecuteContext(s.Context())
	return squeezed(out.String()), err
}

// tells checks the whole answer, which may take Muster a moment to bring about.
func (s *onSandbox) tells(args []string, sentences ...string) {
	s.Helper()
	ctx, cancel := pressure.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := s.run(args...)
		missing := ""
		for _, sentence := range sentences {
			if missing == "" && !strings.Contains(text, sentence) {
				missing = sentence
			}
		}
		if err == nil && missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("`kubectl muster %s` lacks %q (%v):\n%s", strings.Join(args, " "), missing, err, text)
		case <-ticker.C:
		}
	}
}

// refuses checks the error.
func (s *onSandbox) refuses(args []string, why string) {
	s.Helper()
	if text, err := s.run(args...); err == nil || !strings.Contains(err.Error(), why) {
		s.Errorf("`kubectl muster %s` answers %v, want %q:\n%s", strings.Join(args, " "), err, why, text)
	}
}

// TestOnASandbox: a job is stocked out; Muster is paused; a tenant may not list nodes.
func TestOnASandbox(t *testing.T) {
	if os.Getenv(testbed.SandboxVariable) == "" {
		t.Skipf("%s does not name a sandbox's binary: run `make test-more`, which builds it", testbed.SandboxVariable)
	}
	c := cluster.Config{Progress: os.Stderr}
	sandbox.Fill(&c)
	running, err := testbed.Start(t.Context(), "plugin", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	running.KeepIfFailed(t, metav1.NamespaceDefault)
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(running.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(stockout)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s := &onSandbox{t, running.Kubeconfig()}

	s.tells([]string{"explain", "job/train"},
		"waits for machines.\nClusterQueue research, LocalQueue main, priority 0: 1st of 1 in the queue", "3 of 4 machines were made",
		"time: the backoff of NodeGroup h100 ends at", "h100 nvidia.com/gpu 32 64 0 64 0", "h100 h100 OnDemand 98.32 0 of 8 4 ")
	s.tells([]string{"explain", "job/train", "-o", "wide"}, "Stockout, ")
	s.tells([]string{"queue", "research"}, "research 1 default job/train", "waits for machines")
	s.tells([]string{"capacity", "-o", "wide"}, "h100 OnDemand 98.32 0 of 8 0", "Stockout")
	s.tells([]string{"explain", "provreq/train"}, "is not served by this Muster: its class is queued-provisioning.gke.io")

	s.refuses([]string{"explain", "train"},
		"namespace default has 2 objects named train: choose one with job/train or provisioningrequest/train")
	s.refuses([]string{"explain", "job/none"}, "namespace default has no job named none")
	s.refuses([]string{"explain", "job/train", "-n", "kube-system"},
		"namespace kube-system has no job named train, but namespace default has one: add -n default")
	s.refuses([]string{"explain", "pod/train"}, "namespace default has no pod named train")
	s.refuses([]string{"explain", "thing/train"},
		`kind "thing" cannot be explained: use job, workload, provisioningrequest, or a kind of jobs`)
	s.refuses([]string{"queue", "reserch"}, `ClusterQueue "reserch" does not exist; those that do: research`)

	s.refuses([]string{"explain", "job/train", "--as", "nobody"},
		"you may not get jobs.batch in namespace default. Ask an administrator for the ClusterRole muster-explain")
	s.refuses([]string{"queue", "--as", "nobody"}, "you may not read the queues: list workloads.kueue.x-k8s.io and ")
	s.refuses([]string{"capacity", "--as", "nobody"}, "you may not read the NodeGroups: list nodegroups.muster.dev")

	tenant := []string{"--as", "system:serviceaccount:default:tenant"}
	s.tells(append([]string{"explain", "job/train", "-o", "wide"}, tenant...), "waits for machines, as recorded", "3 of 4 machines were made",
		"Recent events", "list nodes in all namespaces", "Ask an administrator for the ClusterRole muster-explain",
		"kubectl create clusterrole muster-explain-some --verb=list --resource=nodes;")

	s.simulates()

	// What Muster has not seen is judged all the same. It is not paused amid an attempt,
	// which would go on for ever.
	s.tells([]string{"explain", "job/train"}, "time: the backoff of NodeGroup h100 ends at")
	if err := running.Pause(cluster.Muster); err != nil {
		t.Fatal(err)
	}
	group := &v1alpha1.NodeGroup{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "h100"}, group); err != nil {
		t.Fatal(err)
	}
	group.Spec.MaxNodes = 2
	if err := kube.Update(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	s.tells([]string{"explain", "job/train"}, "cannot start as specified: no NodeGroup can provide its machines.",
		"4 machines needed, it may have 2", "an administrator raises spec.maxNodes of NodeGroup h100 by 2")
	if err := running.Resume(cluster.Muster); err != nil {
		t.Fatal(err)
	}
	s.acts(kube)
	s.submits()
}

// simulates asks about jobs like the one that waits for 4 machines of group h100, which
// can give 3.
func (s *onSandbox) simulates() {
	s.Helper()
	folder := s.TempDir()
	written := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			s.Fatal(err)
		}
		return file
	}
	two := written("two.yaml", strings.Replace(train, "parallelism: 4", "parallelism: 2", 1))
	more := written("more.yaml", `apiVersion: muster.dev/v1alpha1
kind: NodeGroup
metadata: {name: more}
spec:
  provider: kwok
  maxNodes: 4
  pricePerHour: "80"
  template: {labels: {pool: h100}, capacity: {cpu: 192, memory: 2Ti, nvidia.com/gpu: 8}}
  kwok: {}
`)
	s.tells([]string{"simulate", "-f", two}, "Job default/new would start at 20", ", on flavor h100.",
		"machines to launch: 2 of NodeGroup h100, at 196.64 USD per hour")
	s.tells([]string{"simulate", "-f", two, "--quota", "research/h100/nvidia.com/gpu=8"}, "Job default/new cannot start as specified",
		"Without the changes it would start at 20",
		"flavor h100: request 8 nvidia.com/gpu less, or ask an administrator to raise nominalQuota of ClusterQueue research by that amount")
	s.tells([]string{"simulate", "-f", two, "--at", "6h"}, "Job default/new would arrive at 20", "(in 6h) and is expected to start")
	s.tells([]string{"simulate", "--add-group", more}, "Of the pending workloads, 1 would start only with the changes",
		"research default job/train 0 would start at 20", "4 of NodeGroup more, at 320.00 USD per hour")
	s.refuses([]string{"simulate", "-f", written("named.yaml", strings.Replace(train, "name: new", "name: New", 1))},
		"named.yaml, document 1: the API server would refuse it: ")
	s.refuses([]string{"simulate", "--add-group", written("priced.yaml",
		"apiVersion: muster.dev/v1alpha1\nkind: NodeGroup\nmetadata: {name: p}\nspec: {provider: kwok, maxNodes: 1, kwok: {}, template: "+
			"{capacity: {cpu: 1}}}\n")}, "capacity must name cpu and memory")
	// What Muster publishes for namespaces, once a minute, suffices for a simulation of now.
	tenant := []string{"--as", "system:serviceaccount:default:tenant"}
	s.refuses(append([]string{"simulate", "-f", two, "--at", "6h"}, tenant...), "you may not read what a simulation needs: list nodes")
	s.tells(append([]string{"simulate", "-f", two}, tenant...), "Job default/new would have quota at once, on flavor h100",
		"this is by what Muster has published for your namespace")

	auditor := []string{"--as", "system:serviceaccount:default:auditor"}
	s.tells(append([]string{"simulate", "-f", two}, auditor...), "would start at 20",
		"you may not create jobs.batch, so it is taken from the file as is")
	s.tells(append([]string{"explain", "job/train"}, auditor...), "waits for machines.", "time: the backoff of NodeGroup h100 ends at")
	s.tells(append([]string{"queue"}, auditor...), "research 1 default job/train")
	s.tells(append([]string{"capacity"}, auditor...), "h100 OnDemand")
	s.tells(append([]string{"cost"}, auditor...), "so there is no cost")
}

// TestAClusterWithoutMuster knows none of its kinds.
func TestAClusterWithoutMuster(t *testing.T) {
	if os.Getenv(testbed.SandboxVariable) == "" {
		t.Skipf("%s does not name a sandbox's binary: run `make test-more`, which builds it", testbed.SandboxVariable)
	}
	running, err := testbed.Start(t.Context(), "bare", cluster.Config{Progress: os.Stderr, Only: []string{cluster.Etcd, cluster.APIServer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := &onSandbox{t, running.Kubeconfig()}
	for _, args := range [][]string{{"queue"}, {"capacity"}, {"explain", "workload/train"}} {
		s.refuses(args, "Muster is not installed")
	}
	s.refuses([]string{"explain", "train"}, "namespace default has no job")
}
