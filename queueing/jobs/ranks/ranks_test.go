package ranks

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
)

const (
	indexLabel = "index"
	groupLabel = "group"
	rack       = "rack"
)

// written is a pod: its name, its index, its group, its offset, where it is, and how it fares.
var written = regexp.MustCompile(`^(\w+)(?:=(-?\w+))?(?:#(\w+))?(?:\+(\w+))?(?:@([\w/]+))?([!.]?)$`)

// podsOf reads pods like "c=2#1+4@a!": that is pod c with index 2 in group 1 and offset 4, which was
// sent to domain a and terminates; one that has ended has a dot.
func podsOf(t testing.TB, levels []string, text string) (waiting, open []*corev1.Pod) {
	for word := range strings.FieldsSeq(text) {
		m := written.FindStringSubmatch(word)
		if m == nil {
			t.Fatalf("pod %q is not written right", word)
		}
		pod := &corev1.Pod{}
		pod.Name, pod.Labels = m[1], map[string]string{}
		if m[2] != "" {
			pod.Labels[indexLabel] = m[2]
		}
		if m[3] != "" {
			pod.Labels[groupLabel] = m[3]
		}
		if m[4] != "" {
			pod.Annotations = map[string]string{kueue.PodIndexOffsetAnnotation: m[4]}
		}
		switch m[6] {
		case "!":
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		case ".":
			pod.Status.Phase = corev1.PodFailed
		}
		if m[5] == "" {
			waiting = append(waiting, pod)
			continue
		}
		pod.Spec.NodeSelector = map[string]string{}
		for i, value := range strings.Split(m[5], "/") {
			pod.Spec.NodeSelector[levels[i]] = value
		}
		open = append(open, pod)
	}
	return waiting, open
}

// workloadOf is one with a podSet that is assigned domains like "a:2 b:1".
func workloadOf(t testing.TB, levels []string, domains string, request *kueue.PodSetTopologyRequest) *kueue.Workload {
	var all []placement.Domain
	var count int32
	for word := range strings.FieldsSeq(domains) {
		values, n, _ := strings.Cut(word, ":")
		d := placement.Domain{Values: strings.Split(values, "/")}
		if _, err := fmt.Sscan(n, &d.Count); err != nil {
			t.Fatalf("domain %q: %v", word, err)
		}
		count += d.Count
		all = append(all, d)
	}
	w := &kueue.Workload{}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count, TopologyRequest: request}}
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: &count, TopologyAssignment: placement.Encode(levels, all),
	}}}
	return w
}

