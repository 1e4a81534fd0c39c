package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestASetIsCompletedOrRefused(t *testing.T) {
	one := Config{Name: "a", Only: []string{Etcd}}
	cases := map[string]struct {
		config SetConfig
		refuse string // part of the error
	}{
		"one cluster":                     {config: SetConfig{Name: "lab", Clusters: []Config{one}}},
		"no cluster":                      {config: SetConfig{Name: "lab"}, refuse: "one cluster at least"},
		"a name that is a path":           {config: SetConfig{Name: "../x", Clusters: []Config{one}}, refuse: "lower-case letters"},
		"a name too long with its own":    {config: SetConfig{Name: strings.Repeat("x", 39), Clusters: []Config{one}}, refuse: "up to 40"},
		"a cluster with a registry":       {config: SetConfig{Clusters: []Config{{Name: "a", Registry: NewRegistry("/x")}}}, refuse: "the cluster a"},
		"a cluster that has what is none": {config: SetConfig{Clusters: []Config{{Name: "a", Only: []string{"kubelet"}}}}, refuse: "kubelet"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.config.Registry = NewRegistry(t.TempDir())
			got, err := c.config.complete()
			if (err != nil) != (c.refuse != "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
				t.Fatalf("error %v, want one that says %q", err, c.refuse)
			}
			if err == nil && (got.Clusters[0].Name != "lab-a" || got.Clusters[0].Registry != c.config.Registry) {
				t.Errorf("the cluster is %+v, want lab-a in the registry of the set", got.Clusters[0])
			}
		})
	}
	kept := SetConfig{Name: "lab", DataDir: "/data", Registry: NewRegistry(t.TempDir()), Clusters: []Config{one}}
	if got, err := kept.complete(); err != nil || got.Clusters[0].DataDir != "/data/a" {
		t.Errorf("its data is in %q (%v), want /data/a", got.Clusters[0].DataDir, err)
	}
	if kept.Clusters[0].Name != "a" {
		t.Error("the caller's configuration was changed")
	}
}

func TestAMachineWithTooLittleMemoryIsRefused(t *testing.T) {
	if err := checkMemory(3, 16, 16*componentMemory); err != nil {
		t.Errorf("just enough: %v", err)
	}
	err := checkMemory(3, 16, 2<<30)
	if err == nil || !strings.Contains(err.Error(), "3 clusters need 3.1 GiB of memory and this machine has 2.0 GiB available: start fewer") {
		t.Errorf("error %v, want one that tells both and what to do", err)
	}
}

// The supervisor of a set was that of its clusters.
func TestWhatAKilledSetLeftIsCleared(t *testing.T) {
	r := NewRegistry(t.TempDir())
	dir := t.TempDir()
	orphan := startScript(t, dir, Etcd)
	kubeconfig := filepath.Join(r.path("lab"), "kubeconfig.yaml")
	for _, state := range []State{
		{Name: "lab", Clusters: []string{"lab-a", "lab-b"}, Temporary: []string{kubeconfig}},
		{Name: "lab-a", Set: "lab", Dir: dir, Components: []ComponentState{{Name: Etcd, PID: orphan.Process.Pid}}},
	} {
		if err := os.MkdirAll(r.path(state.Name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := r.writeState(state); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var missing *NotRunningError
	if _, err := r.Find("lab"); !errors.As(err, &missing) || !missing.Cleared {
		t.Errorf("Find = %v, want an error that tells of the clearing", err)
	}
	spared := time.AfterFunc(5*time.Second, func() { _ = orphan.Process.Signal(syscall.SIGTERM) })
	defer spared.Stop()
	if err := orphan.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the orphan ended with %v, want it killed", err)
	}
	for _, path := range []string{kubeconfig, r.statePath("lab"), r.statePath("lab-a")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was left behind", path)
		}
	}
}
