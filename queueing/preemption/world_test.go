package preemption

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// world is read from text. A line of the tree is a node below the one that is indented less: its name and words such as gpu=4,
// gpu.borrow=2, gpu.lend=1 and weight=2. A line of the running Workloads is a name, its ClusterQueue and words such as gpu=3, priority=1,
// at=5 (when it got its quota), cost=7 and evicted. By default, they got their quota in the order of the lines.
type world struct {
	nodes   map[string]*quota.Node
	running map[*quota.Node][]*Workload
	names   map[types.UID]string
}

func gpu(resource string) quota.FlavorResource {
	return quota.FlavorResource{Flavor: "spot", Resource: corev1.ResourceName(resource)}
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%q is no number", text)
	}
	return v
}

func newWorld(t *testing.T, tree, running string) *world {
	t.Helper()
	w := &world{nodes: map[string]*quota.Node{}, running: map[*quota.Node][]*Workload{}, names: map[types.UID]string{}}
	type line struct {
		depth int
		node  *quota.Node
	}
	var lines []line
	for text := range strings.Lines(tree) {
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		weight, quotas := int64(1000), map[quota.FlavorResource]quota.Quota{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			if key == "weight" {
				weight = number(t, value) * 1000
				continue
			}
			resource, limit, _ := strings.Cut(key, ".")
			q, v := quotas[gpu(resource)], number(t, value)
			switch limit {
			case "borrow":
				q.Borrowing = &v
			case "lend":
				q.Lending = &v
			default:
				q.Nominal = v
			}
			quotas[gpu(resource)] = q
		}
		w.nodes[words[0]] = quota.NewNode(words[0], weight, quotas)
		lines = append(lines, line{strings.Count(text, "\t"), w.nodes[words[0]]})
	}
	// Those further down join first.
	for i := len(lines) - 1; i >= 0; i-- {
		for j := i - 1; j >= 0; j-- {
			if lines[j].depth < lines[i].depth {
				lines[i].node.Join(lines[j].node)
				break
			}
		}
	}
	for text := range strings.Lines(running) {
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		queue := w.nodes[words[1]]
		one := &Workload{UID: types.UID(words[0]), Queue: queue, Usage: quota.Amounts{}, Reserved: time.Unix(int64(len(w.names)), 0)}
		for _, word := range words[2:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "evicted":
				one.Evicted = true
			case "priority":
				one.Priority = int32(number(t, value))
			case "at":
				one.Reserved = time.Unix(number(t, value), 0)
			case "queued":
				one.Queued = time.Unix(number(t, value), 0)
			case "cost":
				one.Cost = number(t, value)
			case "lately":
				one.LocalQueueUsage = float64(number(t, value))
			default:
				one.Usage[gpu(key)] = number(t, value)
			}
		}
		w.names[one.UID] = words[0]
		w.running[queue] = append(w.running[queue], one)
		queue.Add(one.Usage)
	}
	return w
}

// question is one by a preemptor such as "a gpu=2 priority=1".
func (w *world) question(t *testing.T, preemptor string, policy kueue.ClusterQueuePreemption) Preemptor {
	t.Helper()
	words := strings.Fields(preemptor)
	q := Preemptor{Queue: w.nodes[words[0]], Policy: policy, Needs: quota.Amounts{},
		Running: func(n *quota.Node) []*Workload { return w.running[n] }}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "priority":
			q.Priority = int32(number(t, value))
		case "queued":
			q.Queued = time.Unix(number(t, value), 0)
		default:
			q.Needs[gpu(key)] = number(t, value)
		}
	}
	return q
}

// show is an answer as the tables have it.
func show(a Result) string {
	if a.Why != "" {
		return a.Why
	}
	var words []string
	for _, t := range a.Targets {
		words = append(words, string(t.UID)+" "+t.Reason)
	}
	return strings.Join(words, ", ")
}

func within(p kueue.PreemptionPolicy) kueue.ClusterQueuePreemption {
	return kueue.ClusterQueuePreemption{WithinClusterQueue: p}
}

func reclaim(p kueue.PreemptionPolicy) kueue.ClusterQueuePreemption {
	return kueue.ClusterQueuePreemption{ReclaimWithinCohort: p}
}
