package checks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestARequestHasNoPodSetsWithoutPods (13975): the API refuses a podSet of no pods.
func TestARequestHasNoPodSetsWithoutPods(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "machines"}}
	ac.Spec.ControllerName = "muster.dev/capacity"
	w.Set(ac)
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"check": "machines"}, "spot cpu=8"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Machines["spot"] = 4
	object := w.Workload(t, "job", map[string]string{"cpu": "1", "launcher": "cpu:1"})
	object.Spec.PodSets[1].Count = 0
	w.Set(object)
	seen := 0
	for range 5 {
		for _, v := range w.State.Cycle(w.Now) {
			if v.Create != nil {
				seen++
				for _, ps := range v.Create.Object.Spec.PodSets {
					if ps.Count < 1 {
						t.Errorf("the request has the podSet %+v", ps)
					}
				}
			}
			w.Apply(&v, nil)
		}
	}
	if seen == 0 {
		t.Errorf("no request was made: %v", w.Find(t, "job").Status.Conditions)
	}
}

// TestAdviceIsForThePolicyOfTheRequest: twins in all but the policy that they
// name get the answers that their requests would get.
func TestAdviceIsForThePolicyOfTheRequest(t *testing.T) {
	w := queues.WithCapacityCheck(t)
	cheap := w.State.Policies["cheap"].DeepCopy()
	cheap.Spec.Overrides = &v1alpha1.CapacityOverrides{CapacityPolicies: []string{"dear"}}
	w.Set(cheap)
	w.Submit(t, "a-by-check", nil)
	w.Submit(t, "b-named", map[string]string{workload.ParameterPrefix + checks.PolicyParameter: "dear"})
	prices := map[string]int64{}
	w.Plan = func(_ *planner.Snapshot, gang state.Gang, policy state.Policy) planner.Verdict {
		prices[strings.TrimPrefix(gang.Name, "default/")] = policy.MaxMicroUSDPerHour
		if policy.MaxMicroUSDPerHour == 1e6 {
			return planner.Verdict{Outcome: planner.Wait}
		}
		return planner.Verdict{Outcome: planner.Launch}
	}
	got := queues.Outcomes(w.State.Cycle(w.Now))
	if got["a-by-check"] != lifecycle.Wait || got["b-named"] != lifecycle.Reserve {
		t.Errorf("outcomes: %v; want only the workload under the cheap policy to wait", got)
	}
	if prices["b-named"] != 100e6 {
		t.Errorf("the planner was asked with the price bounds %v", prices)
	}
}

// TestJobsOnlyTightenThePolicyOfTheirQueue: what loosens it waits with the annotation, its
// value, the bound and the field that an admin would change; what does not is followed.
func TestJobsOnlyTightenThePolicyOfTheirQueue(t *testing.T) {
	const prefix = "the annotation " + workload.ParameterPrefix
	for name, c := range map[string]struct {
		annotations map[string]string
		change      func(*v1alpha1.CapacityPolicySpec)
		want        string
		// request has these parameters where the job is not refused.
		request map[string]string
	}{
		"a lower price": {
			annotations: map[string]string{"maxPricePerHour": "0.5"},
			request:     map[string]string{checks.PolicyParameter: "cheap", "maxPricePerHour": "0.5"},
		},
		"a higher price": {
			annotations: map[string]string{"maxPricePerHour": "50"},
			want: prefix +
				`maxPricePerHour is "50": CapacityPolicy cheap lets it be 1 at most; give that, or have an admin change spec.overrides.maxPricePerHour`,
		},
		"a higher price that an admin lets be": {
			annotations: map[string]string{"maxPricePerHour": "50"},
			change: func(s *v1alpha1.CapacityPolicySpec) {
				s.Overrides = &v1alpha1.CapacityOverrides{MaxPricePerHour: new(resource.MustParse("50"))}
			},
			request: map[string]string{checks.PolicyParameter: "cheap", "maxPricePerHour": "50"},
		},
		"a booking for ten years": {annotations: map[string]string{"bookingTimeout": "87600h"}, want: prefix + `bookingTimeout is "87600h": CapacityPolicy cheap lets it be 10m0s at most`},
		"another capacity type": {
			annotations: map[string]string{"capacityTypes": "OnDemand"},
			change:      func(s *v1alpha1.CapacityPolicySpec) { s.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.Spot} },
			want:        prefix + `capacityTypes is "OnDemand": CapacityPolicy cheap lets it be some of Spot`,
		},
		"a dearer policy": {annotations: map[string]string{checks.PolicyParameter: "dear"}, want: prefix + `capacityPolicy is "dear": with it, maxPricePerHour is "100": CapacityPolicy cheap lets it be 1 at most`},
		"a dearer policy with a low price": {
			annotations: map[string]string{checks.PolicyParameter: "dear", "maxPricePerHour": "1"},
			request:     map[string]string{checks.PolicyParameter: "dear", "maxPricePerHour": "1"},
		},
		"no policy at all": {annotations: map[string]string{checks.PolicyParameter: ""}, want: prefix + `capacityPolicy is "": with it, maxPricePerHour is "unset"`},
		"a start within the time": {
			annotations: map[string]string{checks.StartByParameter: "2026-11-20T10:59:00Z"},
			change:      func(s *v1alpha1.CapacityPolicySpec) { s.StartWithin = &metav1.Duration{Duration: time.Hour} },
			request:     map[string]string{checks.PolicyParameter: "cheap"},
		},
		"a start in another year": {
			annotations: map[string]string{checks.StartByParameter: "2036-01-01T00:00:00Z"},
			change:      func(s *v1alpha1.CapacityPolicySpec) { s.StartWithin = &metav1.Duration{Duration: time.Hour} },
			want:        prefix + `startBy is "2036-01-01T00:00:00Z": CapacityPolicy cheap allows 2026-11-20T11:00:00Z at the latest`,
		},
		"a policy for other namespaces": {
			change: func(s *v1alpha1.CapacityPolicySpec) {
				s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"research": "yes"}}
			},
			want: "CapacityPolicy cheap is not for namespace default (spec.namespaceSelector)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.WithCapacityCheck(t)
			cheap := w.State.Policies["cheap"].DeepCopy()
			if c.change != nil {
				c.change(&cheap.Spec)
			}
			w.Set(cheap)
			annotations := map[string]string{}
			for k, v := range c.annotations {
				annotations[workload.ParameterPrefix+k] = v
			}
			w.Submit(t, "train", annotations)
			v := w.State.Cycle(w.Now)[0]
			if refused := v.Reason == kueue.WorkloadQuotaReservedReasonMisconfigured; refused != (c.want != "") ||
				!strings.Contains(v.Message, c.want) {
				t.Errorf("%v %s: %s; want %q", v.Action, v.Reason, v.Message, c.want)
			}
			if c.want != "" {
				return
			}
			parameters := checks.NewEvaluator(w.State.Cache, w.Now).Parameters(w.State.Workloads[w.Find(t, "train").UID], "capacity")
			for k, want := range c.request {
				if string(parameters[k]) != want {
					t.Errorf("its request has %s=%q, want %q", k, parameters[k], want)
				}
			}
		})
	}
}

