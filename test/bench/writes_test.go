package bench

import "testing"

// TestWritesForAThroughput: all Workloads of a tenth of the load that is measured come
// to their end, with as few writes as that takes.
//
// Of status writes a Workload needs one to be admitted, one to be finished, and three
// for each time that it is evicted: that, its release, and its next admission. What
// comes on top are reasons why it waits. How many of those depends on how fast the
// machine is: 0.2 to 0.4 for each Workload were seen; the bound says that no Workload
// is told more than once.
func TestWritesForAThroughput(t *testing.T) {
	const (
		needed, byEviction = 2, 3
		mostReasons        = 1
		// mostOfQueues is the share of all writes that the statuses of queues may have.
		mostOfQueues = 0.05
	)
	s := newArena(t, contenders[muster]).mixed(10)
	if got := s.writes["workloads"]; got != 1 {
		t.Errorf("%.3f writes of each Workload beside those of its status, want its creation alone", got)
	}
	if got, least := s.writes["workloads/status"], needed+byEviction*s.evictions; got > least+mostReasons {
		t.Errorf("%.3f status writes and %.3f evictions for each Workload, want at most %.3f writes", got, s.evictions, least+mostReasons)
	}
	var all float64
	for name, n := range s.writes {
		if name != "events" {
			all += n
		}
	}
	if got := s.writes["clusterqueues/status"] + s.writes["localqueues/status"]; got > mostOfQueues*all {
		t.Errorf("the statuses of queues have %.3f of %.3f writes for each Workload, want at most %.0f %%", got, all, 100*mostOfQueues)
	}
}
