package state

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// gang has one podSet per edit.
func gang(edits ...func(*corev1.PodTemplateSpec)) *Gang {
	g := &Gang{Namespace: "team"}
	for _, edit := range edits {
		template := &corev1.PodTemplateSpec{}
		edit(template)
		g.PodSets = append(g.PodSets, PodSet{Name: "workers", Count: 4, Template: template})
	}
	return g
}

// TestPolicies: each field of a CapacityPolicy replaces one default, and nothing else.
func TestPolicies(t *testing.T) {
	defaults := DefaultPolicy(AtomicScaleUp)
	edited := func(edit func(*Policy)) Policy {
		p := defaults
		edit(&p)
		return p
	}
	for name, tt := range map[string]struct {
		spec v1alpha1.CapacityPolicySpec
		want Policy
	}{
		"nothing":  {v1alpha1.CapacityPolicySpec{}, defaults},
		"split":    {v1alpha1.CapacityPolicySpec{Split: v1alpha1.AnyZone}, edited(func(p *Policy) { p.Split = v1alpha1.AnyZone })},
		"topology": {v1alpha1.CapacityPolicySpec{RequiredTopology: "rack"}, edited(func(p *Policy) { p.Topology = "rack" })},
		"capacity types": {v1alpha1.CapacityPolicySpec{CapacityTypes: []v1alpha1.CapacityType{v1alpha1.Spot}},
			edited(func(p *Policy) { p.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.Spot} })},
		"price": {v1alpha1.CapacityPolicySpec{MaxPricePerHour: new(resource.MustParse("2.5"))},
			edited(func(p *Policy) { p.MaxMicroUSDPerHour = 2_500_000 })},
		"a price of nothing": {v1alpha1.CapacityPolicySpec{MaxPricePerHour: new(resource.MustParse("0"))},
			edited(func(p *Policy) { p.MaxMicroUSDPerHour = 0 })},
		"timeouts": {v1alpha1.CapacityPolicySpec{BookingTimeout: &metav1.Duration{Duration: time.Hour}, StartTimeout: &metav1.Duration{}},
			edited(func(p *Policy) { p.BookingTimeout, p.StartTimeout = time.Hour, 0 })},
		"loss": {v1alpha1.CapacityPolicySpec{OnMachineLoss: v1alpha1.LossRevoke}, edited(func(p *Policy) { p.RevokeOnLoss = true })},
	} {
		if diff := cmp.Diff(tt.want, PolicyFrom(AtomicScaleUp, tt.spec)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// TestTenantNames are read back as they were written. Annotations that were edited name none.
func TestTenantNames(t *testing.T) {
	for text, want := range map[string]Tenant{"team/main": {"team", "main"}, "team/": {Namespace: "team"}, "team": {}, "/main": {}, "": {}} {
		if got := TenantNamed(text); got != want {
			t.Errorf("%q is tenant %v, want %v", text, got, want)
		}
		if want != (Tenant{}) && want.String() != text {
			t.Errorf("tenant %v is written %q, want %q", want, want.String(), text)
		}
	}
	if got := (&Gang{Namespace: "team", Queue: "main"}).Tenant(); got != (Tenant{"team", "main"}) {
		t.Errorf("the gang's tenant is %v", got)
	}
}

// TestHeldByTaint: only if every pod tolerates the taint by its name may it stand in for a cordon. A pod that tolerates everything does
// not mean bookings.
func TestHeldByTaint(t *testing.T) {
	with := func(tolerations ...corev1.Toleration) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = tolerations }
	}
	booked := corev1.Toleration{Key: v1alpha1.BookedTaint, Operator: corev1.TolerationOpExists}
	for _, tc := range []struct {
		name string
		gang *Gang
		want bool
	}{
		{"no pods", gang(), false},
		{"no toleration", gang(with()), false},
		{"that of bookings", gang(with(corev1.Toleration{Key: "gpu"}, booked)), true},
		{"in all podSets", gang(with(booked), with(booked)), true},
		{"in one podSet", gang(with(booked), with()), false},
		{"everything", gang(with(corev1.Toleration{Operator: corev1.TolerationOpExists})), false},
		{"of another effect", gang(with(corev1.Toleration{Key: v1alpha1.BookedTaint, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute})), false},
	} {
		if got := tc.gang.IsHeldByTaint(); got != tc.want {
			t.Errorf("%s: held by the taint: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestLevels: each label once, that of the policy first.
func TestLevels(t *testing.T) {
	within := func(level string) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{"kueue.x-k8s.io/podset-required-topology": level}
		}
	}
	none := func(*corev1.PodTemplateSpec) {}
	for _, tc := range []struct {
		name   string
		gang   *Gang
		policy Policy
		want   []string
	}{
		{"none", gang(none), Policy{}, nil},
		{"of the policy", gang(none), Policy{Topology: "block"}, []string{"block"}},
		{"of podSets", gang(within("rack"), within("rack"), within("block")), Policy{}, []string{"rack", "block"}},
		{"of both", gang(within("rack"), within("block")), Policy{Topology: "block"}, []string{"block", "rack"}},
	} {
		if got := tc.gang.Levels(&tc.policy); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestHowLongAGangRuns at most: its slowest podSet counts, and one without a deadline may run for ever.
func TestHowLongAGangRuns(t *testing.T) {
	deadline := func(seconds int64) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) { p.Spec.ActiveDeadlineSeconds = &seconds }
	}
	none := func(*corev1.PodTemplateSpec) {}
	for _, tc := range []struct {
		name string
		gang *Gang
		want time.Duration
	}{
		{"one podSet", gang(deadline(60)), time.Minute},
		{"the slowest", gang(deadline(60), deadline(3600), deadline(1)), time.Hour},
		{"without a deadline", gang(deadline(60), none), 0},
	} {
		if got := tc.gang.Runs(); got != tc.want {
			t.Errorf("%s: it runs for %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestPartsOfAPodSet: those that run, that restart and whole slices have the count given, and the podSet itself keeps its own.
func TestPartsOfAPodSet(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"},
		Containers: []corev1.Container{{Name: "main"}}}}
	for _, ps := range []PodSet{NewPodSet("team", "workers", 4, template, fit.Objects{}), {Name: "workers", Count: 4, Template: template}} {
		for name, part := range map[string]PodSet{
			"kept": ps.Kept("team", fit.Objects{}, 2, nil), "again": ps.Again("team", fit.Objects{}, 2, nil),
			"slices": ps.Slices("team", fit.Objects{}, 2, nil),
		} {
			if part.Count != 2 || part.Pod == nil || part.Pod.Count != 2 || part.Refused() {
				t.Errorf("%s: %d pods, read: %+v", name, part.Count, part.Pod)
			}
		}
		if pod, _ := ps.Read("team", fit.Objects{}); pod.Count != 4 || ps.Count != 4 {
			t.Errorf("the podSet has %d pods", pod.Count)
		}
	}
	bound := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "a"}}
	for _, ps := range []PodSet{NewPodSet("team", "workers", 4, bound, fit.Objects{}), {Name: "workers", Count: 4, Template: bound}} {
		if part := ps.Kept("team", fit.Objects{}, 2, nil); part.Pod != nil || !part.Refused() {
			t.Errorf("a podSet that names its node is read: %+v", part.Pod)
		}
	}
	ps := NewPodSet("team", "workers", 4, template, fit.Objects{})
	if got := ps.Keys(); !slices.Equal(got, []string{"zone"}) {
		t.Errorf("it depends on the labels %v, want zone", got)
	}
	if got := (&PodSet{}).Keys(); got != nil {
		t.Errorf("a podSet that was not read depends on %v", got)
	}
}
