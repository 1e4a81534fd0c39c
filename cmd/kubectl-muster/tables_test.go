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
		lacks(t, printed(t, queueAnswer{queueLines: p.Lines()}.of(tc.namespace)), tc.want)
	}
	of := queueAnswer{checked: []view.QueueLine{{Namespace: "a", Name: "job/x"}, {Namespace: "ab", Name: "job/y"}}}.of("a")
	if len(of.checked) != 1 || of.checked[0].Name != "job/x" {
		t.Errorf("of namespace a are %v", of.checked)
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
	text := printed(t, recordedAnswer{lines, "default", missing})
	lacks(t, text, "- list clusterqueues.kueue.x-k8s.io in all namespaces", "Waiting in namespace default, as Muster recorded",
		"main - workload/short 0 60m waits for quota", "main - workload/new 0 60m nothing is recorded yet")
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
	lacks(t, printed(t, queueLines(p.Lines())),
		"QUEUE POS NAMESPACE NAME AGE WHY PRIORITY NEXT TRY MESSAGE\n"+
			"team - default workload/small 60m is next 0 - -\n"+
			"team 1 default job/rush 60m waits for quota 9 - flavor h100: 48 more nvidia.com/gpu needed, 16 of 64 are free",
		"team 2 default workload/paused 60m waits for machines 0 at 2026-11-20T12:03:00Z (in 3m) dry\nteam 3 default workload/late 5m waits "+
			"for quota")
	if got := printed(t, queueLines(p.Lines("aside"))); got != "No workload is pending.\n" {
		t.Errorf("of the empty queue: %s", got)
	}
}

// TestOneStateInAllViews has a job that waits by its reason for quota, since one flavor has too little of it now, while no machine of
// either flavor can ever take its pods of 16 GPUs.
func TestOneStateInAllViews(t *testing.T) {
	const never = "cannot start as specified: no NodeGroup can provide its machines"
	huge := func(name string) *kueue.Workload {
		return waiting(name, 2, func(w *kueue.Workload) { w.Spec.PodSets[0].Template = podTemplate(16) })
	}
	p := pictureOf(nil, flavor("h100"), flavor("a100"), capacity(), group("h100", 8, nil), group("a100", 8, nil),
		team("team", checked, "h100=64", "a100=64"), running("big", "team", 6, nil), huge("huge"), huge("twin"), waiting("next", 1, nil))
	lines := map[string]view.QueueLine{}
	for _, l := range p.Lines() {
		lines[l.Workload] = l
	}
	for _, name := range []string{"huge", "twin"} {
		l, e := lines[name], p.ExplainWorkload(named(t, p, name))
		if why := "flavor h100: no machines can be had: group h100: a pod of podSet main requests 16 nvidia.com/gpu"; !strings.HasPrefix(
			l.Message, why) {
			t.Errorf("%s: the queue says %q, want %q", name, l.Message, why)
		}
		if !l.Never || l.Words != never || e.Summary != never {
			t.Errorf("%s: the queue says %q (never: %t), explain %q", name, l.Words, l.Never, e.Summary)
		}
		for _, c := range e.Capacity {
			if c.Chance != nil {
				t.Errorf("%s: group %s, which is excluded (%s), has a chance of %d %%", name, c.Group, c.Why, *c.Chance)
			}
		}
	}
	if lines["next"].Never {
		t.Errorf("a job that is next never starts: %+v", lines["next"])
	}
	text := printed(t, queueAnswer{queueLines: p.Lines()})
	want := "2 workloads cannot start as specified (kubectl muster explain says why): default workload/huge, default workload/twin\n"
	if !strings.HasPrefix(text, want) {
		t.Errorf("the answer does not begin with %q:\n%s", want, text)
	}
	var coloured strings.Builder
	if err := (queueAnswer{queueLines: p.Lines()}).print(&printer{out: &coloured, colour: true}); err != nil ||
		!strings.HasPrefix(coloured.String(), red+"2 workloads") {
		t.Errorf("it is not red (%v):\n%s", err, coloured.String())
	}
}

