package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

func TestAnInstanceServesWhatIsMeantForIt(t *testing.T) {
	for _, tc := range []struct {
		class, asksFor, instance string
		want                     bool
	}{
		{transaction.ClassAtomicScaleUp, "", "", true},
		{transaction.ClassAtomicScaleUp, "", "blue", true},
		{transaction.ClassAtomicScaleUp, "blue", "blue", true},
		{transaction.ClassAtomicScaleUp, "green", "blue", false},
		{transaction.ClassAtomicScaleUp, "blue", "", false},
		{transaction.ClassCheckCapacity, "", "blue", false},
		{transaction.ClassCheckCapacity, "blue", "blue", false},
	} {
		r := &provreq.ProvisioningRequest{}
		r.Spec.ProvisioningClassName = tc.class
		r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamProcessor: provreq.Parameter(tc.asksFor)}
		if got := (transaction.Instance{Classes: transaction.Classes{transaction.ClassAtomicScaleUp},
			Name: tc.instance}).Serves(r); got != tc.want {
			t.Errorf("instance %q serves a request of class %s for %q: %t", tc.instance, tc.class, tc.asksFor, got)
		}
	}
}

// What is on its way out, or handed to another instance, is as good as gone: nothing
// of it is held on to.
func TestRequestsThatLeave(t *testing.T) {
	for name, leave := range map[string]func(*provreq.ProvisioningRequest){
		"being deleted": func(r *provreq.ProvisioningRequest) { r.DeletionTimestamp = new(metav1.NewTime(noon)) },
		"handed over": func(r *provreq.ProvisioningRequest) {
			r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamProcessor: "another"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, v := newModel()
			m.Set(v.node(booked))
			m.Set(v.request("gang", provreq.Provisioned))
			if n := only(t, m); len(n.Bookings) != 1 {
				t.Fatalf("%d bookings, want 1", len(n.Bookings))
			}
			r := v.request("gang", provreq.Provisioned)
			leave(r)
			m.Set(r)
			if n := only(t, m); len(n.Bookings) != 0 || len(m.Due(nil)) != 0 {
				t.Errorf("%d bookings are left", len(n.Bookings))
			}
		})
	}
}

// TestARequestThatIsBeingDeletedHoldsWhatItHas: a finalizer may keep it for long. Machines of a launch under way count for it until
// they are terminated, and what has not been launched is given up at once.
func TestARequestThatIsBeingDeletedHoldsWhatItHas(t *testing.T) {
	attempt := func(phase transaction.AttemptPhase, launches, shares int) transaction.Attempt {
		return attempt(phase, 0, launches, shares)
	}
	for _, tc := range []struct {
		name     string
		attempt  transaction.Attempt
		status   []string
		restart  bool
		promised int // machines of the group
		due      bool
	}{
		{"a launch", attempt(transaction.Launching, 2, 0), nil, false, 2, true},
		{"a launch of before this process began", attempt(transaction.Launching, 2, 0), nil, true, 2, true},
		{"a launch that is rolled back", attempt(transaction.RollingBack, 2, 0), nil, false, 0, true},
		{"a launch that makes up for lost machines", attempt(transaction.Launching, 2, 0), []string{provreq.Provisioned}, false, 2, true},
		{"an attempt that waits for machines of others", attempt(transaction.Launching, 0, 2), nil, false, 0, false},
		{"an attempt that is over", attempt(transaction.Done, 2, 0), nil, false, 0, false},
		{"a launch of one that has failed", attempt(transaction.Launching, 2, 0), []string{provreq.Failed}, false, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, v := newModel()
			g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
			g.Spec.MaxNodes = 4
			m.Set(g)
			r := v.request("gang", tc.status...)
			r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(tc.attempt.Encode())}
			if !tc.restart {
				m.Set(r)
				m.Due(nil)
			}
			r = r.DeepCopy()
			r.ResourceVersion, r.DeletionTimestamp = v.next(), new(metav1.NewTime(noon))
			m.Set(r)
			if got := m.Snapshot(noon).FindGroup("gpu").Machines; got != tc.promised {
				t.Errorf("the group counts %d machines, want %d", got, tc.promised)
			}
			due := m.Due(nil)
			if got := len(due) == 1 && due[0].Leaving; got != tc.due {
				t.Errorf("it is due: %t, want %t", got, tc.due)
			}
			m.Delete(r)
			if got := m.Snapshot(noon).FindGroup("gpu").Machines; got != 0 {
				t.Errorf("the group counts %d machines of a request that is gone", got)
			}
		})
	}
}

