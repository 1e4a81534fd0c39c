package state

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestNotices: what the agents of GKE and AWS write onto a node before they stop its machine. A planned interruption counts for the
// last 24 hours before it.
func TestNotices(t *testing.T) {
	planned := func(in time.Duration) map[string]string {
		return map[string]string{gkeMaintenanceTime: fmt.Sprint(noon.Add(in).Unix())}
	}
	for _, tc := range []struct {
		name   string
		labels map[string]string
		taints []string
		want   string
	}{
		{name: "nothing"},
		{name: "taints of others", taints: []string{"nvidia.com/gpu", "example.com/" + awsTermination}},
		{name: "GKE terminates it", taints: []string{"nvidia.com/gpu", gkeTermination}, want: "taint " + gkeTermination},
		{name: "AWS reclaims it", taints: []string{awsTermination + "spot-itn"}, want: "taint " + awsTermination + "spot-itn"},
		{name: "its host is maintained", labels: map[string]string{gkeMaintenance: "ONGOING"}, want: "label " + gkeMaintenance + "=ONGOING"},
		{name: "its host was maintained", labels: map[string]string{gkeMaintenance: "COMPLETE"}},
		{name: "maintenance in a day and an hour", labels: planned(25 * time.Hour)},
		{name: "in a day", labels: planned(24 * time.Hour)},
		{name: "in a day less a second", labels: planned(24*time.Hour - time.Second),
			want: "label " + gkeMaintenanceTime + ": maintenance at 2026-01-02T11:59:59Z"},
		{name: "it is overdue", labels: planned(-time.Hour), want: "label " + gkeMaintenanceTime + ": maintenance at 2026-01-01T11:00:00Z"},
		{name: "a time that cannot be read", labels: map[string]string{gkeMaintenanceTime: "soon"}},
		{name: "a taint is nearer than a plan", labels: planned(time.Hour), taints: []string{gkeTermination}, want: "taint " + gkeTermination},
	} {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}
		for _, key := range tc.taints {
			o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		if got := NoticeOf(o, noon); got != tc.want {
			t.Errorf("%s: the notice is %q, want %q", tc.name, got, tc.want)
		}
	}
}
