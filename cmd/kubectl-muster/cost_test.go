package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// machineOf is a node of a group that requests of default have booked half an hour ago.
func machineOf(group, name string, requests ...string) *corev1.Node {
	out := node(name, group)
	out.Labels[v1alpha1.NodeGroupLabel], out.Annotations = group, map[string]string{}
	for _, r := range requests {
		label := state.BookingLabel(r)
		out.Labels[label], out.Annotations[label] = "default", state.Booking{UID: types.UID(r), Since: noon.Add(-30 * time.Minute)}.Encode()
	}
	return out
}

// paying is a request of that Workload; it launches so many machines of group h100 since
// a quarter of an hour, if any.
func paying(name, workload string, launches int) *provreq.ProvisioningRequest {
	out := &provreq.ProvisioningRequest{ObjectMeta: meta(name)}
	out.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	if workload != "" {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload", Name: workload,
			UID: types.UID(workload), Controller: new(true)}}
	}
	condition := metav1.Condition{Type: provreq.Provisioned, Status: metav1.ConditionTrue}
	if launches > 0 {
		a := transaction.Attempt{Number: 1, Phase: transaction.Launching, Started: noon.Add(-15 * time.Minute),
			Launches: []planner.GroupCount{{Group: "h100", Count: launches}}}
		out.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
		condition = metav1.Condition{Type: provreq.Accepted, Status: metav1.ConditionTrue}
	}
	out.Status.Conditions = []metav1.Condition{condition}
	return out
}

// runs is a pod of a request on a node.
func runs(request, on string) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: meta(request + "-on-" + on), Spec: podTemplate(8).Spec}
	out.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: request}
	out.Spec.NodeName, out.Status.Phase = on, corev1.PodRunning
	return out
}

func TestCosts(t *testing.T) {
	owned := func(name string, w *kueue.Workload) *kueue.Workload {
		w.OwnerReferences = []metav1.OwnerReference{ownedBy(name)}
		return w
	}
	launched := machineOf("h100", "joins")
	launched.Annotations[v1alpha1.LaunchAnnotation] = state.Token("boot", 1)
	left := machineOf("h100", "left")
	left.Annotations[v1alpha1.LeftByAnnotation] = "default/main"
	tests := []struct {
		name    string
		objects []client.Object
		want    []string
	}{
		{
			name:    "no machine costs nothing",
			objects: []client.Object{group("h100", 8, nil)},
			want:    []string{"No NodeGroup has a machine, so there is no cost."},
		},
		{
			name: "a machine with pods is used, one without waits for them",
			objects: []client.Object{group("h100", 8, nil), owned("job", running("w", "team", 2, nil)), paying("train", "w", 0),
				machineOf("h100", "a", "train"), machineOf("h100", "b", "train"), runs("train", "a")},
			want: []string{"Machines: 2, at 20.00 USD per hour, 0.00 of it for idle or wasted machines.",
				"By group\nGROUP CAPACITY USD/H EACH MACHINES JOINING BOOKED USED IDLE WASTED USD/H UNUSED USD/H\nh100 OnDemand 10.00 2 0 1 1 0 0 20.00 0.00",
				"By queue\nNAMESPACE QUEUE MACHINES JOINING BOOKED USED IDLE WASTED USD/H UNUSED USD/H\ndefault main 2 0 1 1 0 0 20.00 0.00",
				"By job\nNAMESPACE NAME USD SO FAR MACHINES JOINING BOOKED USED IDLE WASTED USD/H UNUSED USD/H\ndefault job/job 10.00 2 0 1 1 0 0 20.00 0.00"},
		},
		{
			name:    "a machine that no request has booked belongs to no queue",
			objects: []client.Object{group("h100", 8, nil), machineOf("h100", "a"), node("foreign", "h100")},
			want: []string{"Machines: 1, at 10.00 USD per hour, 10.00 of it for idle or wasted machines.",
				"(none) - 1 0 0 0 1 0 10.00 10.00"},
		},
		{
			name:    "one that a job has left belongs to its queue",
			objects: []client.Object{group("h100", 8, nil), left},
			want:    []string{"default main 1 0 0 0 1 0 10.00 10.00"},
		},
		{
			name: "who shares a machine shares its price",
			objects: []client.Object{group("h100", 8, nil), owned("job", running("w", "team", 1, nil)), paying("train", "w", 0),
				paying("alone", "", 0),
				machineOf("h100", "a", "train", "alone"), runs("train", "a")},
			want: []string{"Machines: 1, at 10.00 USD per hour", "default main 1 0 0 1 0 0 5.00 0.00", "default - 1 0 0 1 0 0 5.00 0.00",
				"default job/job 2.50 1 0 0 1 0 0 5.00 0.00", "default provisioningrequest/alone 2.50 1 0 0 1 0 0 5.00 0.00"},
		},
		{
			name: "a job pays from its launch on, also before there is a node",
			objects: []client.Object{group("h100", 8, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 4 }), paying("boot", "", 2), launched,
				machineOf("h100", "idle")},
			want: []string{"Machines: 4, at 40.00 USD per hour, 20.00 of it for idle or wasted machines.",
				"default provisioningrequest/boot 5.00 2 2 0 0 0 0 20.00 0.00", "(none) - 2 0 0 0 1 1 20.00 20.00"},
		},
		{
			name: "launches in vain are listed by job and cause, also of jobs that have no machine",
			objects: []client.Object{group("h100", 8, nil), owned("job", running("w", "team", 2, nil)), wasting(paying("train", "w", 0)),
				wasting(paying("alone", "", 0))},
			want: []string{"Launches in vain\nNAMESPACE NAME CAUSE MACHINES USD\n" +
				"default job/job Scattered 14 54.68\ndefault provisioningrequest/alone Scattered 14 54.68\n" +
				"default job/job Timeout 2 1.50\ndefault provisioningrequest/alone Timeout 2 1.50"},
		},
		{
			name: "a group without a price is named",
			objects: []client.Object{group("h100", 8, func(g *v1alpha1.NodeGroup) { g.Spec.PricePerHour = nil }), machineOf("h100", "a"),
				machineOf("gone", "b")},
			want: []string{"Machines: 2, at 0.00 USD per hour", "NodeGroups without a price: gone, h100; set their spec.pricePerHour"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := pictureOf(nil, append(tc.objects, flavor("h100"), team("team", nil, "h100=64"))...)
			lacks(t, printed(t, costs{Costs: p.Costs()}), tc.want...)
		})
	}
}

