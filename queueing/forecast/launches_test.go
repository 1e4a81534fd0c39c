package forecast

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/workload"
)

// launched is a request that had machines of groups launched for it, which took so long.
func launched(name string, took time.Duration, groups ...string) *autoscaling.ProvisioningRequest {
	a := transaction.Attempt{Number: 1, Phase: transaction.Done, Started: noon.Add(-took)}
	for _, g := range groups {
		a.Launches = append(a.Launches, planner.GroupCount{Group: g, Count: 1})
	}
	r := &autoscaling.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	r.Status.ProvisioningClassDetails = map[string]autoscaling.Detail{transaction.AttemptDetail: autoscaling.Detail(a.Encode())}
	r.Status.Conditions = []metav1.Condition{{Type: autoscaling.Provisioned, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(noon)}}
	return r
}

// TestLaunchesTakeAsLongAsTheyDid has a job wait for a machine of the group spot.
func TestLaunchesTakeAsLongAsTheyDid(t *testing.T) {
	waits := launched("waits", time.Hour, "spot")
	waits.Status.Conditions[0].Status = metav1.ConditionFalse
	failed := launched("failed", time.Hour, "spot")
	a := attemptOf(failed)
	a.Failure = &transaction.AttemptFailure{}
	failed.Status.ProvisioningClassDetails[transaction.AttemptDetail] = autoscaling.Detail(a.Encode())
	none := launched("none", time.Hour)
	tests := []struct {
		name string
		past []*autoscaling.ProvisioningRequest
		want string
	}{
		{"nothing is known", nil, "4m0s (2m0s to 7m0s)"},
		{"all launches of the group took ten minutes", []*autoscaling.ProvisioningRequest{
			launched("a", 10*time.Minute, "spot"), launched("b", 10*time.Minute, "other", "spot"), launched("c", 10*time.Minute, "spot"),
		}, "10m0s (10m0s to 10m0s)"},
		{"two launches say nothing", []*autoscaling.ProvisioningRequest{launched("a", time.Hour, "spot"), launched("b", time.Hour, "spot")}, "4m0s (2m0s to 7m0s)"},
		{"nor does the same one again", []*autoscaling.ProvisioningRequest{
			launched("a", time.Hour, "spot"), launched("a", time.Hour, "spot"), launched("a", time.Hour, "spot"),
		}, "4m0s (2m0s to 7m0s)"},
		{"nor do those that wait, failed or launched nothing", []*autoscaling.ProvisioningRequest{
			launched("a", 10*time.Minute, "spot"), launched("b", 10*time.Minute, "spot"), waits, failed, none,
		}, "4m0s (2m0s to 7m0s)"},
		{"other groups say nothing", []*autoscaling.ProvisioningRequest{
			launched("a", time.Hour, "other"), launched("b", time.Hour, "other"), launched("c", time.Hour, "other"),
		}, "4m0s (2m0s to 7m0s)"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(queue("team", "spot=16", checked("machines")), check("machines", cache.CapacityController),
				flavor("spot"), localQueue("main", "team"), job("next", 8))
			s.SetCapacity(groups(group("spot", 1)))
			h := &History{}
			for _, r := range tc.past {
				h.Launched(r)
			}
			e := Forecast(s, h, noon, 24*time.Hour).Estimates[0]
			if got := fmt.Sprintf("%s (%s to %s)", minutes(t, e.Start), minutes(t, e.Early), minutes(t, e.Late)); got != tc.want {
				t.Errorf("it is expected to start in %s, want %s", got, tc.want)
			}
		})
	}
}

// TestTheSlowestGroupCounts: a gang begins when the last of its machines is there.
func TestTheSlowestGroupCounts(t *testing.T) {
	b := assumptions{launches: map[string][]time.Duration{"slow": {10 * time.Minute, 20 * time.Minute}, "fast": {time.Minute}}}
	for groups, want := range map[[2]string]time.Duration{
		{"slow", "fast"}: 20 * time.Minute, {"fast", "slow"}: 20 * time.Minute, {"fast", "fast"}: time.Minute, {"fast", "unknown"}: 4 * time.Minute,
	} {
		if got := b.launch([]planner.GroupCount{{Group: groups[0]}, {Group: groups[1]}}, 0.5); got != want {
			t.Errorf("a launch in %v takes %s, want %s", groups, got, want)
		}
	}
}

// TestTheLaunchTimeIsThatOfHalfOfThePast of all groups, where enough launches of each were seen.
func TestTheLaunchTimeIsThatOfHalfOfThePast(t *testing.T) {
	h := &History{}
	for i, minutes := range []int{10, 2, 6} {
		h.Launched(launched(fmt.Sprint(i), time.Duration(minutes)*time.Minute, "spot"))
	}
	h.Launched(launched("one", time.Minute, "new"))
	for _, tc := range []struct {
		groups []planner.GroupCount
		want   time.Duration
		known  bool
	}{
		{[]planner.GroupCount{{Group: "spot", Count: 2}}, 6 * time.Minute, true},
		{[]planner.GroupCount{{Group: "spot", Count: 2}, {Group: "new", Count: 1}}, LaunchTime, false},
		{nil, LaunchTime, false},
	} {
		if took, known := h.LaunchTime(tc.groups); took != tc.want || known != tc.known {
			t.Errorf("a launch in %v takes %s, known %v; want %s, %v", tc.groups, took, known, tc.want, tc.known)
		}
	}
}

func TestLaunchesAreBounded(t *testing.T) {
	h := &History{}
	for i := range 2 * maxRuns {
		h.Launched(launched(fmt.Sprint(i), time.Duration(i)*time.Minute, "spot"))
	}
	if list := h.launches["spot"]; len(list) != maxRuns || list[0].took != maxRuns*time.Minute {
		t.Errorf("%d launches are remembered, the oldest of %s: want the latest %d", len(list), list[0].took, maxRuns)
	}
}

// TestALaunchUnderWay has begun before now, and is over when its kind is.
func TestALaunchUnderWay(t *testing.T) {
	s := stateOf(queue("team", "spot=16", checked("machines")), check("machines", cache.CapacityController), flavor("spot"),
		localQueue("main", "team"))
	w := job("next", 8, running(noon.Add(-5*time.Minute)))
	w.Status.Conditions = w.Status.Conditions[:1] // its quota alone
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStatePending}}
	r := launched(checks.RequestName("next", "machines", 1), 4*time.Minute, "spot")
	a := attemptOf(r)
	a.Phase = transaction.Launching
	r.Status.ProvisioningClassDetails[transaction.AttemptDetail] = autoscaling.Detail(a.Encode())
	r.Status.Conditions = []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue}}
	r.Namespace, r.CreationTimestamp = "default", metav1.NewTime(noon.Add(-5*time.Minute))
	r.Labels = map[string]string{workload.ManagedLabel: "true"}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload", Name: "next", UID: w.UID,
		Controller: new(true)}}
	s.Set(w)
	s.Set(r)
	s.SetCapacity(groups(group("spot", 1)))
	h := &History{}
	for i := range 3 {
		h.Launched(launched(fmt.Sprint(i), 10*time.Minute, "spot"))
	}
	if e := Forecast(s, h, noon, 24*time.Hour).Estimates[0]; minutes(t, e.Start) != "6m0s" {
		t.Errorf("it is expected to start in %s (%s), want 6m0s: it began 4 minutes ago", minutes(t, e.Start), e.Message)
	}
}
