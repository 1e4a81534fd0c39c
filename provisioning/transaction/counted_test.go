package transaction

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
)

// sold is a machine that a cloud has created.
type sold struct {
	cloudprovider.Machine
	// listed is when lists show it first; gone is set once it is terminated.
	listed time.Time
	gone   bool
	// life is the process that requested it.
	life int
}

// shop is a cloud that creates machines for a request, lists them late and loses some, and a Muster whose processes die.
type shop struct {
	*story
	*testing.T
	machines []*sold
	lives    int
	// lag is the delay after which lists show a machine created by the next call. The cloud's queue creates its machines after
	// that.
	lag    time.Duration
	queues bool
	// queue is the number of machines that the cloud has still to create, requested by the process asked.
	queue, asked int
	// unclear is the number of machines that were never created but that Muster must count: a process died between the record of
	// its intent and the call, or the machine ended before a process saw it.
	unclear int
}

func newShop(t *testing.T, pods int) *shop {
	s := &shop{story: newStory(), T: t}
	s.request.ValidFor, s.request.Gang.PodSets[0].Count, s.request.Pods = 30*24*time.Hour, pods, pods
	s.view.Groups[0].Max = 1000
	s.live()
	return s
}

// live starts the next process, which has seen no machines.
func (s *shop) live() {
	for _, m := range s.machines {
		if m.gone && slices.Contains(s.view.Made, noted(m.Machine)) {
			s.forget(m)
		}
	}
	s.lives++
	s.view.Process, s.view.Made, s.view.Now = fmt.Sprint("process-", s.lives), nil, s.view.Now.Add(2*time.Second)
	s.list()
}

// list shows the listed machines to the process.
func (s *shop) list() {
	s.view.Machines = nil
	for _, m := range s.machines {
		if !m.gone && !s.view.Now.Before(m.listed) {
			s.see(m)
		}
	}
	for i := range s.queue {
		s.view.Machines = append(s.view.Machines, cloudprovider.Machine{Name: fmt.Sprint("place-", i), Group: "gpu", Hold: true,
			Launch: state.Token(uid, s.request.Attempt.Number)})
	}
	tokens := s.request.Attempt.Tokens(uid)
	s.view.Machines = slices.DeleteFunc(s.view.Machines, func(m cloudprovider.Machine) bool {
		return !slices.Contains(tokens, m.Launch)
	})
}

// see adds a machine to what the process has seen.
func (s *shop) see(m *sold) {
	s.view.Machines = append(s.view.Machines, m.Machine)
	if one := noted(m.Machine); !slices.Contains(s.view.Made, one) {
		s.view.Made = append(s.view.Made, one)
	}
}

// noted returns what a process records about a machine that it sees.
func noted(m cloudprovider.Machine) purchases.Machine {
	mark, call := purchases.Mark(m.Group, m.Name, time.Time{}), purchases.CallMark(m.Group, m.Launch)
	return purchases.Machine{Mark: mark, Call: call, Started: m.Started}
}

// create creates the missing machines of a call.
func (s *shop) create(c Call) {
	have := 0
	for _, m := range s.machines {
		if m.Launch == c.Token && m.Group == c.Group && !m.gone {
			have++
		}
	}
	for range c.Count - have - s.queue {
		if s.queues {
			s.queue, s.asked = s.queue+1, s.lives
			continue
		}
		s.add(c.Token, s.lag)
	}
}

func (s *shop) add(token string, lag time.Duration) {
	name := fmt.Sprint("i-", len(s.machines)+1)
	s.machines = append(s.machines, &sold{life: s.lives, listed: s.view.Now.Add(lag), Machine: cloudprovider.Machine{
		Name: name, ProviderID: "id-" + name, Group: "gpu", Launch: token, Started: s.view.Now.Truncate(time.Second),
	}})
}

// serve creates the machines in the cloud's queue.
func (s *shop) serve() {
	for ; s.queue > 0; s.queue-- {
		s.add(state.Token(uid, s.request.Attempt.Number), 0)
		s.machines[len(s.machines)-1].life = s.asked
	}
	s.list()
}

// lose terminates the machine from outside.
func (s *shop) lose(m *sold) {
	if m.gone = true; !slices.Contains(s.view.Made, noted(m.Machine)) {
		s.forget(m)
	}
	s.list()
}

// forget drops a machine that has ended from every process, unless it is recorded: each process since may have created it, or
// another one after it.
func (s *shop) forget(m *sold) {
	known := s.request.Purchases.With([]purchases.Machine{noted(m.Machine)})
	if known.Seen() > s.request.Purchases.Seen() {
		s.unclear += s.lives - m.life
	}
}

