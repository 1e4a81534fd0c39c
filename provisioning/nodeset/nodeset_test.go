package nodeset

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// model is what a Set stands for: the nodes by name. It computes each result from scratch.
type model map[string]*state.Node

func (m model) where(holds func(*state.Node) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if holds(m[name]) {
			names = append(names, name)
		}
	}
	return names
}

// classes groups the nodes that are equal for plans, by a text on what distinguishes them.
func (m model) classes(ideal bool, keys []string) map[string][]string {
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if n := m[name]; usable(n, ideal) {
			text := describe(n, ideal, keys)
			out[text] = append(out[text], name)
		}
	}
	return out
}

func roomOf(n *state.Node, ideal bool) nodegroups.Resources {
	if ideal {
		return n.Allocatable
	}
	return n.Free
}

// usable nodes have room for a pod. As they are, they also have to be open to all and without a booking.
func usable(n *state.Node, ideal bool) bool {
	return roomOf(n, ideal)["pods"] > 0 && (ideal || n.OpenToAll() && len(n.Bookings) == 0)
}

func describe(n *state.Node, ideal bool, keys []string) string {
	labels := map[string]string{}
	for _, key := range keys {
		if v, ok := n.Labels[key]; ok {
			labels[key] = v
		}
	}
	room := map[corev1.ResourceName]int64{}
	for name, v := range roomOf(n, ideal) {
		if v > 0 {
			room[name] = v
		}
	}
	return fmt.Sprint(n.Group, labels, n.Taints, n.EndsAt().Unix(), room)
}

func names(nodes iter.Seq[*state.Node]) (out []string) {
	for n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// repellingPod has an anti-affinity against pods of its own namespace, or of every one.
func repellingPod(namespace string, everywhere bool) *fit.Running {
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}}
	if everywhere {
		term.NamespaceSelector = &metav1.LabelSelector{}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	return fit.ReadRunning(p)
}

func randomNode(r *rand.Rand) *state.Node {
	now, rare := time.Unix(1_800_000_000, 0), func() bool { return r.IntN(4) == 0 }
	n := &state.Node{
		Name: fmt.Sprintf("node-%d", r.IntN(12)), Group: fmt.Sprintf("group-%d", r.IntN(2)), Ready: !rare(),
		Labels:      map[string]string{"rack": fmt.Sprint(r.IntN(2)), "serial": fmt.Sprint(r.IntN(1000))},
		Allocatable: nodegroups.Resources{"pods": 10, "cpu": int64(r.IntN(2) + 1), "memory": 4},
	}
	if rare() {
		delete(n.Labels, "rack")
	}
	if rare() {
		n.Labels[corev1.LabelHostname] = fmt.Sprintf("node-%d", r.IntN(12))
	}
	if rare() {
		n.Allocatable["nvidia.com/gpu"] = 2
	}
	n.Free = n.Allocatable.Clone()
	n.Free["pods"] = int64(r.IntN(3))
	n.Free["cpu"] -= int64(r.IntN(4)) // pods may have slipped onto a full node
	if rare() {
		n.Taints = []corev1.Taint{{Key: "team", Value: fmt.Sprint(r.IntN(2)), Effect: corev1.TaintEffectNoSchedule}}
	}
	if rare() {
		n.Machine = &cloudprovider.Machine{EndsAt: now.Add(time.Duration(r.IntN(2)) * time.Hour)}
	}
	if rare() {
		n.Launch = fmt.Sprintf("uid-%d-%dr1", r.IntN(2), r.IntN(2))
	}
	for range r.IntN(2) {
		b := state.Booking{Key: fmt.Sprintf("key-%d", r.IntN(2)), UID: types.UID([]string{"", "uid-0", "uid-1"}[r.IntN(3)])}
		n.Labelled = append(n.Labelled, b)
		if rare() {
			n.Bookings = append(n.Bookings, b)
		}
	}
	if rare() {
		n.UnbookedPods = []string{"team/pod"}
	}
	for range r.IntN(2) {
		n.Running = append(n.Running, repellingPod(fmt.Sprintf("team-%d", r.IntN(2)), rare()))
	}
	return n
}

