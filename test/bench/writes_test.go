package bench

import (
	"strings"
	"testing"
)

// TestWritesForAThroughput: all Workloads of a tenth of the benchmark's load finish with the fewest possible writes.
//
// A Workload needs one status write for its admission, one for its end, and three for each eviction: the eviction, the release of its
// quota, and its next admission. Additional writes are reasons why it is pending. Their number depends on the speed of the machine: 0.2
// to 0.4 for each Workload were seen. The bound allows one for each Workload.
func TestWritesForAThroughput(t *testing.T) {
	const (
		needed, byEviction = 2, 3
		mostReasons        = 1
		// A write of a queue's status is paid for by 20 writes for Workloads or by a second, and a quiet cluster saves up 20; a status
		// that has changed is written within 10 seconds in any case.
		perStatus, savedUp, within = 20.0, 20.0, 10.0
	)
	s := newArena(t, contenders[muster]).mixed(10)
	if got := s.writes["workloads"]; got != 1 {
		t.Errorf("%.3f writes of each Workload beside those of its status, want its creation alone", got)
	}
	if got, least := s.writes["workloads/status"], needed+byEviction*s.evictions; got > least+mostReasons {
		t.Errorf("%.3f status writes and %.3f evictions for each Workload, want at most %.3f writes", got, s.evictions, least+mostReasons)
	}
	var forWorkloads float64
	for name, n := range s.writes {
		if strings.HasPrefix(name, "workloads") {
			forWorkloads += n * s.workloads
		}
	}
	seconds := s.took.Seconds()
	statuses := (s.writes["clusterqueues/status"] + s.writes["localqueues/status"]) * s.workloads
	if most := forWorkloads/perStatus + savedUp + seconds + 2*cohorts*queuesPerCohort*seconds/within; statuses > most {
		t.Errorf("the statuses of queues were written %.0f times beside %.0f writes for Workloads in %.0f s, want at most %.0f", statuses,
			forWorkloads, seconds, most)
	}
}