// wasting has machines of the request scattered, and others that did not join.
func wasting(r *provreq.ProvisioningRequest) *provreq.ProvisioningRequest {
	record := purchases.Record{}.Wasted(purchases.Vain{Cause: "Timeout", Machines: 2, MicroUSD: 1_500_000}).
		Wasted(purchases.Vain{Cause: "Scattered", Machines: 14, MicroUSD: 54_680_000})
	if r.Status.ProvisioningClassDetails == nil {
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{}
	}
	r.Status.ProvisioningClassDetails[purchases.Detail] = provreq.Detail(record.Encode())
	return r
}

// spending is a CapacityPolicy of budgets a day; that much was spent of the first.
func spending(usd string, spent string, names ...string) *v1alpha1.CapacityPolicy {
	out := &v1alpha1.CapacityPolicy{ObjectMeta: meta("spending")}
	for _, name := range names {
		out.Spec.Budgets = append(out.Spec.Budgets, v1alpha1.CapacityBudget{Name: name, USD: resource.MustParse(usd), Period: v1alpha1.BudgetDay,
			Reserve: &metav1.Duration{Duration: time.Hour}})
	}
	if spent != "" {
		out.Status.Budgets = []v1alpha1.BudgetStatus{{Name: names[0], Spent: spent, At: metav1.NewMicroTime(noon),
			PeriodStart: metav1.NewTime(noon.Add(-12 * time.Hour)), PeriodEnd: metav1.NewTime(noon.Add(12 * time.Hour))}}
	}
	return out
}

// TestCostsOfANamespace are the part that its jobs pay, and the budgets that have a say there.
func TestCostsOfANamespace(t *testing.T) {
	in := func(namespace string, o client.Object) client.Object {
		o.SetNamespace(namespace)
		return o
	}
	// A machine of the namespace, one that it shares with another, one of another and one of none.
	shared, foreign := machineOf("h100", "b", "mine"), machineOf("h100", "c")
	for _, n := range []*corev1.Node{shared, foreign} {
		label := state.BookingLabel("theirs")
		n.Labels[label], n.Annotations[label] = "other", state.Booking{UID: "theirs", Since: noon.Add(-30 * time.Minute)}.Encode()
	}
	of := func(name, queue string) *v1alpha1.CapacityPolicy {
		out := spending("100", "", name)
		out.Name, out.UID = name, types.UID(name)
		out.Spec.Budgets[0].Queues, out.Spec.Budgets[0].QueuedOnly = []string{queue}, true
		return out
	}
	p := pictureOf(nil, group("h100", 8, nil), group("cpu", 8, nil), paying("mine", "", 0), in("other", paying("theirs", "", 0)),
		machineOf("h100", "a", "mine"), shared, foreign, machineOf("cpu", "d"), of("my", "main"), of("their", "elsewhere"),
		flavor("h100"), team("team", nil, "h100=64"))
	text := printed(t, costs{p.CostsIn("default"), "default"})
	lacks(t, text, "Machines of namespace default: 2, at 15.00 USD per hour, 0.00 of it for idle or wasted machines.",
		"h100 OnDemand 10.00 2 0 2 0 0 0 15.00 0.00", "default - 2 0 2 0 0 0 15.00 0.00", "my my 100.00")
	for _, foreign := range []string{"other", "cpu", "(none)", "their"} {
		if strings.Contains(text, foreign) {
			t.Errorf("it tells of %s:\n%s", foreign, text)
		}
	}
	lacks(t, printed(t, costs{p.CostsIn("empty"), "empty"}), "No job of namespace empty has a machine of a NodeGroup, so there is no cost.")
}