func TestPlace(t *testing.T) {
	host := []string{corev1.LabelHostname}
	indexed := &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel)}
	grouped := &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel), SubGroupIndexLabel: new(groupLabel), SubGroupCount: new(int32(2))}
	unknown := &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel), SubGroupIndexLabel: new(groupLabel)}
	for name, tc := range map[string]struct {
		levels  []string
		domains string
		count   int32
		lost    []string
		request *kueue.PodSetTopologyRequest
		pods    string
		want    string
	}{
		"ranks follow the order of the domains":        {request: indexed, domains: "b:2 a:1", pods: "p=2 q=0 r=1", want: "p:a q:b r:b"},
		"a pod that comes late has its place":          {request: indexed, domains: "a:1 b:1 c:1", pods: "p=2", want: "p:c"},
		"ranks of the pods that run are kept":          {request: indexed, domains: "a:2 b:2", pods: "p=0@a q=3@b r=2 s=1", want: "r:b s:a"},
		"pods without ranks fill domains in order":     {domains: "a:2 b:1", pods: "p q r", want: "p:a q:a r:b"},
		"a pod without its label ends ranks for all":   {request: indexed, domains: "a:1 b:1", pods: "p=1 q", want: "p:a q:b"},
		"so does an index that two have":               {request: indexed, domains: "a:1 b:1", pods: "p=1 q=1", want: "p:a q:b"},
		"so does one that is no number":                {request: indexed, domains: "a:1 b:1", pods: "p=1 q=x", want: "p:a q:b"},
		"so does one that is out of range":             {request: indexed, domains: "a:1 b:1", pods: "p=1 q=2", want: "p:a q:b"},
		"so does a pod that runs elsewhere":            {request: indexed, domains: "a:1 b:1 c:1", pods: "p=2@a q=1 r=0", want: "q:b r:c"},
		"so do domains for fewer than were admitted":   {request: indexed, domains: "a:1 b:1", count: 3, pods: "p=1 q=2 r=0", want: "p:a q:b"},
		"an offset is taken off the index":             {request: indexed, domains: "a:1 b:1", pods: "p=5+4 q=4+4", want: "p:b q:a"},
		"an index below the offset":                    {request: indexed, domains: "a:1 b:1", pods: "p=5+5 q=4+5", want: "p:a q:b"},
		"an offset that is no number":                  {request: indexed, domains: "a:1 b:1", pods: "p=1+x q=0+x", want: "p:a q:b"},
		"groups number their own":                      {request: grouped, domains: "a:2 b:2", pods: "p=1#1 q=0#1 r=1#0 s=0#0", want: "p:b q:b r:a s:a"},
		"an index beyond its group":                    {request: grouped, domains: "a:2 b:2", pods: "p=2#0 q=1#0", want: "p:a q:a"},
		"groups of which the number is not known":      {request: unknown, domains: "a:1 b:1", pods: "p=1#0 q=0#0", want: "p:a q:b"},
		"an index beyond what was admitted":            {request: indexed, domains: "a:1 b:2", count: 2, pods: "p=2 q=0", want: "p:a q:b"},
		"a group beyond their number":                  {request: grouped, domains: "a:2 b:2", pods: "p=0#2 q=0#1", want: "p:a q:a"},
		"a domain gets no more than it was assigned":   {domains: "a:1 b:1", pods: "p@a q r", want: "q:b"},
		"nor by ranks":                                 {request: indexed, domains: "a:1 b:1", pods: "p=0@a! q=0 r=1", want: "r:b"},
		"a pod that has ended leaves its place":        {request: indexed, domains: "a:1 b:1", pods: "p=0@a. q=0 r=1@b", want: "q:a"},
		"one that terminates keeps it":                 {domains: "a:1 b:1", pods: "p@a! q@b r", want: ""},
		"one that terminates goes nowhere":             {domains: "a:1 b:1", pods: "p! q r!", want: "q:a"},
		"no pod goes to a node that is to be replaced": {request: indexed, domains: "a:1 b:1", lost: []string{"a"}, pods: "p=0 q=1", want: "q:b"},
		"nor one without a rank":                       {domains: "a:1 b:1", lost: []string{"a"}, pods: "p q", want: "p:b"},
		"other levels are not nodes":                   {levels: []string{rack}, domains: "a:1 b:1", lost: []string{"a"}, pods: "p q", want: "p:a q:b"},
		"a replaced node leaves the others alone":      {request: indexed, domains: "a:1 c:1 z:1", pods: "p=0@a q=1 r=2@c", want: "q:z"},
		"equal names in other domains are not equal":   {levels: []string{"block", rack}, domains: "x/a:1 y/a:1", pods: "p@x/a q", want: "q:y/a"},
		"one that ran before the domains were changed": {domains: "a:1 b:1", pods: "p@z q r", want: "q:a r:b"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.levels == nil {
				tc.levels = host
			}
			w := workloadOf(t, tc.levels, tc.domains, tc.request)
			if tc.count > 0 {
				w.Status.Admission.PodSetAssignments[0].Count = &tc.count
			}
			for _, n := range tc.lost {
				w.Status.UnhealthyNodes = append(w.Status.UnhealthyNodes, kueue.UnhealthyNode{Name: n})
			}
			if got := placed(t, w, 0, tc.pods); got != tc.want {
				t.Errorf("placed %q, want %q", got, tc.want)
			}
		})
	}
}

