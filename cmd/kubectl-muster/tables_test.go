package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestTheQueueOfANamespace has the positions among all; a caller that may not read the queues gets what Muster recorded there.
func TestTheQueueOfANamespace(t *testing.T) {
	in := func(namespace string, w *kueue.Workload) *kueue.Workload {
		w.Namespace = namespace
		return w
	}
	base := []client.Object{flavor("h100"), team("team", nil, "h100=8"), waiting("first", 2, nil), waiting("second", 2, nil)}
	p := pictureOf(nil, base...)
	for _, tc := range []struct {
		namespace, want string
	}{{"", "team 1 default workload/first"}, {"default", "team 2 default workload/second"}, {"other", "No workload is pending."}} {
		lacks(t, told(t, queueAnswer{queueLines: p.Lines()}.of(tc.namespace)), tc.want)
	}
	if left := inNamespaceOnly([]string{"a job/x", "ab job/y"}, "a"); len(left) != 1 || left[0] != "a job/x" {
		t.Errorf("of namespace a are %v", left)
	}

	recorded := waiting("short", 2, func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse,
			Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota, Message: "16 more needed"}}
	})
	missing := []view.Right{{Verb: "list", Resource: "clusterqueues.kueue.x-k8s.io"}}
	p = pictureOf(missing, in("default", recorded), in("default", waiting("new", 1, nil)), in("default", running("runs", "team", 1, nil)))
	lines, ok := p.Recorded()
	if !ok {
		t.Fatal("Workloads were read")
	}
	text := told(t, recordedAnswer{lines, "default", missing})
	lacks(t, text, "- list clusterqueues.kueue.x-k8s.io in all namespaces", "Waiting in namespace default, as Muster recorded",
		"main workload/short 0 60m waits for quota", "main workload/new 0 60m nothing is recorded yet")
	if strings.Contains(text, "runs") {
		t.Errorf("one that runs is listed:\n%s", text)
	}
}

func TestQueuesAreListedInTheirOrder(t *testing.T) {
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=64"), running("big", "team", 6, nil),
		waiting("late", 8, func(w *kueue.Workload) { w.CreationTimestamp = at(5) }),
		waiting("urgent", 8, func(w *kueue.Workload) {
			w.Spec.Priority = new(int32(9))
			w.OwnerReferences = []metav1.OwnerReference{ownedBy("rush")}
		}),
		waiting("paused", 4, func(w *kueue.Workload) {
			condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, workload.ReasonWaitingForCapacity, "dry")
			w.Status.RequeueState = &kueue.RequeueState{RequeueAt: new(at(-3))}
		}),
		waiting("small", 1, nil), team("aside", nil, "h100=8"))
	lacks(t, told(t, queueLines(p.Lines())),
		"CLUSTERQUEUE POSITION NAMESPACE NAME PRIORITY AGE WHY NEXT TRY MESSAGE\n"+
			"team - default workload/small 0 60m is next - -\n"+
			"team 1 default job/rush 9 60m waits for quota - couldn't assign flavors to pod set main: insufficient unused quota for "+
			"nvidia.com/gpu in flavor h100, 48 more needed: 16 of 64 are free",
		"team 2 default workload/paused 0 60m waits for machines at 2026-11-20T12:03:00Z (in 3m) dry\nteam 3 default workload/late 0 5m waits "+
			"for quota")
	if got := told(t, queueLines(p.Lines("aside"))); got != "No workload is pending.\n" {
		t.Errorf("of the empty queue: %s", got)
	}
}