// TestChecksWithoutAPolicyHaveTheDefault.
func TestChecksWithoutAPolicyHaveTheDefault(t *testing.T) {
	w := queues.WithCapacityCheck(t)
	ac := w.State.Checks["capacity"].DeepCopy()
	ac.Spec.Parameters = nil
	w.Set(ac)
	standard := w.State.Policies["cheap"].DeepCopy()
	standard.Name = v1alpha1.DefaultPolicy
	w.Set(standard)
	w.Submit(t, "train", nil)
	w.Submit(t, "dear", map[string]string{workload.ParameterPrefix + "maxPricePerHour": "50"})
	got := queues.Outcomes(w.State.Cycle(w.Now))
	if got["dear"] != lifecycle.Wait || checks.NewEvaluator(w.State.Cache, w.Now).Parameters(w.State.Workloads[w.Find(t, "train").UID],
		"capacity")[checks.PolicyParameter] != v1alpha1.DefaultPolicy {
		t.Errorf("outcomes: %v", got)
	}
}

func TestParametersThatNoRequestCouldHave(t *testing.T) {
	many := map[string]string{}
	for i := range 98 {
		many[fmt.Sprintf("%sp%d", workload.ParameterPrefix, i)] = "x"
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"a few":                         {annotations: map[string]string{workload.ParameterPrefix + "ValidUntilSeconds": "60"}},
		"one over with the queue's own": {annotations: many, want: "give 101 parameters"},
		"a long value":                  {annotations: map[string]string{workload.ParameterPrefix + "p": strings.Repeat("x", 256)}, want: "256 characters"},
		"for another provisioner":       {annotations: map[string]string{workload.ParameterPrefix + "processorInstance": "theirs"}, want: "another provisioner"},
		"no such capacity type":         {annotations: map[string]string{workload.ParameterPrefix + "capacityTypes": "spot"}, want: `annotation provreq.kueue.x-k8s.io/capacityTypes is "spot": give some of Reserved, Spot and OnDemand`},
		"a wait for no type":            {annotations: map[string]string{workload.ParameterPrefix + "fallbackAfter": "30m"}, want: `fallbackAfter is "30m": give capacity types`},
		"a start by some day":           {annotations: map[string]string{workload.ParameterPrefix + "startBy": "tomorrow"}, want: `annotation provreq.kueue.x-k8s.io/startBy is "tomorrow": give a time such as`},
		"a policy that is not there":    {annotations: map[string]string{workload.ParameterPrefix + checks.PolicyParameter: "gone"}, want: `CapacityPolicy "gone"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.WithCapacityCheck(t)
			w.Submit(t, "train", c.annotations)
			v := w.State.Cycle(w.Now)[0]
			if refused := v.Reason == kueue.WorkloadQuotaReservedReasonMisconfigured; refused != (c.want != "") ||
				!strings.Contains(v.Message, c.want) {
				t.Errorf("%v %s: %s; want %q", v.Action, v.Reason, v.Message, c.want)
			}
		})
	}
}

// TestPodLevelRequests follows what the API server fills in when it creates a pod.
func TestPodLevelRequests(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, v := range map[corev1.ResourceName]string{"cpu": cpu, "memory": memory} {
			if v != "" {
				out[name] = resource.MustParse(v)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		requests, limits, container, want corev1.ResourceList
	}{
		"the limit where the containers ask for nothing": {limits: list("4", ""), want: list("4", "")},
		"what the containers ask for":                    {limits: list("4", ""), container: list("1", ""), want: list("1", "")},
		"the pod's own request comes first":              {requests: list("2", ""), limits: list("4", ""), container: list("1", ""), want: list("2", "")},
		"each resource by itself":                        {limits: list("4", "8Gi"), container: list("1", ""), want: list("1", "8Gi")},
		"a container's other resources stay":             {limits: list("4", ""), container: list("", "1Gi"), want: list("4", "1Gi")},
	} {
		spec := &corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: c.container}}},
			Resources:  &corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits},
		}
		want := nodegroups.ResourcesFrom(c.want)
		if got := workload.PodRequests(spec); got["cpu"] != want["cpu"] || got["memory"] != want["memory"] {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestALongMessageIsReportedOnce: the API server truncates it, and that must not count as a change.
func TestALongMessageIsReportedOnce(t *testing.T) {
	w := queues.WithCapacityCheck(t)
	w.Submit(t, "train", map[string]string{workload.RefusedAnnotation: strings.Repeat("é", workload.MaxMessage)})
	v := w.State.Cycle(w.Now)[0]
	if v.Status == nil {
		t.Fatal("nothing is told")
	}
	object := w.Find(t, "train")
	object.Status = *v.Status
	w.Set(object)
	// As another process that finds the message there.
	w.State.Workloads[object.UID].Message = ""
	if verdicts := w.State.Cycle(w.Now); len(verdicts) > 0 {
		t.Error("the same message is written again")
	}
}

// TestNoMachinesAreKeptForAnUnapprovedWorkload: a Workload that waits for a person's
// approval keeps no other Workload from the machines that it may need later.
func TestNoMachinesAreKeptForAnUnapprovedWorkload(t *testing.T) {
	w := queues.WithCapacityCheck(t)
	approve := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approve"}}
	approve.Spec.ControllerName = "example.com/approve"
	approve.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	w.Set(approve)
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"check": "capacity,approve"}, "spot gpu=64"))
	w.Submit(t, "train", nil)
	w.Cycles(t)
	asked := 0
	w.Plan = func(*planner.Snapshot, state.Gang, state.Policy) planner.Verdict {
		asked++
		return planner.Verdict{Outcome: planner.Launch}
	}
	if w.Cycles(t); asked > 0 || !workload.HasQuota(w.Find(t, "train")) {
		t.Errorf("machines were set aside %d times; has quota: %v", asked, workload.HasQuota(w.Find(t, "train")))
	}
}

// TestPodsThatWillNotRunUseNothing: they are counted from the spec, whether the
// admission was before or after they were over, and of how many pods it was.
func TestPodsThatWillNotRunUseNothing(t *testing.T) {
	for name, c := range map[string]struct{ over, admitted, want int32 }{
		"none is over":                      {over: 0, admitted: 10, want: 10},
		"over since the admission":          {over: 2, admitted: 10, want: 8},
		"over before it":                    {over: 2, admitted: 8, want: 8},
		"fewer were admitted than are left": {over: 2, admitted: 6, want: 6},
		"fewer are left than were admitted": {over: 5, admitted: 6, want: 5},
		"more than there are":               {over: 11, admitted: 6, want: 0},
	} {
		w := queues.New()
		object := w.Workload(t, "train", map[string]string{"count": "10", "gpu": "3"})
		object.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: c.over}}
		admission := kueue.PodSetAssignment{
			Name: "main", Count: new(c.admitted), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpu": "spot"},
			ResourceUsage: corev1.ResourceList{"gpu": *resource.NewQuantity(3*int64(c.admitted), resource.DecimalSI)},
		}
		e := workload.Edit(object, w.Now)
		e.Reserve(&kueue.Admission{ClusterQueue: "team", PodSetAssignments: []kueue.PodSetAssignment{admission}}, nil)
		object.Status = *e.Status
		if got := workload.UsageOf(object)[quota.FlavorResource{Flavor: "spot", Resource: "gpu"}]; got != 3*int64(c.want) {
			t.Errorf("%s: %d GPUs in use, want %d", name, got, 3*c.want)
		}
	}
}