func TestParametersComeBeforeThePolicy(t *testing.T) {
	m, v := newModel()
	m.Set(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: v.next()}, Spec: v1alpha1.CapacityPolicySpec{
		BookingTimeout: &metav1.Duration{Duration: time.Minute}, OnMachineLoss: v1alpha1.LossRevoke,
	}})
	for _, tc := range []struct {
		name       string
		parameters map[string]provreq.Parameter
		timeout    time.Duration
		revoke     bool
		invalid    string
	}{
		{"nothing said", nil, 10 * time.Minute, false, ""},
		{"the policy", map[string]provreq.Parameter{transaction.ParamPolicy: "p"}, time.Minute, true, ""},
		{"a parameter", map[string]provreq.Parameter{transaction.ParamPolicy: "p", v1alpha1.ParamBookingTimeout: "20s"}, 20 * time.Second, true, ""},
		{"a parameter alone", map[string]provreq.Parameter{v1alpha1.ParamOnMachineLoss: "Revoke"}, 10 * time.Minute, true, ""},
		{"a parameter beside a policy that is gone", map[string]provreq.Parameter{transaction.ParamPolicy: "gone", v1alpha1.ParamOnMachineLoss: "Revoke"}, 10 * time.Minute, true, ""},
		{"no duration", map[string]provreq.Parameter{v1alpha1.ParamBookingTimeout: "600"}, 10 * time.Minute, false, `parameter bookingTimeout is "600": give a duration`},
		{"no time at all", map[string]provreq.Parameter{v1alpha1.ParamBookingTimeout: "-1m"}, 10 * time.Minute, false, "greater than 0"},
		{"no such capacity type", map[string]provreq.Parameter{v1alpha1.ParamCapacityTypes: "spot"}, 10 * time.Minute, false, `parameter capacityTypes is "spot": give some of Reserved, Spot and OnDemand, each once, with commas between`},
		{"no such reaction", map[string]provreq.Parameter{v1alpha1.ParamOnMachineLoss: "Panic"}, 10 * time.Minute, false, `parameter onMachineLoss is "Panic": give Event or Revoke`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := v.request("gang")
			r.Spec.Parameters = tc.parameters
			m.Set(r)
			e, _ := m.Request("gang")
			if e.Policy.BookingTimeout != tc.timeout || e.Policy.RevokeOnLoss != tc.revoke {
				t.Errorf("booked for %s, revoked %t; want %s and %t", e.Policy.BookingTimeout, e.Policy.RevokeOnLoss, tc.timeout, tc.revoke)
			}
			if tc.invalid == "" && e.Invalid != "" || !strings.Contains(e.Invalid, tc.invalid) {
				t.Errorf("invalid: %q, want %q", e.Invalid, tc.invalid)
			}
		})
	}
}