// bought returns the number of machines in the record, including what the process has seen.
func (s *shop) bought() int {
	p := s.request.bought(s.view, 0)
	return p.Bought() + p.Explained
}

// write stores the record of the step.
func (s *shop) write(step Step) {
	s.Helper()
	if step.Purchases != nil {
		var kept purchases.Record
		if err := json.Unmarshal([]byte(step.Purchases.Encode()), &kept); err != nil {
			s.Fatal(err)
		}
		s.request.Purchases = kept
	}
	switch step.Do {
	case Begin, Replace, RollBack:
		if s.request.Attempt = step.Attempt; step.Do == Begin {
			s.request.Gang.Launch = state.Token(uid, step.Attempt.Number)
		}
		s.list()
	}
}

// call creates the machines of the step and shows them to the process.
func (s *shop) call(step Step) {
	s.Helper()
	if got := s.bought(); got < len(s.machines) {
		s.Fatalf("process %d calls for more while %d of %d machines are counted: %+v", s.lives, got, len(s.machines), s.request.Purchases)
	}
	for _, c := range step.Launch {
		s.create(c)
	}
}

// answered shows the machines of its call to the process.
func (s *shop) answered() {
	for _, m := range s.machines {
		if !m.gone {
			m.listed = s.view.Now
		}
	}
	s.list()
}

// missing returns how many machines of the attempt's calls do not exist.
func (s *shop) missing() int {
	n := 0
	for _, c := range s.request.Attempt.Calls(uid) {
		n += c.Count
	}
	for _, m := range s.machines {
		if !m.gone && slices.Contains(s.request.Attempt.Tokens(uid), m.Launch) && !s.request.Attempt.lost(m.Machine) {
			n--
		}
	}
	return n - len(s.request.Attempt.losses())
}

// step decides and acts, unless the process dies in between.
func (s *shop) step(want Action) Step {
	s.Helper()
	s.list()
	step := Next(&s.request, s.view)
	if step.Do != want {
		s.Fatalf("step %s (%s), want %s", step.Do, step.Condition.Message, want)
	}
	s.write(step)
	return step
}

func (s *shop) wantBought(want int) {
	s.Helper()
	s.list()
	if got := s.bought(); got != want {
		s.Errorf("%d machines are counted, want %d: %+v", got, want, s.request.Purchases)
	}
}

// TestAMachineIsCountedOnce whichever way it becomes known.
func TestAMachineIsCountedOnce(t *testing.T) {
	for name, tell := range map[string]func(*shop){
		"made for a process that died, and listed late": func(s *shop) {
			s.lag = time.Minute
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.live()
			s.step(Count)
			s.call(s.step(LaunchMachines))
			s.answered()
			s.wantBought(3)
		},
		"its answer lost by two processes": func(s *shop) {
			s.lag, s.request.Accepts = time.Minute, 100
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			for range 2 {
				s.live()
				s.step(Count)
				s.call(s.step(LaunchMachines))
			}
			s.view.Now = s.view.Now.Add(2 * time.Minute)
			s.wantBought(3)
		},
		"made by the cloud's queue for a process that died": func(s *shop) {
			queued(s.story)
			s.queues = true
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.live()
			s.step(Count)
			s.call(s.step(LaunchMachines))
			s.view.Now = s.view.Now.Add(time.Hour)
			s.serve()
			s.wantBought(3)
		},
		"listed after its attempt was given up": func(s *shop) {
			s.lag = time.Hour
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.write(rollBack(&s.request, s.view, AttemptFailure{Class: v1alpha1.Timeout, Group: "gpu"}).tallied(&s.request, s.view))
			s.wantBought(3)
			s.view.Now = s.view.Now.Add(2 * time.Hour)
			s.wantBought(3)
		},
		"launched in place of one in another rack that had to be terminated first, after a restart": func(s *shop) {
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.answered()
			a := s.request.Attempt
			a.Replacements = []Replacement{{Level: "rack", Domain: "r1", Started: s.view.Now,
				Lost: []LostMachine{{Group: "gpu", Name: s.machines[0].Name, Launch: s.machines[0].Launch}}}}
			s.write(Step{Do: Replace, Attempt: a}.tallied(&s.request, s.view))
			s.live()
			s.step(Terminate)
			s.lose(s.machines[0])
			s.step(Count)
			s.call(s.step(LaunchMachines))
			s.answered()
			s.wantBought(4)
		},
	} {
		t.Run(name, func(t *testing.T) { tell(newShop(t, 3)) })
	}
}

