package request

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/cloudprovider"
)

// withALatePod returns three machines: the node of "late" has a pod that is not in the model yet, "empty" has a node without pods, and
// "never-joined" has no node.
func (s *site) withALatePod() (machines []cloudprovider.Machine) {
	s.Helper()
	s.group()
	s.node("late", "")
	s.node("empty", "")
	s.create(podOn("late", "of-others"))
	for _, name := range []string{"late", "empty", "never-joined"} {
		machines = append(machines, cloudprovider.Machine{Name: name, Group: "gpu", ProviderID: "kwok://gpu/" + name})
	}
	return machines
}

// TestMachinesInUse are the machines that stay when a hold ends.
func TestMachinesInUse(t *testing.T) {
	play(t, func(s *site) {
		machines := s.withALatePod()
		used, err := s.controller.Terminator().InUse(t.Context(), machines)
		if err != nil || len(used) != 1 || !used["late"] {
			t.Errorf("in use are %v (%v), want the machine whose node runs a pod that the model does not know yet", used, err)
		}
	})
}

// TestAMachineWhoseNodeHasJustCome stays if that node has a pod, even though the machine had no node when it was chosen.
func TestAMachineWhoseNodeHasJustCome(t *testing.T) {
	play(t, func(s *site) {
		machines := s.withALatePod()
		err := s.controller.Terminator().Terminate(t.Context(), machines)
		if err == nil || !strings.Contains(err.Error(), "node late: pod ns/came") {
			t.Errorf("got %v, want an error that names the pod", err)
		}
		if got := strings.Join(s.taken, " "); got != "empty never-joined" {
			t.Errorf("terminated are %q", got)
		}
	})
}
