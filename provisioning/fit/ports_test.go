package fit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHostPorts(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       Ports
	}{
		{"container ports are the pod's own", "containers: [{name: a, ports: [{containerPort: 80}]}]", nil},
		{"host ports listen on all IPs by TCP where nothing else is said", "containers: [{name: a, ports: [{containerPort: 80, hostPort: 8080}]}]", Ports{{"0.0.0.0", "TCP", 8080}}},
		{"or where it is", "containers: [{name: a, ports: [{containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1, protocol: UDP}]}]", Ports{{"10.0.0.1", "UDP", 8080}}},
		{"on the host network each port is the host's", "{hostNetwork: true, containers: [{name: a, ports: [{containerPort: 80}]}]}", Ports{{"0.0.0.0", "TCP", 80}}},
		{"sidecars keep theirs, init containers give them back", "{initContainers: [{name: s, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 1}]}, {name: i, ports: [{containerPort: 2, hostPort: 2}]}]}", Ports{{"0.0.0.0", "TCP", 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, newPod(t, "", tc.spec, Objects{}).Ports); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPortsConflict(t *testing.T) {
	all, one, two := Port{allIPs, "TCP", 80}, Port{"10.0.0.1", "TCP", 80}, Port{"10.0.0.2", "TCP", 80}
	udp, other, v6 := Port{allIPs, "UDP", 80}, Port{allIPs, "TCP", 81}, Port{"::", "TCP", 80}
	ports := []Port{all, one, two, udp, other, v6}
	// One line for each port, in the order above: with which it conflicts.
	want := []string{
		"xxx..x",
		"xx....",
		"x.x...",
		"...x..",
		"....x.",
		"x....x",
	}
	for i, p := range ports {
		got := ""
		for _, q := range ports {
			mark := "."
			if port, conflict := (Ports{p}).Conflict(Ports{q}); conflict {
				mark = "x"
				if port != p {
					t.Errorf("%s against %s names %s", p, q, port)
				}
			}
			got += mark
		}
		if got != want[i] {
			t.Errorf("%s: got %s, want %s", p, got, want[i])
		}
	}
}