// TestJobsBesideTheQueuesAreNamed: those that have quota and no machines yet are pending for their users.
func TestJobsBesideTheQueuesAreNamed(t *testing.T) {
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=64"), team("other", nil, "h100=64"),
		reserved("launching", "team", 2, func(w *kueue.Workload) {
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStatePending}}
		}),
		running("runs", "team", 2, nil), waiting("lost", 1, func(w *kueue.Workload) { w.Spec.QueueName = "nowhere" }))
	for name, want := range map[string]string{
		"": "No workload is pending.\n1 workload has quota and waits for admission checks, such as for machines: default workload/launching\n" +
			"1 workload is in no queue: kubectl muster explain says why: default workload/lost\n",
		"team":  "No workload is pending.\n1 workload has quota and waits for admission checks, such as for machines: default workload/launching\n",
		"other": "No workload is pending.\n",
	} {
		var names []string
		if name != "" {
			names = []string{name}
		}
		a := queueAnswer{p.Lines(names...), besideQueues(p.NotInLine(names...))}
		if got := told(t, a); got != want {
			t.Errorf("of queue %q: %s, want %s", name, got, want)
		}
		if text, err := json.Marshal(a); err != nil || string(text) != "[]" {
			t.Errorf("as JSON: %s (%v)", text, err)
		}
	}
}

// TestJobsThatWaitForAClusterAreListed: they have the quota of the manager, which the others wait for.
func TestJobsThatWaitForAClusterAreListed(t *testing.T) {
	multikueue := func(state kueue.CheckState, record string, asked ...string) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "elsewhere", State: state, Message: "as its controller says"}}
			w.Status.NominatedClusterNames, w.Annotations = asked, map[string]string{dispatch.Annotation: record}
		}
	}
	p := pictureOf(nil, flavor("h100"), multiKueue(), team("team", delegated, "h100=64"),
		reserved("asked", "team", 2, multikueue(kueue.CheckStatePending, `{"in":["west"],"at":"2026-11-20T11:59:00Z"}`, "west")),
		reserved("refused", "team", 2, multikueue(kueue.CheckStatePending,
			`{"waits":"all clusters have refused the job; east is asked next","refusals":[`+
				`{"cluster":"east","reason":"NoCapacity","message":"only 3 of 4 machines","at":"2026-11-20T11:58:30Z","times":2}]}`)),
		reserved("new", "team", 1, multikueue(kueue.CheckStatePending, "")),
		reserved("rejected", "team", 1, multikueue(kueue.CheckStateRejected, "")),
		running("runs", "team", 2, func(w *kueue.Workload) { w.Status.ClusterName = new("west") }),
		waiting("behind", 4, nil))
	lacks(t, told(t, queueLines(p.Lines())),
		"team - default workload/asked 0 60m has quota here and has been given to cluster west 60s ago - -\n"+
			"team - default workload/new 0 60m has quota here and waits for a cluster - no cluster has been asked yet: that takes moments, unless "+
			"muster dispatcher does not run\nteam - default workload/refused 0 60m has quota here and waits for a cluster - all clusters have "+
			"refused the job; east is asked next; cluster east did not run it 90s ago, NoCapacity: only 3 of 4 machines; it may be asked again at "+
			"2026-11-20T12:00:30Z (in 30s)\nteam 1 default workload/behind 0 60m waits for quota -")
	if lines := p.Lines(); len(lines) != 4 || lines[0].Reason != view.ReasonWaitingForCluster ||
		!slices.Equal(lines[0].Asked, []string{"west"}) {
		t.Errorf("the lines are %+v", lines)
	}
	lacks(t, toldOf(t, p.ExplainWorkload(named(t, p, "rejected"))), "AdmissionCheck elsewhere is Rejected: as its controller says")
}

func TestWithoutNodesQueuesAreListedAsMusterWrote(t *testing.T) {
	p := pictureOf([]view.Right{{Verb: "list", Resource: "nodes"}}, flavor("h100"), team("team", nil, "h100=64"),
		waiting("train", 4, func(w *kueue.Workload) {
			condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, workload.ReasonWaitingForCapacity, "dry")
			w.Status.RequeueState = &kueue.RequeueState{RequeueAt: new(at(-3))}
		}))
	lacks(t, told(t, queueLines(p.Lines())), "team 1 default workload/train 0 60m waits for machines at 2026-11-20T12:03:00Z (in 3m) dry")
	lacks(t, toldOf(t, p.ExplainWorkload(named(t, p, "train"))), "1st of 1 in the queue, waiting for 60m")
}

