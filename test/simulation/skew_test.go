package simulation

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestAGangIsSeenToRunByAClockThatIsWrong: timestamps of pods come from other clocks. The Job starts when it observes Provisioned,
// whatever its timestamp.
func TestAGangIsSeenToRunByAClockThatIsWrong(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"far behind": -5 * time.Minute, "behind": -3 * time.Second, "right": 0, "ahead": 3 * time.Second, "far ahead": 5 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			scenario := scenario{
				setUp: func(w *world) {
					w.ahead.Store(int64(ahead))
					for _, node := range []string{"node-0", "node-1", "node-2"} {
						w.create(newNode(node, gpuMachine))
					}
					g := workers("gang")
					g.delay -= ahead
					w.submit(w.began, g, transaction.ClassCheckCapacity, nil)
				},
				shows: []string{"BookingExpired=True CapacityBookingConsumed"},
			}
			scenario.check(t, scenario.play(t, nil))
		})
	}
}
