package forecast

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
)

func TestSimulateAll(t *testing.T) {
	machines := []metav1.Object{check("machines", cache.CapacityController)}
	unnamed := func(name string, pods int32, options ...func(*kueue.Workload)) *kueue.Workload {
		return job(name, pods, append(options, func(w *kueue.Workload) { w.UID, w.CreationTimestamp = "", metav1.Time{} })...)
	}
	tests := []struct {
		name        string
		objects     []metav1.Object
		capacity    *planner.Snapshot
		submissions []*kueue.Workload
		want        []string
	}{
		{
			name:        "what the first has the second lacks",
			objects:     []metav1.Object{queue("team", "spot=4")},
			submissions: []*kueue.Workload{unnamed("z", 3), unnamed("a", 2)},
			want: []string{"starts on spot at 0s",
				"waits (WaitingForQuota): couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor spot, 1 more needed: 1 of 4 are free"},
		},
		{
			name:        "the higher priority comes first whatever the order",
			objects:     []metav1.Object{queue("team", "spot=4")},
			submissions: []*kueue.Workload{unnamed("a", 3), unnamed("z", 2, priority(1))},
			want: []string{"waits (WaitingForQuota): couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor " +
				"spot, 1 more needed: 2 of 4 are free", "starts on spot at 0s"},
		},
		{
			name:        "machines of a group are had once",
			objects:     append(machines, queue("team", "spot=32", checked("machines"))),
			capacity:    groups(group("spot", 2)),
			submissions: []*kueue.Workload{unnamed("a", 8), unnamed("b", 8), unnamed("c", 8)},
			want:        []string{"starts on spot at 4m0s with [{spot 1}]", "starts on spot at 4m0s with [{spot 1}]", "waits (WaitingForCapacity)"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(append(tc.objects, flavor("spot"), localQueue("main", "team"))...)
			s.SetCapacity(tc.capacity)
			for i, o := range SimulateAll(s, tc.submissions, noon) {
				if got := inALine(o); !strings.HasPrefix(got, tc.want[i]) {
					t.Errorf("%s %s\nwant: it %s", tc.submissions[i].Name, got, tc.want[i])
				}
			}
		})
	}
}

func TestProspects(t *testing.T) {
	machines := []metav1.Object{check("machines", cache.CapacityController)}
	tests := []struct {
		name     string
		objects  []metav1.Object
		capacity *planner.Snapshot
		want     []string
	}{
		{
			name: "those that run or are stopped by hand do not wait",
			objects: []metav1.Object{queue("team", "spot=8"), job("runs", 4, running(noon)),
				job("off", 1, func(w *kueue.Workload) { w.Spec.Active = new(false) }),
				job("big", 5), job("small", 4)},
			want: []string{"big waits (WaitingForQuota)", "small starts on spot at 0s"},
		},
		{
			name:     "the launches of all succeed",
			objects:  append(machines, queue("team", "spot=32", checked("machines")), job("a", 8), job("b", 8), job("c", 8)),
			capacity: groups(group("spot", 2)),
			want: []string{"a starts on spot at 4m0s with [{spot 1}]", "b starts on spot at 4m0s with [{spot 1}]",
				"c waits (WaitingForCapacity)"},
		},
		{
			name: "pauses are over",
			objects: []metav1.Object{queue("team", "spot=4"), job("paused", 4, func(w *kueue.Workload) {
				w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1)), RequeueAt: new(metav1.NewTime(noon.Add(time.Hour)))}
			})},
			want: []string{"paused starts on spot at 0s"},
		},
		{
			name: "each names its victims",
			objects: []metav1.Object{queue("team", "spot=4", preempting(kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever)),
				job("old", 4, running(noon)), job("new", 4, priority(1))},
			want: []string{"new starts on spot at 0s after [default/old]"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(append(tc.objects, flavor("spot"), localQueue("main", "team"))...)
			s.SetCapacity(tc.capacity)
			got := Prospects(s, noon)
			if len(got) != len(tc.want) {
				t.Fatalf("%d wait, want %d", len(got), len(tc.want))
			}
			for i, p := range got {
				if line := p.Workload.Name + " " + inALine(p.Outcome); !strings.HasPrefix(line, tc.want[i]) {
					t.Errorf("%s\nwant: %s", line, tc.want[i])
				}
			}
		})
	}
}