// TestASetIsItsNodes: after random changes, each result of a Set is the one of a search through all nodes, and a clone that was made on the
// way has not changed.
func TestASetIsItsNodes(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		set, want := New("rack"), model{}
		var clone *Set
		var cloned model
		for step := range 60 {
			changes := set.Changes()
			if name := fmt.Sprintf("node-%d", r.IntN(12)); r.IntN(4) == 0 {
				set.Delete(name)
				if _, ok := want[name]; ok == (set.Changes() == changes) {
					t.Fatalf("seed %d: the deletion of a node that is there (%v) counts %d changes", seed, ok, set.Changes()-changes)
				}
				delete(want, name)
			} else {
				n := randomNode(r)
				set.Set(n)
				if set.Changes() == changes {
					t.Fatalf("seed %d: a new node counts as no change", seed)
				}
				want[n.Name] = n
			}
			if step == 30 {
				clone, cloned = set.Clone(), maps.Clone(want)
			}
			compare(t, fmt.Sprintf("seed %d, step %d", seed, step), set, want, "rack")
		}
		compare(t, fmt.Sprintf("seed %d, the clone", seed), clone, cloned, "rack")
		n := randomNode(r)
		clone.Set(n)
		cloned[n.Name] = n
		compare(t, fmt.Sprintf("seed %d, the changed clone", seed), clone, cloned, "rack")
		compare(t, fmt.Sprintf("seed %d, the set after that", seed), set, want, "rack")
		compare(t, fmt.Sprintf("seed %d, with more keys", seed), set.WithKeys([]string{"serial"}), want, "rack", "serial")
		if t.Failed() {
			return
		}
	}
}

func compare(t *testing.T, when string, set *Set, want model, keys ...string) {
	t.Helper()
	same := func(what string, got, want any) {
		t.Helper()
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s (-want +got)\n%s", when, what, diff)
		}
	}
	all := func(*state.Node) bool { return true }
	same("nodes", names(set.All()), want.where(all))
	same("number", set.Len(), len(want))
	for k := range 13 {
		name := fmt.Sprintf("node-%d", k)
		if got := set.Find(name); got != want[name] {
			t.Fatalf("%s: %s is %p, want %p", when, name, got, want[name])
		}
		same("host "+name, names(set.OwnedBy(HostNamed(name))), want.where(func(n *state.Node) bool {
			return n.Name == name || n.Labels[corev1.LabelHostname] == name
		}))
	}
	for _, uid := range []types.UID{"uid-0", "uid-1", "uid-2"} {
		by := want.where(func(n *state.Node) bool {
			return slices.ContainsFunc(n.Labelled, func(b state.Booking) bool { return b.UID == uid })
		})
		same("booked by "+string(uid), names(set.BookedBy(uid)), by)
		same("has bookings", set.HasBookings(uid), len(by) > 0)
		same("launched for "+string(uid), names(set.LaunchedFor(uid)), want.where(func(n *state.Node) bool {
			return n.Launch != "" && state.TokenUID(n.Launch) == uid
		}))
		token := state.Token(uid, 1)
		same("launched by "+token, names(set.LaunchedBy(token)), want.where(func(n *state.Node) bool {
			return state.AttemptToken(n.Launch) == token
		}))
	}
	for _, key := range []string{"key-0", "key-1"} {
		same(key, names(set.OwnedBy(KeyedBy(key))), want.where(func(n *state.Node) bool {
			return slices.ContainsFunc(n.Labelled, func(b state.Booking) bool { return b.Key == key })
		}))
	}
	same("awaiting", names(set.OwnedBy(Awaiting)), want.where(func(n *state.Node) bool { return len(n.Bookings) > 0 }))
	same("taken", names(set.OwnedBy(Taken)), want.where(func(n *state.Node) bool { return len(n.UnbookedPods) > 0 }))
	for _, namespace := range []string{"team-0", "team-1"} {
		repelling := slices.Compact(slices.Sorted(slices.Values(names(set.Repelling(namespace)))))
		same("repelling "+namespace, repelling, want.where(func(n *state.Node) bool {
			return slices.ContainsFunc(n.Running, func(p *fit.Running) bool {
				of, repels := p.Repels()
				return repels && (of == "" || of == namespace)
			})
		}))
	}
	for _, ideal := range []bool{false, true} {
		got, classOf := map[string][]string{}, map[string]*Class{}
		var before *Class
		for c, count := range set.Classes(ideal) {
			members := slices.Collect(set.Members(c, ideal))
			same("members of a class", len(members), count)
			got[describe(members[0], ideal, keys)] = names(slices.Values(members))
			if before != nil && cmp.Or(cmp.Compare(before.Devices, c.Devices), cmp.Compare(before.cpu, c.cpu),
				cmp.Compare(before.memory, c.memory)) > 0 {
				t.Fatalf("%s: a class with more comes before one with less", when)
			}
			before = c
			for _, n := range members {
				classOf[n.Name] = c
				same("devices", c.Devices, max(0, roomOf(n, ideal)["nvidia.com/gpu"]))
				same("group, taints, end and labels", []any{c.Group, c.Taints, c.EndsAt}, []any{n.Group, n.Taints, n.EndsAt()})
				for _, key := range keys {
					same("label "+key, c.Labels[key], n.Labels[key])
				}
				for _, name := range []corev1.ResourceName{"pods", "cpu", "memory", "nvidia.com/gpu"} {
					if k, ok := set.Index(name); ok {
						same("room of "+string(name), c.Room(k), max(0, roomOf(n, ideal)[name]))
					} else {
						same("room of "+string(name), int64(0), max(0, roomOf(n, ideal)[name]))
					}
				}
			}
		}
		same("classes", got, want.classes(ideal, keys))
		for k := range 13 {
			name := fmt.Sprintf("node-%d", k)
			if got := set.ClassOf(name, ideal); got != classOf[name] {
				t.Fatalf("%s: the class of %s is %p, want %p", when, name, got, classOf[name])
			}
		}
	}
}