// TestRequestsOnlyTightenTheirPolicy: what loosens it waits for an admin and has no effect,
// also on a request that has its capacity already.
func TestRequestsOnlyTightenTheirPolicy(t *testing.T) {
	research := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "research"}}
	for name, tc := range map[string]struct {
		parameters map[string]provreq.Parameter
		lacking    string
		timeout    time.Duration
		micro      int64
	}{
		"nothing said has the default":         {nil, "", 5 * time.Minute, 20e6},
		"longer than the default":              {map[string]provreq.Parameter{v1alpha1.ParamBookingTimeout: "87600h"}, `parameter bookingTimeout is "87600h": CapacityPolicy default lets it be 5m0s at most`, 5 * time.Minute, 20e6},
		"as long as another policy lets":       {map[string]provreq.Parameter{transaction.ParamPolicy: "patient", v1alpha1.ParamBookingTimeout: "2h"}, "", 2 * time.Hour, -1},
		"longer than that":                     {map[string]provreq.Parameter{transaction.ParamPolicy: "patient", v1alpha1.ParamBookingTimeout: "3h"}, "CapacityPolicy patient lets it be 2h0m0s at most", time.Hour, -1},
		"a policy of other namespaces":         {map[string]provreq.Parameter{transaction.ParamPolicy: "theirs"}, "CapacityPolicy theirs is not for namespace ns (spec.namespaceSelector)", 10 * time.Minute, -1},
		"a capacity type though it would wait": {map[string]provreq.Parameter{transaction.ParamPolicy: "patient", v1alpha1.ParamCapacityTypes: "OnDemand"}, "", time.Hour, -1},
	} {
		t.Run(name, func(t *testing.T) {
			m, v := newModel()
			policy := func(name string, spec v1alpha1.CapacityPolicySpec) {
				m.Set(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: v.next()}, Spec: spec})
			}
			policy(v1alpha1.DefaultPolicy, v1alpha1.CapacityPolicySpec{
				BookingTimeout: &metav1.Duration{Duration: 5 * time.Minute}, MaxPricePerHour: new(resource.MustParse("20")),
			})
			policy("patient", v1alpha1.CapacityPolicySpec{
				BookingTimeout: &metav1.Duration{Duration: time.Hour},
				FallbackAfter:  map[v1alpha1.CapacityType]metav1.Duration{v1alpha1.OnDemand: {Duration: time.Hour}},
				Overrides:      &v1alpha1.CapacityOverrides{BookingTimeout: &metav1.Duration{Duration: 2 * time.Hour}},
			})
			policy("theirs", v1alpha1.CapacityPolicySpec{NamespaceSelector: research, BookingTimeout: &metav1.Duration{Duration: 24 * time.Hour}})
			r := v.request("gang", provreq.Provisioned)
			r.Spec.Parameters = tc.parameters
			m.Set(r)
			e, _ := m.Request("gang")
			if e.Policy.BookingTimeout != tc.timeout || e.Policy.MaxMicroUSDPerHour != tc.micro {
				t.Errorf("booked for %s, at %d; want %s and %d", e.Policy.BookingTimeout, e.Policy.MaxMicroUSDPerHour, tc.timeout, tc.micro)
			}
			if e.Invalid != "" || (e.Lacking != "") != (tc.lacking != "") || !strings.Contains(e.Lacking, tc.lacking) {
				t.Errorf("invalid: %q, lacking: %q; want %q", e.Invalid, e.Lacking, tc.lacking)
			}
		})
	}
}

// TestAPolicyReachesGangsThatRun: an edit of it counts for them, too.
func TestAPolicyReachesGangsThatRun(t *testing.T) {
	m, v := newModel()
	policy := func(on v1alpha1.LossReaction) {
		m.Set(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: v.next()},
			Spec: v1alpha1.CapacityPolicySpec{OnMachineLoss: on}})
	}
	r := v.request("gang", provreq.Provisioned, provreq.BookingExpired)
	r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamPolicy: "p"}
	m.Set(r)
	for _, on := range []v1alpha1.LossReaction{v1alpha1.LossEvent, v1alpha1.LossRevoke, v1alpha1.LossEvent} {
		policy(on)
		if e, _ := m.Request("gang"); e.Policy.RevokeOnLoss != (on == v1alpha1.LossRevoke) {
			t.Errorf("with %s it is revoked: %t", on, e.Policy.RevokeOnLoss)
		}
	}
}

func TestPodsOfWorkloadsAreHeld(t *testing.T) {
	m, v := newModel()
	direct, queued := v.request("direct"), v.request("queued")
	queued.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", UID: "w", Controller: new(true)}}
	m.Set(direct)
	m.Set(queued)
	for _, e := range m.Due(nil) {
		if want := e.Name == "queued"; e.PodsHeld != want {
			t.Errorf("pods of %s are held: %t", e.Name, e.PodsHeld)
		}
	}
}