func TestGroupsAreListedWithTheirTroubles(t *testing.T) {
	unsound := group("spot", 4, func(g *v1alpha1.NodeGroup) {
		g.Spec.CapacityType = v1alpha1.Spot
		g.Status.Machines, g.Status.ReadyNodes, g.Status.BookedNodes = 3, 2, 1
		g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSound, Status: metav1.ConditionFalse,
			Message: "an autoscaler changes it"}}
	})
	sized := group("h100", 8, func(g *v1alpha1.NodeGroup) {
		dry(g)
		g.Status.Backoffs[0].AtLeast = 4
	})
	scattered := group("scattered", 8, func(g *v1alpha1.NodeGroup) {
		dry(g)
		g.Status.Backoffs[0].AtLeast, g.Status.Backoffs[0].Level = 4, rack
	})
	block := group("block", 4, func(g *v1alpha1.NodeGroup) {
		g.Spec.CapacityType, g.Spec.EndsAt = v1alpha1.Reserved, &metav1.Time{Time: noon.Add(time.Hour)}
	})
	lacks(t, told(t, groupLines{view.GroupLineOf(sized, noon), view.GroupLineOf(unsound, noon), view.GroupLineOf(block, noon),
		view.GroupLineOf(scattered, noon)}),
		"2026-11-20T12:05:00Z (in 5m), for 4 or more machines within one domain of example.com/rack - kwok -",
		"block Reserved until 2026-11-20T13:00:00Z zone-a",
		"h100 OnDemand zone-a 10.00 0 of 8 0 0 95% 95% Stockout, 10m ago 2026-11-20T12:05:00Z (in 5m), for 4 or more machines - kwok -",
		"spot Spot zone-a 10.00 3 of 4 2 1 95% 95% - - 1 kwok not Sound: an autoscaler changes it")
	lacks(t, told(t, groupLines{}), "There is no NodeGroup")
}

// TestWatchingAsksAgain until the caller has seen enough.
func TestWatchingAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, enough := context.WithCancel(t.Context())
		defer enough()
		var out strings.Builder
		command := &cobra.Command{}
		command.SetContext(ctx)
		command.SetOut(&out)
		o, began, asked := &options{clock: clock.RealClock{}, output: asJSON, watch: true}, time.Now(), 0
		err := o.answer(command, func(context.Context) (answer, error) {
			if asked++; asked > 3 {
				enough()
			}
			return queueLines{{Name: "job/train", Position: asked}}, nil
		})
		if err != nil || asked != 4 || time.Since(began) != 3*redraw || strings.Count(out.String(), `"name": "job/train"`) != 3 {
			t.Errorf("asked %d times in %s: %v\n%s", asked, time.Since(began), err, out.String())
		}
	})
}

func TestAnswersAreWrittenAsYAML(t *testing.T) {
	var out strings.Builder
	if err := encode(&out, asYAML, groupLines{{Name: "h100", Max: 8}}); err != nil {
		t.Fatal(err)
	}
	lacks(t, out.String(), "- booked: 0\n", "  max: 8\n", "  name: h100\n")
}

func TestLongAnswersAreCutUnlessAllIsAskedFor(t *testing.T) {
	e := &view.Explanation{Kind: "Job", Namespace: "default", Name: "train", Summary: "waits",
		Causes: []string{strings.Repeat("x", 2*longest)}}
	for i := range 30 {
		e.Holders = append(e.Holders, view.HolderLine{Workload: fmt.Sprintf("default/w%02d", i)})
		e.Unblock = append(e.Unblock, fmt.Sprintf("way %02d", i))
	}
	var short strings.Builder
	if err := (explanation{e}).print(newPrinter(&short, asTable)); err != nil {
		t.Fatal(err)
	}
	lacks(t, short.String(), strings.Repeat("x", longest-3)+"…\n", "default/w09", "way 09\n  and 20 more (-o wide shows all)\n")
	if text := short.String(); strings.Contains(text, "w10") || strings.Contains(text, "way 10") || strings.Contains(text, bold) {
		t.Errorf("it is not cut, or coloured where nobody looks at it:\n%s", text)
	}
	lacks(t, toldOf(t, e), strings.Repeat("x", 2*longest), "default/w29", "way 29")
}
