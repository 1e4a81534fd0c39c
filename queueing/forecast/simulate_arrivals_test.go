package forecast

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestArrivals: jobs of 4 GPUs that run for an hour share 4, one after the other.
func TestArrivals(t *testing.T) {
	ofTwo := func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 2 }
	hour := func(name string, options ...func(*kueue.Workload)) *kueue.Workload {
		return job(name, 4, append(options, atMost(time.Hour))...)
	}
	unnamed := func(options ...func(*kueue.Workload)) *kueue.Workload {
		return hour("new", append(options, func(w *kueue.Workload) { w.UID, w.CreationTimestamp = "", metav1.Time{} })...)
	}
	tests := []struct {
		name        string
		there       []metav1.Object
		submissions []*kueue.Workload
		// at is in minutes from now, and want is when each starts; - is not within two days.
		at   int
		want string
	}{
		{"what is free then is had at once", nil, []*kueue.Workload{unnamed()}, 30, "[30m0s]"},
		{"a Workload that runs till then is waited for", []metav1.Object{hour("old", running(noon))}, []*kueue.Workload{unnamed()}, 30, "[1h0m0s]"},
		{"a Workload that has ended by then is not", []metav1.Object{hour("old", running(noon))}, []*kueue.Workload{unnamed()}, 90, "[1h30m0s]"},
		{"pending Workloads go before it, however many are alike", []metav1.Object{hour("old", running(noon)), hour("a"), hour("b"), hour("c")}, []*kueue.Workload{unnamed()}, 30, "[4h0m0s]"},
		{"nor does it slip in where several start at once", []metav1.Object{hour("old", running(noon)), hour("a", ofTwo), hour("b", ofTwo), hour("c", ofTwo)},
			[]*kueue.Workload{unnamed(ofTwo)}, 30, "[2h0m0s]"},
		{"earlier ones that have ended leave nothing behind", []metav1.Object{hour("a"), hour("b")}, []*kueue.Workload{unnamed()}, 90, "[2h0m0s]"},
		{"a higher priority does not", []metav1.Object{hour("old", running(noon)), hour("a"), hour("b")}, []*kueue.Workload{unnamed(priority(1))}, 30, "[1h0m0s]"},
		{"several go one after the other", []metav1.Object{hour("a")}, []*kueue.Workload{unnamed(), unnamed()}, 10, "[1h0m0s 2h0m0s]"},
		{"what can never start does not", nil, []*kueue.Workload{job("new", 5)}, 10, "[-]"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(append(tc.there, queue("team", "spot=4"), flavor("spot"), localQueue("main", "team"))...)
			at := noon.Add(time.Duration(tc.at) * time.Minute)
			var got []string
			estimates, _ := Arrivals(s, nil, tc.submissions, at, noon, 48*time.Hour, unhurried)
			for _, e := range estimates {
				got = append(got, minutes(t, e.Start))
			}
			if fmt.Sprint(got) != tc.want {
				t.Errorf("they start at %v, want %s", got, tc.want)
			}
		})
	}
}