// TestKeys: those that pods often select on always distinguish nodes.
func TestKeys(t *testing.T) {
	set := New("rack", "zz", "rack")
	if got := set.Keys(); len(got) != len(DefaultKeys)+2 || !slices.IsSorted(got) {
		t.Errorf("the keys are %v", got)
	}
	if got := set.Lacks([]string{"serial", "rack", corev1.LabelTopologyZone}); !slices.Equal(got, []string{"serial"}) {
		t.Errorf("it lacks %v, want serial", got)
	}
	set.Keys()[0] = "edited"
	if slices.Contains(set.Keys(), "edited") {
		t.Error("the caller may edit the keys of the set")
	}
}

// TestScatters: a label that is different on each of many nodes must not distinguish them, or each plan goes over all nodes. One that
// divides them into a few kinds may, however many nodes there are.
func TestScatters(t *testing.T) {
	for _, tc := range []struct {
		name          string
		nodes, values int
		zones         int
		scatters      bool
	}{
		{name: "few nodes", nodes: scattered, values: scattered, zones: 1},
		{name: "a serial number", nodes: 400, values: 400, zones: 1, scatters: true},
		{name: "racks", nodes: 400, values: 20, zones: 1},
		{name: "as many as may be", nodes: 400, values: scattered + 2, zones: 1},
		{name: "one more", nodes: 400, values: scattered + 3, zones: 1, scatters: true},
		{name: "as many as may be, of several zones", nodes: 400, values: scattered + 2*4, zones: 4},
		{name: "one more of several zones", nodes: 400, values: scattered + 2*4 + 1, zones: 4, scatters: true},
	} {
		set := New()
		for k := range tc.nodes {
			v := k % tc.values
			set.Set(&state.Node{Name: fmt.Sprint(k), Labels: map[string]string{
				"label": fmt.Sprint(v), corev1.LabelTopologyZone: fmt.Sprint(v % tc.zones)}})
		}
		if got := set.Scatters("label"); got != tc.scatters {
			t.Errorf("%s: the label scatters the nodes: %v, want %v", tc.name, got, tc.scatters)
		}
	}
}

// TestKindsAreForgotten: nodes come and go for months.
func TestKindsAreForgotten(t *testing.T) {
	set := New("serial")
	for k := range 1000 {
		set.Set(&state.Node{Name: "a", Ready: true, Labels: map[string]string{"serial": fmt.Sprint(k)},
			Free: nodegroups.Resources{"pods": 1}, Allocatable: nodegroups.Resources{"pods": 1}})
	}
	if got := len(set.kinds); got > 100 {
		t.Errorf("%d kinds are known of one node", got)
	}
}

// TestRangesMayEndEarly: the caller of Repelling gets no node after it has stopped, although there are two lists of them.
func TestRangesMayEndEarly(t *testing.T) {
	set := Of(state.Node{Name: "a", Ready: true, Running: []*fit.Running{repellingPod("team", true)}},
		state.Node{Name: "b", Running: []*fit.Running{repellingPod("team", false)}})
	var got []string
	for n := range set.Repelling("team") {
		got = append(got, n.Name)
		break
	}
	if !slices.Equal(got, []string{"a"}) {
		t.Errorf("the first node that repels is %v", got)
	}
}
