package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/queues"
)

// shortage prints what a Workload lacks on the nodes of its only flavor, although it has the quota.
func shortage(w *queues.World, t *testing.T, name string) string {
	e, ok := w.State.Explain(w.Find(t, name).UID, w.Now)
	if !ok || len(e.Flavors) != 1 {
		t.Fatalf("the explanation of %s is %+v", name, e)
	}
	s := e.Flavors[0].Topology
	if s == nil {
		return "nothing"
	}
	at := func(values []string) string { return strings.Join(values, "/") }
	out := fmt.Sprintf("%d pods of %s, at most %d in %q", s.Pods, s.PodSet, s.Domain.Count, at(s.Domain.Values))
	if len(s.Short) > 0 {
		out += fmt.Sprintf(", %d CPUs short", s.Short["cpu"]/1000)
	}
	if s.EmptyBest != nil {
		out += fmt.Sprintf(", without any Workload %d in %q", s.EmptyBest.Count, at(s.EmptyBest.Values))
	}
	for _, r := range s.Releases {
		out += "; or"
		for _, x := range r.Workloads {
			out += fmt.Sprintf(" %s:%d", x.Name, x.Pods)
			if x.Moves {
				out += " moves"
			}
		}
		out += fmt.Sprintf(" in %q", at(r.Domain))
	}
	return out
}

// TestWhatIsShortOnTheNodes: a user sees which domain comes nearest, how much it lacks, and whose end would help.
func TestWhatIsShortOnTheNodes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		run     map[string]string // Workloads that run, by name: their topology and pods
		waits   string
		count   string
		selects string
		beside  int32 // pods of a second podSet
		ends    string
		want    string
	}{
		{name: "it is too large for any rack", waits: "required:rack", count: "9",
			want: `9 pods of main, at most 8 in "a", 1 CPUs short, without any Workload 8 in "a"`},
		{name: "it is too large for all nodes", waits: "preferred:rack", count: "15",
			want: `15 pods of main, at most 8 in "a", without any Workload 8 in "a"`},
		{name: "it selects other nodes", waits: "required:rack", count: "2", selects: "elsewhere",
			want: `2 pods of main, at most 0 in "a", 2 CPUs short, without any Workload 0 in "a"`},
		{name: "one would have to end", run: map[string]string{"one": "required:rack 5", "two": "required:rack 5"},
			waits: "required:rack", count: "4",
			want: `4 pods of main, at most 3 in "a", 1 CPUs short; or two:5 in "a"; or one:5 in "b"`},
		{name: "one would have to end, and a second podSet is elsewhere", waits: "required:rack", count: "4", beside: 1,
			run:  map[string]string{"one": "required:rack 5", "two": "required:rack 5"},
			want: `4 pods of main, at most 3 in "a", 1 CPUs short; or two:5 in "a"; or one:5 in "b"`},
		{name: "it may be in several racks", run: map[string]string{"one": "required:rack 5", "two": "required:rack 5"},
			waits: "preferred:rack", count: "6", want: `6 pods of main, at most 3 in "a"; or two:5 in ""; or one:5 in ""`},
		{name: "two would have to end", run: map[string]string{"one": "required:rack 6", "two": "required:rack 3", "three": "required:rack 2"},
			waits: "required:rack", count: "8", want: `8 pods of main, at most 3 in "a", 5 CPUs short; or two:3 three:2 in "a"`},
		{name: "one could move", run: map[string]string{"one": "required:rack 6", "two": "required:rack 2"}, ends: "one",
			waits: "required:rack", count: "7", want: `7 pods of main, at most 6 in "a", 1 CPUs short; or two:2 moves in "a"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := queues.New()
			topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
			topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
			w.Set(topology)
			w.Set(queues.Flavor("gpu", map[string]string{"topology": "racks"}))
			w.Set(queues.ClusterQueue(t, "team", nil, "gpu cpu=60"))
			w.Set(queues.LocalQueue("main", "team", ""))
			for name, cpu := range map[string]string{"a1": "4", "a2": "4", "b1": "3", "b2": "3"} {
				w.Nodes(t, name, map[string]string{"pool": "gpu", "rack": name[:1], "cpu": cpu})
			}
			for _, name := range []string{"one", "two", "three"} {
				if level, count, ok := strings.Cut(tc.run[name], " "); ok {
					w.Set(w.Workload(t, name, map[string]string{"cpu": "1", "count": count, "topology": level}))
					w.Cycles(t)
				}
			}
			if tc.ends != "" {
				w.Change(t, "finish", tc.ends)
			}
			object := w.Workload(t, "waits", map[string]string{"cpu": "1", "count": tc.count, "topology": tc.waits})
			if tc.selects != "" {
				object.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"place": tc.selects}
			}
			if tc.beside > 0 {
				second := *object.Spec.PodSets[0].DeepCopy()
				second.Name, second.Count = "second", tc.beside
				object.Spec.PodSets = append(object.Spec.PodSets, second)
			}
			w.Set(object)
			w.Cycles(t)
			for range 2 { // an explanation changes nothing
				if got := shortage(w, t, "waits"); got != tc.want {
					t.Errorf("short are %s\nwant %s", got, tc.want)
				}
			}
		})
	}
}
