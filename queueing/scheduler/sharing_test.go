package scheduler_test

import (
	"container/heap"
	"fmt"
	"math"
	"testing"
	"time"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/test/queues"
)

// running are the ends of admitted Workloads, the first on top.
type running []ending

// ending is when the run of a Workload ends that began at a time.
type ending struct {
	at    time.Time
	name  string
	since time.Time
}

func (r running) Len() int { return len(r) }

func (r running) Less(i, j int) bool { return r[i].at.Before(r[j].at) }

func (r running) Swap(i, j int) { r[i], r[j] = r[j], r[i] }

func (r *running) Push(x any) { *r = append(*r, x.(ending)) }

func (r *running) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// TestSharesByWeight saturates three queues of the weights 1, 2 and 4, whose
// jobs differ in length, and compares what they have used.
func TestSharesByWeight(t *testing.T) {
	w := queues.NewWith(config.Config{FairSharing: &kueueconfig.FairSharing{}})
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.Cohort(t, "all", nil, "spot cpu=70"))
	weights := map[string]int{"one": 1, "two": 2, "four": 4}
	lengths := map[string]time.Duration{"one": 7 * time.Second, "two": 20 * time.Second, "four": 11 * time.Second}
	for name, weight := range weights {
		w.Set(queues.ClusterQueue(t, name, map[string]string{"cohort": "all", "weight": fmt.Sprint(weight), "reclaim": "Any"}, "spot cpu=0"))
		w.Set(queues.LocalQueue(name, name, ""))
	}
	begin := w.Now
	queueOf, left := map[string]string{}, map[string]int{}
	used := map[string]float64{}
	ends := &running{}
	for w.Now.Sub(begin) < 20*time.Minute {
		for name := range weights {
			for ; left[name] < 80; left[name]++ {
				job := fmt.Sprintf("%s-%d", name, w.Created)
				queueOf[job] = name
				w.Set(w.Workload(t, job, map[string]string{"lq": name, "cpu": "2"}))
			}
		}
		for verdicts := w.State.Cycle(w.Now); len(verdicts) > 0; verdicts = w.State.Cycle(w.Now) {
			for i := range verdicts {
				v := &verdicts[i]
				if v.Action == lifecycle.Reserve {
					name := v.Workload.Object.Name
					left[queueOf[name]]--
					length := lengths[queueOf[name]]
					used[queueOf[name]] += length.Seconds()
					heap.Push(ends, ending{w.Now.Add(length), name, w.Now})
				}
				w.Apply(v, nil)
			}
		}
		w.Now = (*ends)[0].at
		for ends.Len() > 0 && !(*ends)[0].at.After(w.Now) {
			w.Change(t, "finish", heap.Pop(ends).(ending).name)
		}
	}
	total := used["one"] + used["two"] + used["four"]
	for name, weight := range weights {
		if share, want := used[name]/total, float64(weight)/7; math.Abs(share-want) > 0.05*want {
			t.Errorf("queue %s had %.1f %% of what was used, want %.1f %%", name, 100*share, 100*want)
		}
	}
}
