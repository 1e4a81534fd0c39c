package cluster

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestConfigIsCompletedOrRefused(t *testing.T) {
	manifests := func() ([]*unstructured.Unstructured, error) { return nil, nil }
	stages := []byte("---")
	cases := map[string]struct {
		config Config
		want   []string // components
		refuse string   // part of the error
	}{
		"all there is": {config: Config{Manifests: manifests, Stages: stages, Clouds: &SimulatedClouds{}, Standby: true, Dashboard: true}, want: slices.DeleteFunc(ComponentNames(), func(name string) bool { return name == Dispatcher })},
		"no clouds unless somebody says what they have": {config: Config{Manifests: manifests, Stages: stages}, want: []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok, Muster}},
		"a second muster that nobody asked for":         {config: Config{Only: []string{Etcd, APIServer, Muster, Standby}, Manifests: manifests}, refuse: "second muster"},
		"no second muster without its rights":           {config: Config{Standby: true}, want: []string{Etcd, APIServer, ControllerManager, Scheduler}},
		"clouds asked for that have nothing":            {config: Config{Only: []string{Etcd, APIServer, Clouds}}, refuse: "what they have"},
		"no muster without its rights":                  {config: Config{Stages: stages}, want: []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok}},
		"no kwok without stages":                        {config: Config{Manifests: manifests}, want: []string{Etcd, APIServer, ControllerManager, Scheduler, Muster}},
		"some, put in start order":                      {config: Config{Only: []string{APIServer, Etcd}}, want: []string{Etcd, APIServer}},
		"an unknown component":                          {config: Config{Only: []string{"kubelet"}}, refuse: "the components are etcd, kube-apiserver"},
		"a component without what it needs":             {config: Config{Only: []string{Etcd, Scheduler}}, refuse: "kube-scheduler cannot run without kube-apiserver"},
		"muster asked for without its rights":           {config: Config{Only: []string{Etcd, APIServer, Muster}}, refuse: "manifests"},
		"kwok asked for without stages":                 {config: Config{Only: []string{Etcd, APIServer, Kwok}}, refuse: "stages"},
		"an operator":                                   {config: Config{Operators: []Operator{{Name: "jobset", Program: "/v1/jobset"}}}, want: []string{Etcd, APIServer, ControllerManager, Scheduler}},
		"an operator twice":                             {config: Config{Operators: []Operator{{Name: "jobset"}, {Name: "jobset"}}}, refuse: "name an operator once"},
		"an operator with a component's name":           {config: Config{Operators: []Operator{{Name: Muster}}}, refuse: "not after a component"},
		"an operator without its needs":                 {config: Config{Only: []string{Etcd, APIServer}, Operators: []Operator{{Name: "jobset"}}}, refuse: "kube-controller-manager"},
		"a name that is a path":                         {config: Config{Name: "../x"}, refuse: "lower-case letters"},
		"a port that does not exist":                    {config: Config{Port: 70000}, refuse: "port 70000"},
		"a binary that is not there":                    {config: Config{Binary: "/nowhere/muster-sandbox"}, refuse: "make build"},
		"a name of one letter, and only etcd runs":      {config: Config{Name: "x", Only: []string{Etcd}}, want: []string{Etcd}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.config.Registry = NewRegistry(t.TempDir())
			got, err := c.config.complete()
			switch {
			case c.refuse == "" && err != nil:
				t.Fatal(err)
			case c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)):
				t.Fatalf("error %v, want one that says %q", err, c.refuse)
			case c.refuse == "" && !slices.Equal(got.Only, c.want):
				t.Errorf("components %v, want %v", got.Only, c.want)
			}
		})
	}
}

