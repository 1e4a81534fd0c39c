package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/faults"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/testbed"
)

// leaderRounds is how often the leader loses its lease in the middle of a launch.
var leaderRounds = flag.Int("leader-rounds", 4, "how often the leader loses its lease in the middle of a launch")

// succession is how long it may take until another process leads and works: a lease of 2 s, one poll of it, and the load of the machine.
const succession = 15 * time.Second

// launches has something done as a muster makes its n-th machine from now on.
type launches struct{ left atomic.Int64 }

// handler counts the machines that are requested through next.
func (l *launches) handler(next http.Handler, at func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/machines") && l.left.Add(-1) == 0 {
			at()
		}
		next.ServeHTTP(w, r)
	})
}

// TestALeaderThatLosesItsLeaseInTheMiddleOfALaunch: it is frozen, cut off, or what it
// has sent is held up on the way while it is frozen, until another leads. Then it
// goes on. No machine may be launched twice, none be left.
func TestALeaderThatLosesItsLeaseInTheMiddleOfALaunch(t *testing.T) {
	t.Parallel()
	gate, made, hit := faults.NewGate(seed), &launches{}, make(chan struct{}, 1)
	config := whole()
	config.Standby = true
	config.MusterFlags = []string{"--leader-elect-lease-duration=2s"}
	config.Proxy = func(component string, next http.Handler) http.Handler {
		return made.handler(gate.Handler(component, next), func() { hit <- struct{}{} })
	}
	s := &site{testbed.NewSite(t, alone(t, "leader", config, promises.Provisions, promises.Launches, promises.ScaledDown, promises.Bookings,
		promises.Departures))}
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes, g.Spec.Kwok.BootDelay.Duration, g.Spec.IdleTimeout.Duration = 64, 0, 100*time.Millisecond
	})
	random := rand.New(rand.NewPCG(seed, seed))
	found := map[string]int{}
	for round := range *leaderRounds {
		leader, next := s.leader()
		s.Watcher.StandStill(time.Now().Add(succession))
		select {
		case <-hit:
		default:
		}
		// Half of the rounds wait for so many machines, half for so long.
		byTime := round%2 == 1
		moment := time.NewTimer(time.Duration(random.Int64N(int64(800 * time.Millisecond))))
		if !byTime {
			made.left.Store(1 + random.Int64N(20))
		}
		// Machines are created 16 at a time, and slowly, so that some are requested and others are not yet.
		slow := gate.Begin(faults.Fault{
			Type: faults.DelayAnswers, Target: leader, Resources: []string{"machines"}, Delay: metav1.Duration{Duration: 100 * time.Millisecond},
		})
		requests := []*provreq.ProvisioningRequest{
			s.request(fmt.Sprintf("gang-%d-small", round), 2+random.Int32N(4), nil),
			s.request(fmt.Sprintf("gang-%d-large", round), 20+random.Int32N(5), nil),
		}
		if byTime {
			<-moment.C
		} else {
			s.Eventually(fmt.Sprintf("round %d: %s launches machines", round, leader), func() bool {
				select {
				case <-hit:
					return true
				default:
					return false
				}
			}, func() string { return "it has made none" })
		}
		trouble, wake := s.depose(gate, leader, round%3)
		slow()
		s.Watcher.StandStill(time.Now().Add(succession))
		found[fmt.Sprintf("%s %s", trouble, s.progress(requests))]++
		s.Eventually(next+" leads", func() bool { return s.leads(next) }, func() string { return "the lease stands" })
		// In half of the rounds, the fault ends before the old leader has noticed that it lost the lease. If its calls may arrive late,
		// only a cloud with idempotent launches could distinguish them from new ones.
		over := trouble != late && random.IntN(2) == 0
		if over {
			s.withdraw(requests)
			s.Empty(g.Name)
		} else {
			for _, r := range requests {
				s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
			}
		}
		restarts := s.restarts(leader)
		wake()
		s.Eventually(leader+" ends, since it does not lead", func() bool { return s.restarts(leader) > restarts || trouble == cutOff },
			func() string { return "it lives" })
		if !over {
			s.madeOnce(requests)
			s.withdraw(requests)
		}
		if err := s.Resume(leader); err != nil { // without the pause after a death
			t.Fatal(err)
		}
		if err := s.WaitReady(t.Context(), leader); err != nil {
			t.Fatal(err)
		}
		s.Empty(g.Name)
		if v := s.Watcher.Violations(); len(v) > 0 {
			t.Fatalf("round %d, %s at a moment after %s: %v", round, trouble, s.progress(requests), v)
		}
	}
	midway := 0
	for _, what := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%3d × %s", found[what], what)
		if strings.HasSuffix(what, amidLaunch) {
			midway += found[what]
		}
	}
	if least := (*leaderRounds + 3) / 4; midway < least {
		t.Errorf("%d of %d leaders lost their lease %s, want %d at least: it would not be tested", midway, *leaderRounds, amidLaunch, least)
	}
}