// TestChancesAreOfLaunchesThatMayBe: none of more machines than a group may have, and none while it is full.
func TestChancesAreOfLaunchesThatMayBe(t *testing.T) {
	full := group("full", 8, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 6 })
	p := pictureOf(nil, flavor("small"), flavor("full"), flavor("dry"), capacity(), group("small", 2, nil), full, group("dry", 8, dry),
		team("team", checked, "small=64", "full=64", "dry=64"), waiting("train", 4, nil))
	for _, c := range p.ExplainWorkload(named(t, p, "train")).Capacity {
		if has, want := c.Chance != nil, c.Group == "dry"; has != want {
			t.Errorf("group %s (%s) has a chance: %t, want %t", c.Group, c.Why, has, want)
		}
	}
	if l := view.GroupLineOf(group("small", 2, nil), noon); l.ChanceOfEight != nil {
		t.Errorf("a group of at most 2 machines has a chance of 8: %d %%", *l.ChanceOfEight)
	}
}

// TestTablesFitATerminal of 80 columns.
func TestTablesFitATerminal(t *testing.T) {
	p := pictureOf(nil, flavor("h100-spot"), capacity(), group("h100-spot", 16, dry), team("research", checked, "h100-spot=64"),
		localQueue("research", "research"), running("train-llama-70b", "research", 6, priority(1000)),
		waiting("mixtral", 4, func(w *kueue.Workload) {
			w.Spec.QueueName, w.OwnerReferences = "research", []metav1.OwnerReference{ownedBy("train-mixtral-8x7b")}
		}),
		waiting("too-large", 40, func(w *kueue.Workload) { w.Spec.QueueName = "research" }),
		machineOf("h100-spot", "m", "train"), paying("train", "train-llama-70b", 1))
	e := p.ExplainWorkload(named(t, p, "mixtral"))
	// Sentences wrap, tables do not.
	e.Place, e.Causes, e.Unblock, e.Expected = nil, nil, nil, nil
	for name, a := range map[string]answer{
		"queue": queueLines(p.Lines()), "capacity": groupLines{view.GroupLineOf(p.Groups["h100-spot"], noon)}, "explain": explanation{e},
		"cost": costs{p.Costs(), ""},
	} {
		var out strings.Builder
		if err := a.print(newPrinter(&out, asTable)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimRight(line, "\n ")); n > 80 {
				t.Errorf("%s has a line of %d columns: %s", name, n, line)
			}
		}
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
		"":      "1 workload cannot start as specified (kubectl muster explain says why): default workload/lost\nNo workload is pending.\n1 workload has quota and waits for admission checks, such as for machines: default workload/launching\n",
		"team":  "No workload is pending.\n1 workload has quota and waits for admission checks, such as for machines: default workload/launching\n",
		"other": "No workload is pending.\n",
	} {
		var names []string
		if name != "" {
			names = []string{name}
		}
		checked, refused := p.NotInLine(names...)
		a := queueAnswer{p.Lines(names...), checked, refused, nil}
		if got := printed(t, a); got != want {
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
	lacks(t, printed(t, queueLines(p.Lines())),
		"team - default workload/asked 60m has quota here and has been given to cluster west 60s ago 0 - -\n"+
			"team - default workload/new 60m has quota here and waits for a cluster 0 - no cluster has been asked yet: that takes moments, unless "+
			"muster dispatcher does not run\nteam - default workload/refused 60m has quota here and waits for a cluster 0 - all clusters have "+
			"refused the job; east is asked next; cluster east did not run it 90s ago, NoCapacity: only 3 of 4 machines; it may be asked again at "+
			"2026-11-20T12:00:30Z (in 30s)\nteam 1 default workload/behind 60m waits for quota 0 -")
	if lines := p.Lines(); len(lines) != 4 || lines[0].Reason != view.ReasonWaitingForCluster ||
		!slices.Equal(lines[0].Nominated, []string{"west"}) {
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
	lacks(t, printed(t, queueLines(p.Lines())), "team 1 default workload/train 60m waits for machines 0 at 2026-11-20T12:03:00Z (in 3m) dry")
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
	lacks(t, printed(t, groupLines{view.GroupLineOf(sized, noon), view.GroupLineOf(unsound, noon), view.GroupLineOf(block, noon),
		view.GroupLineOf(scattered, noon)}),
		"2026-11-20T12:05:00Z (in 5m), for 4 or more machines within one domain of example.com/rack - -",
		"block Reserved 10.00 0 of 4 0 95% - - - 0 zone-a kwok - - 2026-11-20T13:00:00Z -",
		"h100 OnDemand 10.00 0 of 8 0 95% 95% 5m - 0 zone-a kwok Stockout, 10m ago 2026-11-20T12:05:00Z (in 5m), for 4 or more machines - -",
		"spot Spot 10.00 3 of 4 1 95% - - 1 2 zone-a kwok - - - not Sound: an autoscaler changes it")
	lacks(t, printed(t, groupLines{}), "There is no NodeGroup")
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

// slow is an answer whose forecast takes an hour.
type slow struct {
	queueLines
	out *strings.Builder
	// said is what had been written when the forecast began.
	said *string
	why  *string
}

func (s slow) foretell(ctx context.Context) error {
	*s.said = s.out.String()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Hour):
		return nil
	}
}

func (s slow) without(why string) { *s.why = why }

func (s slow) printForecast(p *printer) { p.list("Expected start", []string{*s.why}) }

// TestTheForecastComesLast, and takes no longer than the caller waits for it.
func TestTheForecastComesLast(t *testing.T) {
	for _, c := range []struct {
		output   string
		patience time.Duration
		// before is what is written before the forecast is made, and after what follows.
		before, after string
	}{
		{asTable, 10 * time.Second, "No workload is pending.\n", "not estimated within 10s"},
		{asTable, 0, "", ""},
		{asJSON, 10 * time.Second, "", "{}"},
		{asTable, 2 * time.Hour, "No workload is pending.\n", "Expected start"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			var said, why string
			command := &cobra.Command{}
			command.SetContext(t.Context())
			command.SetOut(&out)
			o, began := &options{clock: clock.RealClock{}, output: c.output, patience: c.patience}, time.Now()
			err := o.answer(command, func(context.Context) (answer, error) { return slow{queueLines{}, &out, &said, &why}, nil })
			if want := min(c.patience, time.Hour); err != nil || time.Since(began) != want {
				t.Errorf("%v: it took %s (%v)", c, time.Since(began), err)
			}
			if said != c.before || !strings.Contains(out.String(), c.after) || (why != "") != (c.patience == 10*time.Second) {
				t.Errorf("%v: before the forecast: %q, in the end: %q, without one because %q", c, said, out.String(), why)
			}
		})
	}
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

// TestAJobThatPausesIsCalledSoEverywhere: one whose attempt has failed waits for a time, and for nothing else.
func TestAJobThatPausesIsCalledSoEverywhere(t *testing.T) {
	w := waiting("typo", 1, func(w *kueue.Workload) {
		condition(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadQuotaReservedReasonPendingEvaluation, "evicted")
		w.Status.RequeueState = &kueue.RequeueState{RequeueAt: new(at(-3))}
	})
	objects := []client.Object{flavor("h100"), team("team", nil, "h100=8"), w}
	const want = "pauses after an attempt that failed: the next is at 2026-11-20T12:03:00Z (in 3m)"
	p := pictureOf(nil, objects...)
	missing := []view.Right{{Verb: "list", Resource: "nodes"}}
	less := pictureOf(missing, objects...)
	recorded, _ := less.Recorded()
	for name, a := range map[string]answer{
		"jobs": jobList(p.Jobs("")), "queue": queueLines(p.Lines()), "explain": explanation{p.ExplainWorkload(w)},
		"queue, with fewer rights": recordedAnswer{recorded, "default", missing}, "jobs, with fewer rights": jobList(less.Jobs("")),
		"explain, with fewer rights": explanation{less.ExplainWorkload(w)},
	} {
		if text := printed(t, a); !strings.Contains(text, want) {
			t.Errorf("%s does not say that it pauses:\n%s", name, text)
		}
	}
}