// TestCostsAreOfAllClusters: the manager has no machine, a job of it is named as it is there, and its queue pays for all clusters. The
// budget of its CapacityPolicy counts what was spent of that of the same name in each; clusters for which that is not known are named.
func TestCostsAreOfAllClusters(t *testing.T) {
	copied := running("job-big-1a2b3", "team", 2, nil)
	original := running("job-big-1a2b3", "team", 2, func(w *kueue.Workload) {
		w.UID, w.OwnerReferences, w.Status.ClusterName = "original", []metav1.OwnerReference{ownedBy("big")}, new("west")
	})
	base := []client.Object{flavor("h100"), team("team", nil, "h100=64")}
	in := func(name string, objects ...client.Object) view.Worker {
		return view.Worker{Name: name, Picture: pictureOf(nil, append(objects, base...)...)}
	}
	launched := machineOf("h100", "a", "train")
	launched.Annotations[v1alpha1.LaunchAnnotation] = state.Token("train", 1)
	manager := pictureOf(nil, append(base, original, spending("100", "", "all"))...)
	workers := []view.Worker{
		in("east", group("h100", 8, nil), running("w", "team", 1, nil), paying("local", "w", 0), machineOf("h100", "a", "local"), spending("70", "12.50", "all", "east-only")),
		in("idle"),
		{Name: "north", Unread: "your kubeconfig has no context north"},
		in("west", group("h100", 8, nil), copied, paying("train", copied.Name, 0), launched, runs("train", "a"), machineOf("h100", "b", "train"),
			machineOf("spot", "c"), spending("100", "30", "all")),
	}
	text := printed(t, costs{Costs: manager.Costs(workers...)})
	lacks(t, text, "Machines: 4, at 30.00 USD per hour, 0.00 of it for idle or wasted machines.",
		"By cluster\nCLUSTER MACHINES JOINING BOOKED USED IDLE WASTED USD/H UNUSED USD/H\n"+
			"east 1 0 1 0 0 0 10.00 0.00\nidle 0 0 0 0 0 0 0.00 0.00\nwest 3 0 1 1 1 0 20.00 0.00",
		"By group\nCLUSTER GROUP CAPACITY USD/H EACH MACHINES",
		"west h100 OnDemand 10.00 2 0 1 1 0 0 20.00 0.00\neast h100 OnDemand 10.00 1 0 1 0 0 0 10.00 0.00",
		"default main 3 0 2 1 0 0 30.00 0.00", // of the queue, in both
		"NAMESPACE NAME CLUSTER USD SO FAR MACHINES",
		"default job/big west 10.00 2 0 1 1 0 0 20.00 0.00\ndefault workload/w east 5.00 1 0 1 0 0 0 10.00 0.00",
		"Budgets\nCAPACITYPOLICY BUDGET CLUSTER USD PER SPENT LEFT USD/H NOW RUNS OUT IN VAIN PERIOD ENDS\n"+
			"spending all (this one) 100.00 day 42.50 57.50 10.00 2026-11-20T17:45:00Z 0.00 of 1.00 2026-11-21T00:00:00Z\n"+
			"spending east-only east 70.00 day 0.00 70.00 0.00 - 0.00 of 0.70 2026-11-21T00:00:00Z",
		"Not included\n- in budget all: what is spent in cluster idle, without a CapacityPolicy spending that has a budget all per day\n",
		"- cluster north: your kubeconfig has no context north\n",
		"- NodeGroups without a price: spot in cluster west; set their spec.pricePerHour")
	if strings.Contains(text, "(this one) 0") {
		t.Errorf("the manager has no machine:\n%s", text)
	}
	lacks(t, printed(t, costs{Costs: manager.Costs(view.Worker{Unread: "they may not be listed"})}), "No NodeGroup has a machine",
		"- they may not be listed\n")
}

// TestSharesAddUpToThePrice of the machines.
func TestSharesAddUpToThePrice(t *testing.T) {
	c := pictureOf(nil, group("h100", 8, nil), paying("a", "", 0), paying("b", "", 0), paying("c", "", 0),
		machineOf("h100", "n", "a", "b", "c")).Costs()
	var shares []string
	for _, j := range c.Jobs {
		shares = append(shares, j.USDPerHour)
	}
	if got := strings.Join(shares, " "); got != "3.333334 3.333333 3.333333" || c.Tenants[0].USDPerHour != "10.00" {
		t.Errorf("the shares are %s, and together they are %s", got, c.Tenants[0].USDPerHour)
	}
}

func TestAWorkloadTakesItsOwnPlace(t *testing.T) {
	w := waiting("train", 4, nil)
	if got := pictureOf(nil, w).With([]*kueue.Workload{w.DeepCopy()}).Workloads; len(got) != 1 {
		t.Errorf("there are %d Workloads where one is changed", len(got))
	}
}
