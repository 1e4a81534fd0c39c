package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/test/pressure"
)

const (
	// warmStart is the promise for a start whose program is in the page cache, on processors of its own.
	warmStart = 15 * time.Second

	// soon bounds what should take a moment, with room for a busy machine.
	soon = 60 * time.Second
)

// controlPlane needs neither stages nor manifests.
var controlPlane = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler}

func TestSandboxSurvivesTheDeathOfEachComponent(t *testing.T) {
	before := pressure.Shared().Lost()
	c := start(t, cluster.Config{Name: "deaths", Only: controlPlane})
	if took := time.Since(c.State().Started) - (pressure.Shared().Lost() - before); took > warmStart {
		t.Errorf("ready after %s, want at most %s", took, warmStart)
	}
	ctx, cancel := pressure.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	for _, name := range controlPlane {
		before := component(t, c, name)
		if err := c.Kill(name); err != nil {
			t.Fatal(err)
		}
		for now := before; now.PID == before.PID || now.PID == 0; now = component(t, c, name) {
			pause(ctx, t, name+" to be started again")
		}
		if err := c.WaitReady(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, status := range c.Status(ctx) {
		if !status.Ready || status.Restarts == 0 || status.MemoryBytes == 0 {
			t.Errorf("%s: ready %v, %d restarts, %d bytes; want it ready after a restart, with some memory", status.Name, status.Ready,
				status.Restarts, status.MemoryBytes)
		}
	}
	createConfigMap(t, c, "after-the-deaths")
}

// The program of the operator is one that needs no build: the sandbox binary, as a stand-in.
func TestAnOperatorIsAComponent(t *testing.T) {
	var place cluster.Place
	c := start(t, cluster.Config{Name: "operator", Only: []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager},
		Operators: []cluster.Operator{{
			Name: "other", Program: binary(t), Namespace: "other-system",
			Settings: func(p cluster.Place) (cluster.Settings, error) {
				place = p
				object := &unstructured.Unstructured{}
				object.SetAPIVersion("v1")
				object.SetKind("ConfigMap")
				object.SetName("its-own")
				object.SetNamespace("other-system")
				return cluster.Settings{
					Args:    []string{cluster.ComponentCommand, "ray-dashboard", "--kubeconfig=" + p.Kubeconfig, "--listen=" + p.Health},
					Files:   map[string]string{"below/settings": "all"},
					Objects: []*unstructured.Unstructured{object},
					Probe:   "http://" + p.Health + "/healthz",
				}, nil
			},
		}}})
	ctx, cancel := pressure.WithTimeout(t.Context(), soon)
	defer cancel()
	before := component(t, c, "other")
	if err := c.Kill("other"); err != nil {
		t.Fatal(err)
	}
	for now := before; now.PID == before.PID || now.PID == 0; now = component(t, c, "other") {
		pause(ctx, t, "it to be started again")
	}
	if err := c.WaitReady(ctx, "other"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(place.Dir, "below", "settings")); err != nil || string(text) != "all" {
		t.Errorf("its file says %q (%v)", text, err)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(place.Certificates(), "tls.crt"),
		filepath.Join(place.Certificates(), "tls.key")); err != nil {
		t.Errorf("its webhooks have no certificate: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", place.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().ConfigMaps("other-system").Get(ctx, "its-own", metav1.GetOptions{}); err != nil {
		t.Errorf("its object: %v", err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:other-system:other" {
		t.Errorf("it acts as %v (%v), want its service account", review.Status.UserInfo, err)
	}
}

func TestPausedComponentStaysDown(t *testing.T) {
	c := start(t, cluster.Config{Name: "pause", Only: []string{cluster.Etcd}})
	if err := c.Pause(cluster.Etcd); err != nil {
		t.Fatal(err)
	}
	if state := component(t, c, cluster.Etcd); state.Phase != cluster.Paused || state.PID != 0 {
		t.Errorf("phase %s, process %d; want it paused without one", state.Phase, state.PID)
	}
	if err := c.Resume(cluster.Etcd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := pressure.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.WaitReady(ctx, cluster.Etcd); err != nil {
		t.Fatal(err)
	}
}

// That each has objects of its own is seen in TestASetIsOneSandboxOfSeveralClusters.
func TestTwoSideBySideAndNothingLeft(t *testing.T) {
	home := t.TempDir()
	registry := cluster.NewRegistry(home)
	first := start(t, cluster.Config{Name: "first", Only: []string{cluster.Etcd}, Registry: registry})
	second := start(t, cluster.Config{Name: "second", Only: []string{cluster.Etcd}, Registry: registry})
	if states, err := registry.List(); err != nil || len(states) != 2 {
		t.Errorf("%d sandboxes listed (%v), want 2", len(states), err)
	}
	stopAndCheck(t, first)
	stopAndCheck(t, second)
	if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestASetIsOneSandboxOfSeveralClusters(t *testing.T) {
	home, copied := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig.yaml")
	registry := cluster.NewRegistry(home)
	only := []string{cluster.Etcd, cluster.APIServer}
	config := cluster.SetConfig{Name: "lab", Kubeconfig: copied, Registry: registry, Progress: t.Output(), Clusters: []cluster.Config{
		{Name: "first", Binary: binary(t), Only: only}, {Name: "second", Binary: binary(t), Only: only},
	}}
	set, err := cluster.StartSet(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := set.Stop(context.Background()); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
	t.Cleanup(stop)
	createConfigMap(t, set.Cluster("second"), "only-in-the-second")
	if set.Cluster("third") != nil {
		t.Error("there is a third cluster")
	}
	for _, file := range []string{set.State().Kubeconfig, copied} {
		for name, want := range map[string]bool{"": false, "first": false, "second": true} {
			rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
			client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
				&clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
			if err != nil {
				t.Fatal(err)
			}
			_, err = kubernetes.NewForConfigOrDie(client).CoreV1().ConfigMaps("default").Get(t.Context(), "only-in-the-second", metav1.GetOptions{})
			if there := err == nil; there != want {
				t.Errorf("%s: the object is in the context %q: %v (%v), want %v", file, name, there, err, want)
			}
		}
	}

	state, err := registry.Find("lab")
	if err != nil || !state.Ready {
		t.Errorf("the set is ready: %v (%v)", state.Ready, err)
	}
	members, err := registry.Members(state)
	if err != nil || len(members) != 2 {
		t.Fatalf("%d clusters (%v), want 2", len(members), err)
	}
	var pids []int
	for _, member := range members {
		for _, component := range member.Measure(t.Context()) {
			pids = append(pids, component.PID)
			if !component.Ready {
				t.Errorf("%s of %s is not ready", component.Name, member.Name)
			}
		}
	}
	if len(pids) != 4 {
		t.Errorf("processes %v, want four", pids)
	}
	if err := registry.StopRunning(t.Context(), "lab-first"); err == nil || !strings.Contains(err.Error(), "down --name lab") {
		t.Errorf("stopping one of them: %v, want an error that says how to stop all", err)
	}
	if _, err := cluster.StartSet(t.Context(), cluster.SetConfig{Name: "lab", Registry: registry, Clusters: config.Clusters}); err == nil ||
		!strings.Contains(err.Error(), `"lab" is already running`) {
		t.Errorf("a second set of the name: %v", err)
	}
	stop()
	awaitGone(t, pids)
	if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if _, err := os.Stat(copied); err == nil {
		t.Error("the copy of the kubeconfig was left behind")
	}
}

// The second cannot start, so the first is stopped.
func TestASetStartsWholeOrNotAtAll(t *testing.T) {
	home, data := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, "second", "etcd", "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "second", "etcd", "member", "snap", "db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	only := []string{cluster.Etcd}
	_, err := cluster.StartSet(t.Context(), cluster.SetConfig{
		Name: "lab", DataDir: data, Registry: cluster.NewRegistry(home), Progress: t.Output(),
		Clusters: []cluster.Config{{Name: "first", Binary: binary(t), Only: only}, {Name: "second", Binary: binary(t), Only: only}},
	})
	if err == nil || !strings.Contains(err.Error(), "the cluster second") || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("error %v, want one that names the cluster and its etcd", err)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestDataIsKeptAndUsedByOneAtATime(t *testing.T) {
	data := t.TempDir()
	registry := cluster.NewRegistry(t.TempDir())
	config := cluster.Config{Name: "kept", DataDir: data, Only: []string{cluster.Etcd, cluster.APIServer}, Registry: registry}
	c := start(t, config)
	createConfigMap(t, c, "kept")
	other := config
	other.Name, other.Binary = "other", binary(t)
	if _, err := cluster.Start(t.Context(), other); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a second sandbox on the same data: %v, want an error that says what to do", err)
	}
	stopAndCheck(t, c)

	c = start(t, config)
	if _, err := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1().ConfigMaps("default").Get(t.Context(), "kept",
		metav1.GetOptions{}); err != nil {
		t.Errorf("what was there before the stop: %v", err)
	}
}

func TestComponentThatCannotStartIsReportedWithItsLog(t *testing.T) {
	data := t.TempDir()
	// etcd refuses a data folder that holds what is not its own.
	if err := os.MkdirAll(filepath.Join(data, "etcd", "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "etcd", "member", "snap"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	registry := cluster.NewRegistry(t.TempDir())
	_, err := cluster.Start(t.Context(), cluster.Config{Name: "broken", Binary: binary(t), DataDir: data,
		Only: []string{cluster.Etcd}, Registry: registry})
	log := filepath.Join(data, "logs", "etcd.log")
	if err == nil || !strings.Contains(err.Error(), "etcd died") || !strings.Contains(err.Error(), log) {
		t.Errorf("error %v, want one that names etcd and its log %s", err, log)
	}
	if _, err := registry.Find("broken"); !errors.As(err, new(*cluster.NotRunningError)) {
		t.Errorf("after the failure: %v, want nothing of that name", err)
	}
}

func TestSignalsEndTheCommand(t *testing.T) {
	// Whether there is a kube-apiserver changes only the order of the end.
	both, alone := []string{cluster.Etcd, cluster.APIServer}, []string{cluster.Etcd}
	cases := map[string]struct {
		only    []string
		at      string // the line at which the signals come
		signals []os.Signal
		orderly bool
	}{
		"SIGTERM":                  {only: both, at: "To reach it", signals: []os.Signal{syscall.SIGTERM}, orderly: true},
		"SIGINT":                   {only: alone, at: "To reach it", signals: []os.Signal{syscall.SIGINT}, orderly: true},
		"SIGINT twice":             {only: alone, at: "To reach it", signals: []os.Signal{syscall.SIGINT, syscall.SIGINT}, orderly: true},
		"SIGINT during the start":  {only: both, at: "etcd serves", signals: []os.Signal{syscall.SIGINT}},
		"SIGTERM during the start": {only: both, at: "folders, ports", signals: []os.Signal{syscall.SIGTERM}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			up := startCommand(t, t.TempDir(), c.only...)
			up.awaitLine(c.at)
			children := up.children()
			for _, signal := range c.signals {
				if err := up.cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
			if err := up.wait(); (err == nil) != c.orderly {
				t.Errorf("ended with %v, want an orderly end: %v\n%s", err, c.orderly, up.output())
			}
			awaitGone(t, children)
			if left, err := os.ReadDir(up.home); err != nil || c.orderly && len(left) != 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
			if locks, _ := filepath.Glob(filepath.Join(up.home, "*", "lock")); len(locks) != 0 {
				t.Errorf("locks left behind: %v", locks)
			}
		})
	}
}

func TestKilledCommandLeavesNoProcessAndCanBeFollowedByAnother(t *testing.T) {
	up := startCommand(t, t.TempDir(), cluster.Etcd, cluster.APIServer)
	up.awaitLine("To reach it")
	children := up.children()
	if len(children) != 2 {
		t.Fatalf("children %v, want two", children)
	}
	if err := up.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.wait()
	var missing *cluster.NotRunningError
	if _, err := up.registry().Find(cluster.DefaultName); !errors.As(err, &missing) || !missing.Cleared {
		t.Errorf("after the kill: %v, want word that what was left has been cleared", err)
	}
	awaitGone(t, children)

	again := startCommand(t, up.home, cluster.Etcd)
	again.awaitLine("To reach it")
	ctx, cancel := pressure.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := again.registry().StopRunning(ctx, cluster.DefaultName); err != nil {
		t.Errorf("down: %v", err)
	}
	if err := again.wait(); err != nil {
		t.Errorf("up ended with %v", err)
	}
}

// binary is the program under test: these tests never compile it.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("MUSTER_SANDBOX_BIN")
	if path == "" {
		t.Skip("set MUSTER_SANDBOX_BIN to a built muster-sandbox to run this test, as `make test-more` does")
	}
	return path
}

func start(t *testing.T, config cluster.Config) *cluster.Cluster {
	t.Helper()
	config.Binary = binary(t)
	if config.Registry == (cluster.Registry{}) {
		config.Registry = cluster.NewRegistry(t.TempDir())
	}
	config.Progress = t.Output()
	c, err := cluster.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopAndCheck(t, c) })
	return c
}

// stopAndCheck may be called again after the end.
func stopAndCheck(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var pids []int
	for _, component := range c.State().Components {
		pids = append(pids, component.PID)
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Errorf("stopping: %v", err)
	}
	awaitGone(t, pids)
}

func component(t *testing.T, c *cluster.Cluster, name string) cluster.ComponentState {
	t.Helper()
	for _, state := range c.State().Components {
		if state.Name == name {
			return state
		}
	}
	t.Fatalf("there is no %s", name)
	return cluster.ComponentState{}
}

func createConfigMap(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1().ConfigMaps("default").Create(t.Context(), object,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	ctx, cancel := pressure.WithTimeout(context.Background(), soon)
	defer cancel()
	for _, pid := range pids {
		for pid != 0 && syscall.Kill(pid, 0) == nil && !isZombie(pid) {
			pause(ctx, t, "the end of a process")
		}
	}
}

// isZombie reports whether a process has ended but its new parent, often an idle one in containers, has not reaped it.
func isZombie(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func pause(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		t.Fatalf("waited in vain for %s", what)
	}
}