func TestPortsAreFreeDifferentAndBelowTheEphemeralRange(t *testing.T) {
	config := Config{Only: ComponentNames(), Operators: []Operator{{Name: "jobset"}}}
	ports, lock, err := assignPorts(config.ports(), 0)
	if err != nil {
		t.Fatal(err)
	}
	releaseAtEnd(t, lock)
	seen := map[int]string{}
	for name, port := range ports {
		if port < lowestPort || port > highestPort {
			t.Errorf("%s has port %d, want %d to %d", name, port, lowestPort, highestPort)
		}
		if other, taken := seen[port]; taken {
			t.Errorf("%s and %s share port %d", name, other, port)
		}
		seen[port] = name
	}
	if len(ports) != len(components)+8 {
		t.Errorf("%d ports, want one for each component, one more for each muster and the dispatcher, one for the webhook, two for the clouds "+
			"and two for the operator: %v", len(ports), ports)
	}
}

func releaseAtEnd(t *testing.T, l lock) {
	t.Cleanup(func() {
		if err := l.release(); err != nil {
			t.Error(err)
		}
	})
}

// None of them listens yet, so all of these ports seem free.
func TestSandboxesThatStartAtOnceHaveDifferentPorts(t *testing.T) {
	names := Config{Only: ComponentNames()}.ports()
	owner := map[int]int{}
	for sandbox := range 60 {
		ports, lock, err := assignPorts(names, 0)
		if err != nil {
			t.Fatal(err)
		}
		releaseAtEnd(t, lock)
		for _, port := range ports {
			if other, taken := owner[port]; taken {
				t.Fatalf("sandboxes %d and %d have port %d", other, sandbox, port)
			}
			owner[port] = sandbox
		}
	}
}

func TestTakenPortSaysWhatToDo(t *testing.T) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, _, err = assignPorts([]string{Etcd, APIServer}, listener.Addr().(*net.TCPAddr).Port)
	if err == nil || !strings.Contains(err.Error(), "--port 0") {
		t.Errorf("error %v, want one that offers --port 0", err)
	}
}

func TestKubeconfigOfOthersIsNotWrittenOver(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: work\ncontexts: [{name: work, context: {cluster: work, user: me}}]\n"
	if err := os.WriteFile(theirs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkKubeconfigCopy(theirs); err == nil {
		t.Error("a kubeconfig of a real cluster would be written over")
	}
	if err := checkKubeconfigCopy(filepath.Join(dir, "new")); err != nil {
		t.Errorf("a new file is refused: %v", err)
	}
	if err := checkKubeconfigCopy(filepath.Join(dir, "none", "new")); err == nil {
		t.Error("a file in a folder that is not there is not refused")
	}
}

func TestOurKubeconfigIsReplacedAndRemoved(t *testing.T) {
	l := testLayout(t)
	authority, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	p := plan{layout: l, ports: map[string]int{APIServer: 6443}}
	if err := writeKubeconfigs(p, authority); err != nil {
		t.Fatal(err)
	}
	path := l.kubeconfig(admin)
	if err := checkKubeconfigCopy(path); err != nil {
		t.Errorf("our own file is refused: %v", err)
	}
	removeKubeconfigCopy(path, "https://127.0.0.1:1")
	if _, err := os.Stat(path); err != nil {
		t.Error("the kubeconfig of another server was removed")
	}
	removeKubeconfigCopy(path, "https://127.0.0.1:6443")
	if _, err := os.Stat(path); err == nil {
		t.Error("our kubeconfig was left behind")
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{"": "(it has written nothing)", "a\n": "a", "a\nb\nc\n": "b\nc", "a\nb\nc": "b\nc"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tail(path, 2); got != want {
			t.Errorf("the last two lines of %q are %q, want %q", text, got, want)
		}
	}
}

// TestPrivilegedPodsAreTaken as by installed clusters: manifests that run there would be refused.
func TestPrivilegedPodsAreTaken(t *testing.T) {
	if !slices.Contains(apiServerArgs(plan{}), "--allow-privileged=true") {
		t.Error("kube-apiserver refuses privileged pods")
	}
}
