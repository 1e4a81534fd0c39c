package scenario

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func cpu(n int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

// gang is one Job of so many pods of a CPU.
func gang(at time.Duration, pods int32, runs time.Duration) Arrival {
	return one(1, When{From: of(at)}, Shape{Pods: pods, Requests: cpu(1), RunFor: RunTime{AtLeast: of(runs)}})
}

func TestBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		cpus   int
		groups []v1alpha1.NodeGroup
		jobs   []Arrival
		want   Bound
	}{
		"one Job takes as long as it runs": {
			cpus: 10, jobs: []Arrival{gang(0, 5, time.Minute)},
			want: Bound{Area: of(30 * time.Second), FIFO: of(time.Minute), FirstWave: 5, Binding: "cpu"},
		},
		"two that do not fit together run one after the other": {
			cpus: 10, jobs: []Arrival{gang(0, 6, time.Minute), gang(0, 6, time.Minute)},
			want: Bound{Area: of(72 * time.Second), FIFO: of(2 * time.Minute), FirstWave: 6, Binding: "cpu"},
		},
		"who is small goes before who does not fit": {
			cpus: 10, jobs: []Arrival{gang(0, 6, time.Minute), gang(0, 6, time.Minute), gang(0, 4, time.Minute)},
			want: Bound{Area: of(96 * time.Second), FIFO: of(2 * time.Minute), FirstWave: 10, Binding: "cpu"},
		},
		"the longest at the end is what first come, first served costs": {
			cpus: 2, jobs: []Arrival{gang(0, 1, time.Minute), gang(0, 1, time.Minute), gang(0, 1, 2*time.Minute)},
			want: Bound{Area: of(2 * time.Minute), FIFO: of(3 * time.Minute), FirstWave: 2, Binding: "cpu"},
		},
		"nobody runs before he comes, and the clock starts with the first": {
			cpus: 2, jobs: []Arrival{gang(time.Hour, 1, time.Minute), gang(time.Hour+5*time.Minute, 1, time.Minute)},
			want: Bound{Area: of(time.Minute), FIFO: of(6 * time.Minute), FirstWave: 1, Binding: "cpu"},
		},
		"the first wave may take its time to come": {
			cpus: 3, jobs: []Arrival{gang(time.Minute, 1, time.Hour), gang(3*time.Minute, 1, time.Hour)},
			want: Bound{Area: of(40 * time.Minute), FIFO: of(62 * time.Minute), FirstWave: 2, FirstWaveIn: of(2 * time.Minute), Binding: "cpu"},
		},
		"machines that all have to be bought boot first, and a pool has no more than it holds": {
			groups: []v1alpha1.NodeGroup{pool(2, time.Minute), pool(4, 30*time.Second)},
			jobs:   []Arrival{gang(0, 6, time.Minute)},
			want:   Bound{Area: of(90 * time.Second), FIFO: of(90 * time.Second), FirstWave: 6, Boot: of(30 * time.Second), Binding: "cpu"},
		},
		"machines that were bought before a drought go on in it": {
			groups: []v1alpha1.NodeGroup{scarce(pool(4, time.Minute), 5*time.Minute, 1)},
			jobs:   []Arrival{gang(0, 4, 10*time.Minute)},
			want:   Bound{Area: of(11 * time.Minute), FIFO: of(11 * time.Minute), FirstWave: 4, Boot: of(time.Minute), Binding: "cpu"},
		},
		"who fits nowhere is left out and counted": {
			cpus: 4, jobs: []Arrival{gang(0, 5, time.Minute), gang(0, 4, time.Minute)},
			want: Bound{Area: of(time.Minute), FIFO: of(time.Minute), FirstWave: 4, Binding: "cpu", Impossible: 1},
		},
		"who has pods that are larger than each machine fits nowhere": {
			groups: []v1alpha1.NodeGroup{pool(4, 0)},
			jobs:   []Arrival{gang(0, 4, time.Minute), one(1, When{}, Shape{Pods: 1, Requests: cpu(2), RunFor: RunTime{AtLeast: of(time.Minute)}})},
			want:   Bound{Area: of(time.Minute), FIFO: of(time.Minute), FirstWave: 4, Binding: "cpu", Impossible: 1},
		},
		"who asks for what no machine has fits nowhere": {
			cpus: 4, jobs: []Arrival{gang(0, 4, time.Minute), one(1, When{}, Shape{Pods: 1, RunFor: RunTime{AtLeast: of(time.Minute)},
				Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}})},
			want: Bound{Area: of(time.Minute), FIFO: of(time.Minute), FirstWave: 4, Binding: "cpu", Impossible: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Scenario{Groups: tc.groups, Arrivals: tc.jobs}
			if tc.cpus > 0 {
				s.Nodes = []Nodes{{Name: "node", Count: 1, Capacity: cpu(tc.cpus)}}
			}
			if diff := cmp.Diff(tc.want, s.Bound()); diff != "" {
				t.Errorf("bound (-want +got):\n%s", diff)
			}
		})
	}
}

// pool of at most four machines of one CPU.
func pool(holds int32, boot time.Duration) v1alpha1.NodeGroup {
	g := v1alpha1.NodeGroup{}
	g.Spec.MaxNodes, g.Spec.Template.Capacity = 4, cpu(1)
	g.Spec.Kwok = &v1alpha1.KwokPool{Holds: &holds, BootDelay: of(boot)}
	return g
}

// scarce is the group with a drought from then on.
func scarce(g v1alpha1.NodeGroup, from time.Duration, holds int32) v1alpha1.NodeGroup {
	begins := of(from)
	g.Spec.Kwok.Faults = append(g.Spec.Kwok.Faults, v1alpha1.KwokFault{Type: v1alpha1.FaultDry, From: &begins, Holds: holds})
	return g
}

// The public test: what its readers computed from its code.
func TestTheBoundOfThousandJobs(t *testing.T) {
	text, err := Text("thousand-jobs")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Bound()
	within(t, "area in seconds", int(b.Area.Seconds()), 450, 5)
	within(t, "first come, first served in seconds", int(b.FIFO.Seconds()), 534, 8)
	if b.FirstWave != 5000 {
		t.Errorf("%d pods are of the first wave, want 5,000", b.FirstWave)
	}
}

// slow is a schedule that is obviously right: it checks every millisecond.
func slow(w *work, order []int) time.Duration {
	free := w.capacity[0]
	ends := map[int]time.Duration{}
	left := len(order)
	for now := time.Duration(0); ; now += time.Millisecond {
		for job, at := range ends {
			if at == now {
				free += w.requests[job][0]
				left--
				ends[job] = -1
			}
		}
		if left == 0 {
			return now - w.jobs[0].At
		}
		for _, job := range order {
			if _, begun := ends[job]; !begun && w.jobs[job].At <= now && w.requests[job][0] <= free {
				free -= w.requests[job][0]
				ends[job] = now + w.jobs[job].RunFor
			}
		}
	}
}

func TestTheScheduleIsThatOfItsSlowTwin(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var jobs []Arrival
		for i := range 1 + random.IntN(12) {
			a := gang(time.Duration(random.IntN(20))*time.Millisecond, 1+random.Int32N(6), time.Duration(1+random.IntN(15))*time.Millisecond)
			a.Name = fmt.Sprint("job-", i)
			jobs = append(jobs, a)
		}
		submissions := (&Scenario{Arrivals: jobs}).Submissions()
		w := newWork(submissions, cpu(6))
		got, _, _ := w.schedule()
		if want := slow(w, w.possible); got != want {
			t.Fatalf("seed %d: %s, want %s", seed, got, want)
		}
	}
}
