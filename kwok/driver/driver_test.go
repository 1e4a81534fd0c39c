package driver

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

func TestWhatIsPublishedWhen(t *testing.T) {
	ready := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	late := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	steady := kwokv1alpha1.Claimable{Delay: late(10 * time.Second)}
	vanishing := kwokv1alpha1.Claimable{Delay: late(10 * time.Second), Vanish: &kwokv1alpha1.DeviceGap{After: late(20 * time.Second),
		For: late(5 * time.Second)}}
	for _, c := range []struct {
		what       kwokv1alpha1.Claimable
		ready      time.Time
		after      time.Duration
		generation int64
		again      time.Duration
	}{
		{steady, time.Time{}, 0, 0, 0},
		{steady, ready, 4 * time.Second, 0, 6 * time.Second},
		{steady, ready, 10 * time.Second, 1, 0},
		{vanishing, ready, 12 * time.Second, 1, 18 * time.Second},
		{vanishing, ready, 31 * time.Second, 0, 4 * time.Second},
		{vanishing, ready, 40 * time.Second, 2, 0},
	} {
		generation, again := published(&c.what, c.ready, ready.Add(c.after))
		if generation != c.generation || again != c.again {
			t.Errorf("%s after it is ready: generation %d for %s, want %d for %s", c.after, generation, again, c.generation, c.again)
		}
	}
}
