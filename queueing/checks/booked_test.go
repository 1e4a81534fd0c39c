package checks_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/muster-dev/muster/test/queues"
)

// TestEveryCheckPlacesOnItsBooking: for each check and provisioning class, a gang that a Topology places waits for the nodes of its
// booking, and gets no others.
func TestEveryCheckPlacesOnItsBooking(t *testing.T) {
	checks := map[string][]string{"Muster's check": {"check machines"}}
	for _, class := range []string{
		"best-effort-atomic-scale-up.autoscaling.x-k8s.io", "check-capacity.autoscaling.x-k8s.io",
		"atomic-scale-up.muster.dev", "check-capacity.muster.dev",
	} {
		checks["Kueue's check of "+class] = []string{"requestconfig config class=" + class, "check machines config=config"}
	}
	// One node takes all four pods if they require one domain.
	const together = "node new pool=gpu block=y rack=b cpu=4 booked=train"
	const apart = "node new pool=gpu block=y rack=b count=2 cpu=2 booked=train"
	for topology, nodes := range map[string]string{
		"": apart, "unconstrained": apart, "required:block": apart, "required:rack": apart, "required:kubernetes.io/hostname": together,
		"preferred:block": apart, "preferred:rack": apart, "preferred:kubernetes.io/hostname": apart,
		"slice:block:2": apart, "slice:rack:2": apart, "slice:kubernetes.io/hostname:2": apart,
	} {
		for check, commands := range checks {
			for _, placed := range []bool{true, false} {
				if !placed && topology != "" {
					continue // its flavor has to have a Topology
				}
				t.Run(check+"/"+topology, func(t *testing.T) {
					w := queues.New()
					do := func(line string, input ...string) string {
						t.Helper()
						cmd, args, err := datadriven.ParseLine(line)
						if err != nil {
							t.Fatal(err)
						}
						return w.Run(t, &datadriven.TestData{Cmd: cmd, CmdArgs: args, Input: strings.Join(input, "\n")})
					}
					flavor, asks := "flavor gpu", ""
					if placed {
						flavor += " topology=racks"
					}
					if topology != "" {
						asks = " topology=" + topology
					}
					do("topology racks levels=(block,rack,kubernetes.io/hostname)")
					do(flavor)
					for _, command := range commands {
						do(command)
					}
					do("cq team check=machines", "gpu cpu=100")
					do("lq main cq=team")
					do("machines gpu=4")
					do("node free pool=gpu block=x rack=a count=4 cpu=4")
					do("workload train count=4 cpu=1" + asks)
					if told := do("cycle"); !strings.Contains(told, "create request train-machines-1 for 4 pods") {
						t.Fatalf("no machines are asked for:\n%s", told)
					}
					do("request train Provisioned=True")
					if !strings.Contains(check, "check-capacity") { // which launches nothing
						do(`detail train muster.dev/attempt={"number":1,"phase":"Done"}`)
					}
					const admitted = "Admit Admitted"
					if told := do("cycle"); strings.Contains(told, admitted) == placed {
						t.Errorf("before its nodes are there:\n%s", told)
					}
					if !placed {
						return
					}
					do(nodes)
					if told := do("cycle"); !strings.Contains(told, admitted) {
						t.Errorf("once they are:\n%s", told)
					}
					if at := do("places train"); strings.Contains(at, "free") || !strings.Contains(at, "new") {
						t.Errorf("its places are %s", at)
					}
				})
			}
		}
	}
}
