package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/standing"
)

// TestTheSessionOfANamespaceUser, with rights in one namespace: position, expected start, price and the simulation of a job are those that
// Muster has published on the LocalQueue, and the missing rights take one line.
func TestTheSessionOfANamespaceUser(t *testing.T) {
	gpus := func(n string) corev1.ResourceList { return corev1.ResourceList{gpu: resource.MustParse(n)} }
	lq := localQueue("main", "team")
	lq.Annotations = map[string]string{standing.Annotation: (&standing.Standing{Pending: 7,
		Places: map[string]standing.Place{"train": {Position: 3, Start: noon.Add(time.Hour), Early: noon.Add(time.Hour),
			Late: noon.Add(2 * time.Hour)}},
		Flavors: []standing.Flavor{{Name: "h100", Nominal: gpus("64"), Free: gpus("8"), USDPerHour: "98.32",
			Devices: map[corev1.ResourceName]int64{gpu: 8}}},
	}).Encode()}
	w := waiting("train", 4, func(w *kueue.Workload) {
		condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadQuotaReservedReasonWaitingForQuota, "24 more needed")
	})
	missing := []view.Right{{Verb: "list", Resource: "clusterqueues.kueue.x-k8s.io"}, {Verb: "list", Resource: "nodes"}}
	p := pictureOf(missing, lq, w)
	session := func(a answer) string {
		var out strings.Builder
		if err := a.print(newPrinter(&out, asTable)); err != nil {
			t.Fatal(err)
		}
		return squeezed(out.String())
	}

	explained := session(explanation{p.ExplainWorkload(w)})
	lacks(t, explained, "waits for quota, as recorded 30m ago.", "ClusterQueue team, LocalQueue main, priority 0: 3rd of 7 in the queue",
		"flavor h100: 4 machines at 98.32 USD per hour each",
		"at 2026-11-20T13:00:00Z (in 60m); most likely from 2026-11-20T13:00:00Z to 2026-11-20T14:00:00Z")
	lines, ok := p.Recorded()
	if !ok {
		t.Fatal("Workloads were read")
	}
	queued := session(recordedAnswer{lines, "default", missing})
	lacks(t, queued, "main 3 workload/train 0 60m waits for quota")

	jobs, ok := p.SimulatePublished([]view.Submission{{Kind: "Job", Name: "big", Workload: waiting("big", 2, nil)},
		{Kind: "Job", Name: "small", Workload: waiting("small", 1, nil)}})
	if !ok {
		t.Fatal("what is published does not suffice")
	}
	simulation := session(&simulated{Jobs: jobs})
	lacks(t, simulation, "Job default/big would wait for quota of ClusterQueue team.", "flavor h100: 2 machines at 98.32 USD per hour each",
		"flavor h100: 16 nvidia.com/gpu requested, 8 of 64 are free", "jobs that wait there: 7",
		"Job default/small would have quota at once, on flavor h100 of ClusterQueue team.")
	for name, text := range map[string]string{"explain": explained, "queue": queued, "simulate": simulation} {
		if n := strings.Count(text, "rights"); n > 1 || name == "simulate" && n > 0 {
			t.Errorf("%s has a wall of rights:\n%s", name, text)
		}
	}
	if _, ok := pictureOf(missing, w).SimulatePublished([]view.Submission{{Workload: w}}); ok {
		t.Error("nothing is published, and yet there is a simulation")
	}
}
