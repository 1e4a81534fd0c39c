package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// TestThePlainFirstJobOnEveryOffering of `muster-sandbox up --clouds`, where GKE's metadata does not show the taint of the nodes: the
// first job on it buys its four machines once. Then that job, and the same job on each other offering, report the missing toleration and
// buy nothing.
func TestThePlainFirstJobOnEveryOffering(t *testing.T) {
	t.Parallel()
	world, err := os.ReadFile("../../kwok/sandbox/clouds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const told = `      kube-env: "NODE_TAINTS: nvidia.com/gpu=present:NoSchedule\n" # as GKE writes it` + "\n"
	if !bytes.Contains(world, []byte(told)) {
		t.Fatal("the clouds of the sandbox do not tell the taint of Google's nodes: this test would not be of them")
	}
	c := whole()
	sandbox.AddCloudsOf(&c, bytes.Replace(world, []byte(told), nil, 1))
	s := &site{testbed.NewSite(t, started(t, "first-job", c))}

	const offerings = 6
	var list v1alpha1.NodeGroupList
	s.Eventually("a NodeGroup for each offering", func() bool {
		return s.Kube.List(t.Context(), &list, client.HasLabels{v1alpha1.DiscoveredLabel}) == nil && len(list.Items) == offerings
	}, func() string { return fmt.Sprintf("%d are there, want %d", len(list.Items), offerings) })
	slices.SortFunc(list.Items, func(a, b v1alpha1.NodeGroup) int { return strings.Compare(a.Name, b.Name) })

	learned, bought := false, 0
	for i := range list.Items {
		g := &list.Items[i]
		t.Run(g.Name, func(t *testing.T) {
			s := s.in(t)
			queue := s.own(fmt.Sprint(i))
			s.feeds(queue, "32", g)
			j := s.queued(queue, fmt.Sprint("first-", i), 4, func(j *batchv1.Job) { j.Spec.Template.Spec.Tolerations = nil })
			if unknown := g.Spec.Provider == v1alpha1.ProviderGCP && !learned; unknown {
				bought, learned = bought+4, true
			}
			says := ""
			s.Within(testbed.Patience+3*time.Minute, "the job says what it has to tolerate", func() bool {
				says = s.waitsFor(j)
				return strings.Contains(says, "does not tolerate") && strings.Contains(says, "nvidia.com/gpu")
			}, func() string { return "it says: " + says })
			t.Log("it says:", says)
			s.Eventually("no machine is left of it", func() bool {
				return !slices.ContainsFunc(s.wholeBill(), func(l cloudsim.Line) bool { return l.Open })
			}, func() string { return fmt.Sprintf("the bill: %+v", s.wholeBill()) })
			if got := len(s.wholeBill()); got != bought {
				t.Errorf("%d machines were bought so far, want %d", got, bought)
			}
		})
	}
	// All jobs still wait: none has bought again meanwhile.
	for i := range list.Items {
		g := &list.Items[i]
		if s.Get(g); len(g.Status.Attempts) > 1 {
			t.Errorf("group %s has the attempts %+v, want one at most", g.Name, g.Status.Attempts)
		}
	}
	if got := len(s.wholeBill()); got != bought {
		t.Errorf("%d machines were bought in the end, want %d", got, bought)
	}
}

// waitsFor is what the conditions and checks of the job's Workload say.
func (s *site) waitsFor(j *batchv1.Job) string {
	w := s.Workload(j)
	if w == nil {
		return ""
	}
	var says []string
	for _, c := range w.Status.Conditions {
		says = append(says, c.Message)
	}
	for _, c := range w.Status.AdmissionChecks {
		says = append(says, c.Message)
	}
	return strings.Join(says, "; ")
}

// wholeBill is that of both clouds.
func (s *site) wholeBill() (all []cloudsim.Line) {
	s.Helper()
	answer, err := http.Get(s.CloudsURL() + "/bill")
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		s.Fatal(err)
	}
	return all
}