// TestAnotherProcessCountsWhatTheOneBeforeMayHaveMade: a new process counts possible purchases of the previous one before it
// decides anything.
func TestAnotherProcessCountsWhatTheOneBeforeMayHaveMade(t *testing.T) {
	for name, tell := range map[string]func(*shop){
		"a replacement": func(s *shop) {
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.lose(s.machines[2])
			s.live()
			s.machines[1].State = cloudprovider.Terminated
			s.step(Replace)
		},
		"a rollback": func(s *shop) {
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			for _, m := range s.machines {
				s.lose(m)
			}
			s.live()
			s.view.Now = noon.Add(31 * 24 * time.Hour)
			s.step(RollBack)
		},
		"a call, where the last process had launched again what vanished": func(s *shop) {
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.answered()
			s.step(Rest)
			s.lose(s.machines[0])
			s.step(Count)
			s.call(s.step(LaunchMachines))
			s.lose(s.machines[3])
			s.live()
			s.step(Count)
		},
		"a call, where one of another attempt was listed late": func(s *shop) {
			s.lag = time.Hour
			s.step(Begin)
			s.call(s.step(LaunchMachines))
			s.write(rollBack(&s.request, s.view, AttemptFailure{Class: v1alpha1.Timeout}).tallied(&s.request, s.view))
			s.request.Attempt.Phase, s.lag = Done, 0
			s.write(Step{Do: Begin, Attempt: Attempt{Number: 2, Phase: Launching, Started: s.view.Now,
				Launches: []planner.GroupCount{{Group: "gpu", Count: 3}}}}.tallied(&s.request, s.view))
			s.machines[0].listed = s.view.Now
			s.list()
			s.call(Step{Launch: s.request.Attempt.Calls(uid)})
			for _, m := range s.machines[3:] {
				s.lose(m)
			}
			s.live()
			s.write(Step{Do: Count, Purchases: new(s.request.announce(s.request.bought(s.view, 3), s.view, progressOf(&s.request, s.view)))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 3)
			tell(s)
			s.wantBought(len(s.machines))
		})
	}
}

// TestPurchasesAreCountedWhateverHappens: processes die at any time, lists are late and machines vanish. No call is made while the
// count is below the machines created, and the count never exceeds what Muster must assume was created.
func TestPurchasesAreCountedWhateverHappens(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 39))
		s := newShop(t, 1+random.IntN(4))
		s.request.Accepts = 1 << 20 // it is counted, and not stopped
		s.queues = random.IntN(4) == 0
		if s.queues {
			queued(s.story)
		}
		for range 60 {
			s.lag = []time.Duration{0, 5 * time.Second, time.Minute}[random.IntN(3)]
			if len(s.machines) > 0 && random.IntN(6) == 0 {
				if m := s.machines[random.IntN(len(s.machines))]; !m.gone {
					s.lose(m)
				}
			}
			if random.IntN(3) == 0 {
				s.serve()
			}
			s.list()
			dies := random.IntN(5)
			step := Next(&s.request, s.view)
			if dies == 0 {
				s.unclear += s.possible()
				s.live() // before it is recorded
				continue
			}
			s.write(step)
			if dies == 1 {
				s.unclear += s.possible()
				s.live()
				continue
			}
			switch step.Do {
			case LaunchMachines:
				s.call(step)
				if dies == 2 {
					s.live()
					continue
				}
				s.answered()
			case Terminate:
				for _, m := range s.machines {
					m.gone = m.gone || slices.ContainsFunc(step.Terminate, func(o cloudprovider.Machine) bool { return o.Name == m.Name })
				}
				s.queue = 0
			case Begin, Replace, Count:
				continue // what is put on record is done at once
			}
			s.view.Now = s.view.Now.Add(time.Duration(random.IntN(90_000)) * time.Millisecond)
		}
		s.view.Now = s.view.Now.Add(2 * time.Minute)
		s.serve()
		if got, made := s.bought(), len(s.machines); got > made+s.unclear {
			t.Fatalf("seed %d: %d machines are counted, %d were made and %d more may have been: %+v", seed, got, made, s.unclear,
				s.request.Purchases)
		}
	}
}

// possible returns how many machines, according to the record, the process may have created and has not.
func (s *shop) possible() int {
	if s.request.Attempt.Phase != Launching {
		return 0
	}
	return s.missing()
}