// placed are the pods of a podSet with their domains, by name.
func placed(t testing.TB, w *kueue.Workload, podSet int, pods string) string {
	all, err := Of(w)
	if err != nil {
		t.Fatal(err)
	}
	levels := w.Status.Admission.PodSetAssignments[podSet].TopologyAssignment.Levels
	var out []string
	for _, target := range all[podSet].Place(podsOf(t, levels, pods)) {
		var values []string
		for _, level := range levels {
			values = append(values, target.Selector[level])
		}
		out = append(out, target.Pod.Name+":"+strings.Join(values, "/"))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestWorkersComeAfterTheirLeader: a LeaderWorkerSet numbers the pods of a group from its leader on.
func TestWorkersComeAfterTheirLeader(t *testing.T) {
	host := []string{corev1.LabelHostname}
	leader := workloadOf(t, host, "a:1", &kueue.PodSetTopologyRequest{PodSetGroupName: new("g")})
	w := workloadOf(t, host, "a:1 b:2", &kueue.PodSetTopologyRequest{PodSetGroupName: new("g"), PodIndexLabel: new(indexLabel)})
	leader.Spec.PodSets[0].Name, leader.Status.Admission.PodSetAssignments[0].Name = "leader", "leader"
	for _, order := range []string{"the leader first", "the leader last"} {
		w := w.DeepCopy()
		at := 0
		if order == "the leader first" {
			at = 1
		}
		w.Spec.PodSets = slices.Insert(w.Spec.PodSets, 1-at, leader.Spec.PodSets[0])
		w.Status.Admission.PodSetAssignments = slices.Insert(w.Status.Admission.PodSetAssignments, 1-at,
			leader.Status.Admission.PodSetAssignments[0])
		if got, want := placed(t, w, at, "p=3 q=1 r=2"), "p:b q:a r:b"; got != want {
			t.Errorf("%s: placed %q, want %q", order, got, want)
		}
		if got, want := placed(t, w, 1-at, "l"), "l:a"; got != want {
			t.Errorf("%s: the leader is placed %q, want %q", order, got, want)
		}
	}
}

// TestTheFirstOfTwoLeads where two podSets of one pod are a group.
func TestTheFirstOfTwoLeads(t *testing.T) {
	w := workloadOf(t, []string{corev1.LabelHostname}, "a:1", &kueue.PodSetTopologyRequest{PodSetGroupName: new("g"),
		PodIndexLabel: new(indexLabel)})
	worker, assigned := w.Spec.PodSets[0].DeepCopy(), w.Status.Admission.PodSetAssignments[0].DeepCopy()
	worker.Name, assigned.Name = "worker", "worker"
	w.Spec.PodSets = append(w.Spec.PodSets, *worker)
	w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, *assigned)
	all, err := Of(w)
	if err != nil || all[0].first != 0 || all[1].first != 1 {
		t.Errorf("the indexes begin at %d and %d, want 0 and 1: %v", all[0].first, all[1].first, err)
	}
}

// TestOf an admission: podSets without an assignment have no targets, and an invalid assignment is an error.
func TestOf(t *testing.T) {
	w := workloadOf(t, []string{rack}, "a:1", nil)
	if all, err := Of(&kueue.Workload{}); all != nil || err != nil {
		t.Errorf("a Workload without admission has %v, %v", all, err)
	}
	w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: "other", Count: 1})
	all, err := Of(w)
	if err != nil || len(all) != 2 || all[0] == nil || all[0].Domains() != 1 || all[1] != nil {
		t.Errorf("got %v, %v", all, err)
	}
	w.Status.Admission.PodSetAssignments[0].TopologyAssignment.Slices[0].PodCounts = kueue.TopologyAssignmentSlicePodCounts{}
	if _, err := Of(w); err == nil || !strings.Contains(err.Error(), "podSet main") {
		t.Errorf("a broken assignment: %v", err)
	}
}

// TestNoDomainIsOverfull as pods come and go, with any labels. Once the terminating pods are gone, all pods have a place.
func TestNoDomainIsOverfull(t *testing.T) {
	for seed := range uint64(2_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := crowd{t: t, free: map[string]int32{}}
		var text strings.Builder
		for i := range 1 + random.IntN(5) {
			n := 1 + random.Int32N(3)
			c.total += int(n)
			c.free[fmt.Sprint("n", i)] = n
			fmt.Fprintf(&text, "n%d:%d ", i, n)
		}
		w := workloadOf(t, []string{corev1.LabelHostname}, text.String(), &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel)})
		all, err := Of(w)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			switch random.IntN(5) {
			case 0, 1:
				c.create(random)
			case 2:
				c.place(all[0])
			case 3:
				c.change(random, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			case 4:
				c.change(random, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
			}
			c.check(seed)
		}
		c.open = slices.DeleteFunc(c.open, func(p *corev1.Pod) bool { return isOver(p) || terminates(p) })
		for len(c.open)+len(c.waiting) < c.total {
			c.create(random)
		}
		c.place(all[0])
		if c.check(seed); len(c.waiting) > 0 {
			t.Fatalf("seed %d: %d pods are nowhere, of %d for %s", seed, len(c.waiting), c.total, text.String())
		}
	}
}

// crowd is the pods of a podSet that come and go.
type crowd struct {
	t             *testing.T
	total, made   int
	free          map[string]int32
	waiting, open []*corev1.Pod
}

func (c *crowd) create(random *rand.Rand) {
	alive := len(c.waiting)
	for _, p := range c.open {
		if !isOver(p) && !terminates(p) {
			alive++
		}
	}
	if alive >= c.total {
		return
	}
	pod := &corev1.Pod{}
	pod.Name, c.made = fmt.Sprint("p", random.IntN(100), "-", c.made), c.made+1
	// Most have the index of their creation, which is right until one fails.
	index := alive
	if random.IntN(8) == 0 {
		index = random.IntN(c.total + 1)
	}
	pod.Labels = map[string]string{indexLabel: fmt.Sprint(index)}
	c.waiting = append(c.waiting, pod)
}

func (c *crowd) place(s *PodSet) {
	for _, target := range s.Place(c.waiting, c.open) {
		target.Pod.Spec.NodeSelector = target.Selector
		c.waiting = slices.DeleteFunc(c.waiting, func(p *corev1.Pod) bool { return p == target.Pod })
		c.open = append(c.open, target.Pod)
	}
}