// A process that ends may not have written down what a failure teaches.
func TestAFailureOnRecordIsLearnedAfterARestart(t *testing.T) {
	failed := func(v *version, at time.Time, class v1alpha1.ErrorClass) *provreq.ProvisioningRequest {
		r := v.request("gang")
		a := transaction.Attempt{Number: 1, Phase: transaction.RollingBack, Launches: []planner.GroupCount{{Group: "gpu", Count: 2}},
			Failure: &transaction.AttemptFailure{Group: "gpu", Class: class, Message: "dry", Launch: "gang-1", Requested: 2, Time: at}}
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
		return r
	}
	for _, tc := range []struct {
		name  string
		ago   time.Duration
		class v1alpha1.ErrorClass
		known bool
		want  int
	}{
		{"a moment ago", time.Second, v1alpha1.Stockout, false, 1},
		{"written down in time", time.Second, v1alpha1.Stockout, true, 1},
		{"long ago, and forgotten since", time.Hour, v1alpha1.Stockout, false, 0},
		{"nobody's fault", time.Second, "", false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, v := newModel()
			r := failed(v, noon.Add(-tc.ago), tc.class)
			m.Set(r) // the order of informers is any
			g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
			if tc.known {
				g.Status.Attempts = []v1alpha1.LaunchAttempt{{Token: "gang-1", Class: tc.class}}
			}
			m.Set(g)
			again := failed(v, noon.Add(-tc.ago), tc.class)
			m.Set(again)
			if got := m.Learned("gpu"); len(got.Attempts) != tc.want {
				t.Errorf("learned %+v, want %d attempts", got.Attempts, tc.want)
			}
		})
	}
}

func TestViewsHaveTheMachinesOfReplacements(t *testing.T) {
	m, v := newModel()
	m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}})
	r := v.request("gang")
	a := transaction.Attempt{Number: 1, Phase: transaction.Launching, Launches: []planner.GroupCount{{Group: "gpu", Count: 2}},
		Replacements: []transaction.Replacement{{Lost: []transaction.LostMachine{{Group: "gpu", Name: "b", Launch: "gang-1"}}}}}
	r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
	m.Set(r)
	m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", Launch: "gang-1", ProviderID: "id-a"})
	m.SetMachine(cloudprovider.Machine{Name: "b", Group: "gpu", Launch: "gang-1", ProviderID: "id-b", State: cloudprovider.Terminated})
	e, _ := m.Request("gang")
	machines := func() (names []string) {
		for _, c := range m.View(m.Snapshot(noon), e.Request).Machines {
			names = append(names, c.Name)
		}
		return names
	}
	// The third is requested and counts, though it is not there yet.
	if got := m.Snapshot(noon).Groups[0].Machines; got != 2 || !slices.Equal(machines(), []string{"a", "b"}) {
		t.Errorf("%d machines, %v of the attempt", got, machines())
	}
	m.SetMachine(cloudprovider.Machine{Name: "c", Group: "gpu", Launch: "gang-1r1", ProviderID: "id-c"})
	if got := m.Snapshot(noon).Groups[0].Machines; got != 2 || !slices.Equal(machines(), []string{"a", "b", "c"}) {
		t.Errorf("%d machines, %v of the attempt", got, machines())
	}
	m.Set(v.node(func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-1r1"} }))
	if !only(t, m).InFlight || !m.Fleet(noon).InFlight["gang-1r1"] {
		t.Error("the replacement counts as nobody's")
	}
}

// A node of a launch is the request's from the machine's beginning until it is
// booked: no other request may book it, and scale-down may not delete it.
func TestMachinesAreHeldUntilTheyAreOpened(t *testing.T) {
	m, v := newModel()
	launched := func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[v1alpha1.LaunchAnnotation], n.Annotations[v1alpha1.CordonedAnnotation] = "gang-1", v1alpha1.CordonJoining
		n.Spec.Unschedulable = true
	}
	left := func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-1"} }
	at := func(phase transaction.AttemptPhase, conditions ...string) {
		r := v.request("gang", conditions...)
		a := transaction.Attempt{Number: 1, Phase: phase, Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
		m.Set(r)
	}
	m.Set(v.node(launched))
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"launching", func() { at(transaction.Launching) }, true},
		{"opened before it is Provisioned, since its pods are held", func() { m.Set(v.node(booked, launched)) }, true},
		{"closed again", func() { m.Set(v.node(launched)) }, true},
		{"about to be Provisioned", func() {
			m.Assume("gang", Assumption{Attempt: transaction.Attempt{Number: 1, Phase: transaction.Done}})
		}, true},
		{"Provisioned", func() { at(transaction.Done, provreq.Provisioned); m.Settle("gang") }, true},
		{"opened", func() { m.Set(v.node(booked, launched)) }, false},
		{"left, since its gang has been booked elsewhere", func() { m.Set(v.node(left)) }, false},
		{"left while it is launched for again", func() { at(transaction.Launching, provreq.Provisioned) }, true},
		{"opened again", func() { at(transaction.Done, provreq.Provisioned); m.Set(v.node(booked, launched)) }, false},
		{"a label that is taken off by hand", func() { m.Set(v.node(launched)) }, true},
		{"over", func() { at(transaction.Done, provreq.Provisioned, provreq.BookingExpired) }, false},
	} {
		step.do()
		if got := only(t, m).InFlight; got != step.want {
			t.Errorf("%s: held %t, want %t", step.name, got, step.want)
		}
	}
}