// What keeps a leader from renewing its lease.
const (
	frozen = "frozen"
	cutOff = "cut off"
	// late: what it has sent last arrives when another leads.
	late = "held up"
)

// depose keeps the leader from renewing its lease until wake is called.
func (s *site) depose(gate *faults.Gate, leader string, way int) (trouble string, wake func()) {
	s.Helper()
	do := func(f func(string) error) {
		s.Helper()
		if err := f(leader); err != nil {
			s.Fatal(err)
		}
	}
	switch way {
	case 0:
		do(s.Freeze)
		return frozen, func() { do(s.Thaw) }
	case 1:
		return cutOff, gate.Begin(faults.Fault{Type: faults.Disconnect, Target: leader})
	default:
		over := gate.Begin(faults.Fault{Type: faults.HoldRequests, Target: leader})
		moment := time.NewTimer(100 * time.Millisecond)
		<-moment.C
		do(s.Freeze)
		return late, func() {
			over()
			do(s.Thaw)
		}
	}
}

// machinesEver counts the machines that were created for each request, including those that have ended.
func (s *site) machinesEver() (made map[types.UID]int, err error) {
	var machines kwokv1alpha1.MachineList
	if err := s.Kube.List(s.Context(), &machines); err != nil {
		return nil, err
	}
	made = map[types.UID]int{}
	for i := range machines.Items {
		made[state.TokenUID(machines.Items[i].Spec.Launch)]++
	}
	return made, nil
}

// madeOnce: the next leader went on with the launch, and did not begin another one.
func (s *site) madeOnce(requests []*provreq.ProvisioningRequest) {
	s.Helper()
	made, err := s.machinesEver()
	if err != nil {
		s.Fatal(err)
	}
	for _, r := range requests {
		if got, want := made[r.UID], int(r.Spec.PodSets[0].Count); got != want {
			s.Errorf("%d machines were made for %s, want %d", got, r.Name, want)
		}
	}
}

// amidLaunch is the most critical moment.
const amidLaunch = "between the machines of a launch"

// progress is how far the launches of the requests have come.
func (s *site) progress(requests []*provreq.ProvisioningRequest) string {
	made, err := s.machinesEver()
	if err != nil {
		return "at an unknown moment"
	}
	begun, whole, provisioned := 0, 0, 0
	for _, r := range requests {
		if !s.Get(r) {
			continue
		}
		if made[r.UID] > 0 || len(r.Status.ProvisioningClassDetails) > 0 {
			begun++
		}
		if made[r.UID] == int(r.Spec.PodSets[0].Count) {
			whole++
		}
		if meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned) {
			provisioned++
		}
	}
	switch {
	case begun == 0:
		return "before any launch"
	case provisioned == len(requests):
		return "after all launches"
	case whole < begun:
		return amidLaunch
	default:
		return "between launches and the end"
	}
}

// withdraw deletes the requests.
func (s *site) withdraw(requests []*provreq.ProvisioningRequest) {
	s.Helper()
	for _, r := range requests {
		s.Delete(r)
	}
}

// leader waits until one of the two musters leads, and returns it first.
func (s *site) leader() (leader, other string) {
	s.Helper()
	s.Eventually("a muster leads", func() bool {
		leader, other = cluster.Muster, cluster.Standby
		if s.leads(other) {
			leader, other = other, leader
		}
		return s.leads(leader)
	}, func() string { return "neither does" })
	return leader, other
}

// leads reports whether a muster leads: its controllers start then, and it exits when it loses the lease.
func (s *site) leads(component string) bool {
	url := s.MusterMetrics()
	if component == cluster.Standby {
		url = s.StandbyMetrics()
	}
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // it is starting
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "controller_runtime_max_concurrent_reconciles{") {
			return true
		}
	}
	return false
}

// restarts is how often a component died.
func (s *site) restarts(component string) int {
	components := s.State().Components
	return components[slices.IndexFunc(components, func(c cluster.ComponentState) bool { return c.Name == component })].Restarts
}