func (c *crowd) change(random *rand.Rand, f func(*corev1.Pod)) {
	if len(c.open) > 0 {
		f(c.open[random.IntN(len(c.open))])
	}
}

func (c *crowd) check(seed uint64) {
	c.t.Helper()
	used := map[string]int32{}
	for _, p := range c.open {
		if host := p.Spec.NodeSelector[corev1.LabelHostname]; !isOver(p) {
			if used[host]++; used[host] > c.free[host] {
				c.t.Fatalf("seed %d: %d pods are on %s, which was assigned %d", seed, used[host], host, c.free[host])
			}
		}
	}
}

// TestPlan: what follows from the labels of pods, in the lines that the policy reads.
func TestPlan(t *testing.T) {
	hosts, racks := []string{corev1.LabelHostname}, []string{"block", rack}
	indexed := &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel)}
	grouped := &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel), SubGroupIndexLabel: new(groupLabel), SubGroupCount: new(int32(2))}
	for name, tc := range map[string]struct {
		levels  []string
		domains string
		request *kueue.PodSetTopologyRequest
		lost    bool
		want    string
	}{
		"ranks":                              {hosts, "a:2 b:1", indexed, false, "uid.1|index|0||0|kubernetes.io/hostname|2,3|a,b"},
		"of sub-groups":                      {hosts, "a:2 b:2", grouped, false, "uid.1|index|0|group|2|kubernetes.io/hostname|2,4|a,b"},
		"several levels":                     {racks, "x/1:1 x/2:1", indexed, false, "uid.1|index|0||0|block,rack|1,2|x/1,x/2"},
		"one domain needs no ranks":          {hosts, "a:3", nil, false, "uid.1||0||0|kubernetes.io/hostname|3|a"},
		"pods without numbers have no plan":  {hosts, "a:2 b:1", nil, false, ""},
		"nor have sub-groups of no number":   {hosts, "a:2 b:1", &kueue.PodSetTopologyRequest{PodIndexLabel: new(indexLabel), SubGroupIndexLabel: new(groupLabel)}, false, ""},
		"nor those that lack nodes":          {hosts, "a:2 b:1", indexed, true, ""},
		"nor gangs of more nodes than bytes": {hosts, strings.Repeat(strings.Repeat("n", 60)+":1 ", 600), indexed, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := workloadOf(t, tc.levels, tc.domains, tc.request)
			w.UID = "uid"
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, LastTransitionTime: metav1.Unix(1, 0)}}
			if tc.lost {
				w.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: "a"}}
			}
			podSets, err := Of(w)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(podSets[0].Plan(Start(w)), "\n", "|"); got != tc.want {
				t.Errorf("the plan is %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStranded: pods that can never run are deleted. Any pod of the gang shows that places have changed.
func TestStranded(t *testing.T) {
	hosts := []string{corev1.LabelHostname}
	for name, tc := range map[string]struct {
		pods, bound, unsent, want string
		moved                     bool
	}{
		"they fill their nodes, and were sent to none": {pods: "p@a q@a r@b", unsent: "p q r", bound: "p"},
		"all have a place":                      {pods: "p@a q@a r@b"},
		"one went to a node that is lost":       {pods: "p@a q@c", want: "q", moved: true},
		"it runs there still":                   {pods: "p@a q@c", bound: "q", moved: true},
		"it has ended there":                    {pods: "p@a q@c.", moved: true},
		"one more than there is room for":       {pods: "p@b q@b", want: "q"},
		"those that are bound stay":             {pods: "p@b q@b", bound: "q", want: "p"},
		"one that terminates makes room":        {pods: "p@b! q@b"},
		"more than there is room for are bound": {pods: "p@b q@b", bound: "p q"},
	} {
		t.Run(name, func(t *testing.T) {
			podSets, err := Of(workloadOf(t, hosts, "a:2 b:1", nil))
			if err != nil {
				t.Fatal(err)
			}
			_, open := podsOf(t, hosts, tc.pods)
			for _, pod := range open {
				if slices.Contains(strings.Fields(tc.bound), pod.Name) {
					pod.Spec.NodeName = pod.Spec.NodeSelector[corev1.LabelHostname]
				}
				if slices.Contains(strings.Fields(tc.unsent), pod.Name) {
					delete(pod.Spec.NodeSelector, corev1.LabelHostname)
				}
			}
			var got []string
			for _, pod := range podSets[0].Stranded(open) {
				got = append(got, pod.Name)
			}
			if strings.Join(got, " ") != tc.want || podSets[0].Moved(open) != tc.moved {
				t.Errorf("stranded are %v, want %q; moved is %t", got, tc.want, podSets[0].Moved(open))
			}
		})
	}
}