func TestLostNodesAreReportedOnce(t *testing.T) {
	use := func(m *Model, v *version) { m.Set(v.pod("one", "n", 4, consumes)) }
	for _, tc := range []struct {
		name       string
		conditions []string
		prepare    func(*Model, *version)
		lose       func(*Model, *version)
		pods       int
		told       bool
	}{
		{"a node that is booked", []string{provreq.Provisioned}, nil, nil, 0, true},
		{"a node that is used", []string{provreq.Provisioned, provreq.BookingExpired}, use, nil, 1, true},
		{"a node whose gang has ended", []string{provreq.Provisioned, provreq.BookingExpired}, nil, nil, 0, false},
		{"a node of a request that still waits", nil, nil, nil, 0, false},
		{"a machine that ends before its node goes", []string{provreq.Provisioned}, nil, func(m *Model, _ *version) {
			m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "id-n", State: cloudprovider.Terminated})
		}, 0, true},
		{"a machine that is not listed any more", []string{provreq.Provisioned}, nil, func(m *Model, _ *version) {
			m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "id-n", State: cloudprovider.Gone})
		}, 0, true},
		{"a machine whose NodeGroup is gone", []string{provreq.Provisioned}, nil, func(m *Model, _ *version) {
			m.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
			m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "id-n", State: cloudprovider.Gone})
		}, 0, false},
		{"a machine that another NodeGroup lists", []string{provreq.Provisioned}, nil, func(m *Model, _ *version) {
			m.SetMachine(cloudprovider.Machine{Name: "a", Group: "other", ProviderID: "id-n", State: cloudprovider.Running})
			m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "id-n", State: cloudprovider.Gone})
		}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, v := New(testingclock.NewFakePassiveClock(noon), transaction.KnownClasses), new(version)
			m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
			m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "id-n", State: cloudprovider.Running})
			m.Set(v.request("gang", tc.conditions...))
			m.Set(v.node(booked, func(n *corev1.Node) { n.Spec.ProviderID = "id-n" }))
			if tc.prepare != nil {
				tc.prepare(m, v)
			}
			m.Due(nil)
			if tc.lose == nil {
				m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			} else {
				tc.lose(m, v)
			}
			told := func() (out []transaction.LostNode) {
				for _, e := range m.Due(nil) {
					out = append(out, m.View(m.Snapshot(noon), e.Request).Lost...)
				}
				return out
			}
			got := told()
			if (len(got) == 1) != tc.told {
				t.Fatalf("told of %v", got)
			}
			if !tc.told {
				return
			}
			if got[0].Name != "n" || got[0].Pods != tc.pods {
				t.Errorf("told of %+v, want n with %d pods", got[0], tc.pods)
			}
			m.LossReported("gang", got, false)
			m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			if again := told(); len(again) > 0 {
				t.Errorf("told again of %v", again)
			}
			// A node of the same name that is booked in its place may be lost, too.
			m.SetMachine(cloudprovider.Machine{Name: "b", Group: "gpu", ProviderID: "id-again", State: cloudprovider.Running})
			m.Set(v.node(booked, func(n *corev1.Node) { n.Spec.ProviderID = "id-again" }))
			m.Snapshot(noon)
			m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			if again := told(); len(again) != 1 && tc.pods == 0 {
				t.Errorf("of the node in its place: told of %v", again)
			}
		})
	}
}
