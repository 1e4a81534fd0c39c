package fit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// A scenario places pods of a gang on nodes n1, n2, … and says after each step where
// the next may go.
type scenario struct {
	name string
	// pods are the podSets: their labels, and their spec in YAML.
	pods [][2]string
	// nodes by their labels.
	nodes []string
	// around are pods that run: their node, namespace, labels and spec.
	around [][4]string
	// change what YAML does not say.
	change func(nodes []Node)
	// steps are "+i n" and "-i n" to place a pod of podSet i on a node and to remove
	// it, and "i: nodes" for where podSet i may go.
	steps []string
	// why is what Blocks says about podSet and node after the last step, if asked.
	asks, why string
}

func required(kind, terms string) string {
	return fmt.Sprintf("affinity: {%s: {requiredDuringSchedulingIgnoredDuringExecution: [%s]}}", kind, terms)
}

func spreadBy(constraint string) string {
	return "topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}, " + constraint + "}]"
}

const (
	own        = "labelSelector: {matchLabels: {app: x}}"
	zonesOfTwo = "zone=a,zone=a,zone=b,zone=b,"
)

func nodes(text string) []string { return strings.Split(text, ",") }

func TestCrowds(t *testing.T) {
	for _, tc := range []scenario{
		{
			name:  "pods that ask nothing go anywhere",
			pods:  [][2]string{{"", ""}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"0: 1 2 3 4 5", "+0 1", "0: 1 2 3 4 5"},
		},
		{
			name:  "the first of pods that want to be together goes anywhere in a zone, the others join it",
			pods:  [][2]string{{"app=x", required("podAffinity", "{topologyKey: zone, "+own+"}")}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"0: 1 2 3 4", "+0 3", "0: 3 4", "-0 3", "0: 1 2 3 4"},
			asks:  "0 5", why: "podSet w0 has constraints over zone, a label that is missing there",
		},
		{
			name:   "pods that want to be with others wait for them",
			pods:   [][2]string{{"app=y", required("podAffinity", "{topologyKey: zone, "+own+"}")}, {"app=x", ""}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "elsewhere", "app=x", ""}},
			steps:  []string{"0: ", "+1 3", "0: 3 4"},
			asks:   "0 1", why: "zone=a has no pod that matches the required podAffinity of podSet w0",
		},
		{
			name: "a pod must match all terms to be joined",
			pods: [][2]string{{"app=y", required("podAffinity", "{topologyKey: zone, "+own+"}, {topologyKey: rack, labelSelector: "+
				"{matchLabels: {tier: t}}}")}},
			nodes:  nodes("zone=a rack=1,zone=a rack=2,zone=b rack=1"),
			around: [][4]string{{"1", "team", "app=x", ""}, {"2", "team", "tier=t", ""}, {"3", "team", "app=x tier=t", ""}},
			steps:  []string{"0: 3"},
		},
		{
			name:  "pods that keep apart take a zone each",
			pods:  [][2]string{{"app=x", required("podAntiAffinity", "{topologyKey: zone, "+own+"}")}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"0: 1 2 3 4 5", "+0 1", "0: 3 4 5", "+0 4", "0: 5", "+0 5", "0: 5", "-0 1", "0: 1 2 5"},
			asks:  "0 3", why: "zone=b has a pod that matches the required podAntiAffinity of podSet w0",
		},
		{
			name:  "others keep away from them, too",
			pods:  [][2]string{{"app=x", ""}, {"app=y", required("podAntiAffinity", "{topologyKey: zone, "+own+"}")}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"+1 1", "0: 3 4 5", "1: 1 2 3 4 5", "+0 3", "1: 1 2 5"},
			asks:  "0 2", why: "a pod in zone=a has a required podAntiAffinity that matches podSet w0",
		},
		{
			name:   "running pods keep them away, also while they end",
			pods:   [][2]string{{"app=x", ""}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "team", "", required("podAntiAffinity", "{topologyKey: zone, "+own+"}")}},
			change: func(nodes []Node) { nodes[0].Pods[0].Terminating = true },
			steps:  []string{"0: 3 4 5"},
		},
		{
			name:   "but not those of other namespaces, where terms name none",
			pods:   [][2]string{{"app=x", required("podAntiAffinity", "{topologyKey: zone, labelSelector: {}}")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "other", "", required("podAntiAffinity", "{topologyKey: zone, "+own+"}")}},
			steps:  []string{"0: 1 2 3 4 5"},
		},
		{
			name:   "namespaces may be named",
			pods:   [][2]string{{"app=x", required("podAntiAffinity", "{topologyKey: zone, labelSelector: {}, namespaces: [other]}")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "other", "", ""}, {"3", "team", "", ""}},
			steps:  []string{"0: 3 4 5"},
		},
		{
			name:   "all namespaces may be selected",
			pods:   [][2]string{{"app=x", required("podAffinity", "{topologyKey: zone, labelSelector: {}, namespaceSelector: {}}")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "other", "", ""}},
			steps:  []string{"0: 1 2"},
		},
		{
			name: "any other selector of namespaces counts as all of them",
			pods: [][2]string{{"app=x", required("podAntiAffinity",
				"{topologyKey: zone, labelSelector: {}, namespaceSelector: {matchLabels: {no: such}}}")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "other", "", ""}},
			steps:  []string{"0: 3 4 5"},
		},
		{
			name:   "label keys narrow a term to the pod's own value",
			pods:   [][2]string{{"app=x rev=2", required("podAntiAffinity", "{topologyKey: zone, "+own+", matchLabelKeys: [rev]}")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "team", "app=x rev=1", ""}, {"3", "team", "app=x rev=2", ""}},
			steps:  []string{"0: 1 2 5"},
		},
		{
			name:   "or to all others",
			pods:   [][2]string{{"app=x rev=2", required("podAntiAffinity", "{topologyKey: zone, "+own+", mismatchLabelKeys: [rev]}")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "team", "app=x rev=1", ""}, {"3", "team", "app=x rev=2", ""}},
			steps:  []string{"0: 3 4 5"},
		},
		{
			name:  "spread pods fill zones evenly",
			pods:  [][2]string{{"app=x", spreadBy("topologyKey: zone, maxSkew: 1")}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"0: 1 2 3 4", "+0 1", "0: 3 4", "+0 3", "0: 1 2 3 4", "+0 2", "0: 3 4", "-0 2", "-0 1", "0: 1 2"},
			asks:  "0 3", why: "podSet w0 would exceed the maxSkew of its topologySpreadConstraints in zone=b (maxSkew 1)",
		},
		{
			name:   "pods that end, of other namespaces or others are not counted",
			pods:   [][2]string{{"app=x", spreadBy("topologyKey: zone, maxSkew: 1")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "other", "app=x", ""}, {"1", "team", "app=y", ""}, {"2", "team", "app=x", ""}},
			change: func(nodes []Node) { nodes[1].Pods[0].Terminating = true },
			steps:  []string{"0: 1 2 3 4"},
		},
		{
			name:   "pods that a constraint does not select go by those that it does",
			pods:   [][2]string{{"app=y", spreadBy("topologyKey: zone, maxSkew: 1")}},
			nodes:  nodes(zonesOfTwo),
			around: [][4]string{{"1", "team", "app=x", ""}},
			steps:  []string{"0: 1 2 3 4", "+0 1", "0: 1 2 3 4"},
		},
		{
			name: "a selector of everything counts no pod",
			pods: [][2]string{{"app=x", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, " +
				"labelSelector: {}}]"}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"+0 1", "+0 1", "0: 1 2 3 4"},
		},
		{
			name:  "with too few domains each takes as many as the skew allows",
			pods:  [][2]string{{"app=x", spreadBy("topologyKey: zone, maxSkew: 1, minDomains: 3")}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"+0 1", "+0 3", "0: "},
		},
		{
			name:  "zones that the pods cannot reach are no part of it",
			pods:  [][2]string{{"app=x", "nodeSelector: {gpu: h100}\n" + spreadBy("topologyKey: zone, maxSkew: 1")}},
			nodes: nodes("zone=a gpu=h100,zone=b"),
			steps: []string{"+0 1", "+0 1", "0: 1 2"},
		},
		{
			name:  "unless node affinity is ignored",
			pods:  [][2]string{{"app=x", "nodeSelector: {gpu: h100}\n" + spreadBy("topologyKey: zone, maxSkew: 1, nodeAffinityPolicy: Ignore")}},
			nodes: nodes("zone=a gpu=h100,zone=b"),
			steps: []string{"0: 1 2", "+0 1", "0: 2"},
		},
		{
			name:   "nor are nodes that the gang will not book",
			pods:   [][2]string{{"app=x", spreadBy("topologyKey: zone, maxSkew: 1")}},
			nodes:  nodes("zone=a,zone=b"),
			around: [][4]string{{"2", "team", "app=x", ""}},
			change: func(nodes []Node) { nodes[1].Elsewhere = true },
			steps:  []string{"+0 1", "+0 1", "0: 1 2"},
		},
		{
			name:   "tainted nodes are part of it",
			pods:   [][2]string{{"app=x", spreadBy("topologyKey: zone, maxSkew: 1")}},
			nodes:  nodes("zone=a,zone=b"),
			change: func(nodes []Node) { nodes[1].Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} },
			steps:  []string{"+0 1", "0: 2"},
		},
		{
			name:   "unless taints are honored",
			pods:   [][2]string{{"app=x", spreadBy("topologyKey: zone, maxSkew: 1, nodeTaintsPolicy: Honor")}},
			nodes:  nodes("zone=a,zone=b"),
			change: func(nodes []Node) { nodes[1].Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} },
			steps:  []string{"+0 1", "0: 1 2"},
		},
		{
			name: "soft constraints do not count",
			pods: [][2]string{{"app=x", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, " + own +
				"}]"}},
			nodes: nodes(zonesOfTwo),
			steps: []string{"+0 1", "0: 1 2 3 4 5"},
		},
		{
			name: "a host port is for one pod a node",
			pods: [][2]string{{"", "containers: [{name: a, ports: [{containerPort: 1, hostPort: 1}]}]"},
				{"", "containers: [{name: a, ports: [{containerPort: 1, hostPort: 1, hostIP: 10.0.0.1}]}]"}},
			nodes:  nodes(",,"),
			around: [][4]string{{"1", "other", "", "containers: [{name: a, ports: [{containerPort: 1, hostPort: 1, hostIP: 10.0.0.2}]}]"}},
			steps:  []string{"0: 2 3", "1: 1 2 3", "+0 2", "0: 3", "1: 1 3", "+1 3", "0: ", "-0 2", "0: 2"},
			asks:   "0 1", why: "a host port of podSet w0 is taken there ([0.0.0.0:1/TCP])",
		},
		{
			name:  "a node that is not there allows nothing",
			pods:  [][2]string{{"", ""}},
			nodes: nodes(""),
			asks:  "0 7", why: "node n7 is not known",
		},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.play(t) })
	}
}

func (tc *scenario) play(t *testing.T) {
	var pods []*Pod
	for i, p := range tc.pods {
		pod, refusal := NewPod("team", fmt.Sprintf("w%d", i), 4, template(t, p[0], p[1]), Objects{})
		if refusal.Refused() {
			t.Fatalf("%+v", refusal)
		}
		pods = append(pods, pod)
	}
	var all []Node
	for i, labels := range tc.nodes {
		all = append(all, Node{Name: nodeName(i + 1), Labels: set(labels)})
	}
	for _, a := range tc.around {
		at, _ := strconv.Atoi(a[0])
		all[at-1].Pods = append(all[at-1].Pods, running(t, a[1], a[2], a[3]))
	}
	if tc.change != nil {
		tc.change(all)
	}
	c := NewInterPodState(pods, all)
	play(t, c, len(all), tc.steps)
	if tc.asks != "" {
		i, node := pair(t, tc.asks)
		if got := c.Blocks(i, node); got != tc.why {
			t.Errorf("podSet and node %s: got %q, want %q", tc.asks, got, tc.why)
		}
	}
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

func play(t *testing.T, c *InterPodState, nodes int, steps []string) {
	t.Helper()
	for _, step := range steps {
		switch step[0] {
		case '+':
			c.Place(pair(t, step[1:]))
		case '-':
			c.Remove(pair(t, step[1:]))
		default:
			set, want, _ := strings.Cut(step, ": ")
			i, _ := strconv.Atoi(set)
			var got []string
			for n := 1; n <= nodes; n++ {
				allowed, why := c.Allows(i, nodeName(n)), c.Blocks(i, nodeName(n))
				if allowed != (why == "") {
					t.Errorf("podSet %d on n%d: Allows is %t, Blocks %q", i, n, allowed, why)
				}
				if allowed {
					got = append(got, strconv.Itoa(n))
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("podSet %d may go to %v, want %s, in %v", i, got, want, steps)
			}
		}
	}
}

// pair reads a podSet and a node.
func pair(t *testing.T, text string) (int, string) {
	t.Helper()
	a, b, _ := strings.Cut(text, " ")
	i, err := strconv.Atoi(a)
	if err != nil {
		t.Fatal(err)
	}
	return i, "n" + b
}

func TestNodesJoinACrowd(t *testing.T) {
	p := newPod(t, "app=x", spreadBy("topologyKey: zone, maxSkew: 1"), Objects{})
	c := NewInterPodState([]*Pod{p}, []Node{{Name: "n1", Labels: set("zone=a")}})
	play(t, c, 1, []string{"0: 1", "+0 1", "0: 1"})
	// An empty zone changes what is even; a running pod keeps a whole zone to itself,
	// by a label that no pod asked about before.
	c.AddNode(Node{Name: "n2", Labels: set("zone=b rack=1")})
	play(t, c, 2, []string{"0: 2"})
	c.AddNode(Node{Name: "n3", Labels: set("zone=b rack=1"), Pods: []*Running{
		running(t, "team", "", required("podAntiAffinity", "{topologyKey: rack, "+own+"}")),
	}})
	play(t, c, 3, []string{"0: "})
}

func TestClaimsOfACrowd(t *testing.T) {
	objects := cluster(t, storage+`
kind: PersistentVolumeClaim
metadata: {name: single, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {accessModes: [ReadWriteOncePod], volumeName: single}
---
kind: PersistentVolume
metadata: {name: single}
spec: {csi: {driver: free.csi.example, volumeHandle: v}}
---
kind: PersistentVolumeClaim
metadata: {name: loose}
spec: {storageClassName: wait}
---
kind: PersistentVolumeClaim
metadata: {name: other}
spec: {accessModes: [ReadWriteOncePod], storageClassName: wait}
`)
	uses := func(name string, count int, claim string) *Pod {
		p, refusal := NewPod("team", name, count, template(t, "", "volumes: [{name: v, persistentVolumeClaim: {claimName: "+claim+"}}]"), objects)
		if refusal.Refused() {
			t.Fatalf("%+v", refusal)
		}
		return p
	}
	c := NewInterPodState([]*Pod{uses("w0", 1, "single"), uses("w1", 1, "single"), uses("w2", 4, "loose"), uses("w3", 1, "other")}, []Node{
		{Name: "n1", Pods: []*Running{running(t, "team", "", "volumes: [{name: v, persistentVolumeClaim: {claimName: other}}]")}},
		{Name: "n2", Pods: []*Running{running(t, "elsewhere", "", "volumes: [{name: v, persistentVolumeClaim: {claimName: single}}]")}},
	})
	play(t, c, 2, []string{
		// One pod has the claim, whichever podSet it is of.
		"0: 1 2", "+0 1", "0: ", "1: ", "-0 1", "1: 1 2",
		// A claim that is not bound yet takes all its pods along.
		"2: 1 2", "+2 2", "+2 2", "2: 2", "-2 2", "2: 2", "-2 2", "2: 1 2",
		// A running pod has the claim.
		"3: ", "+2 1",
	})
	for text, want := range map[string]string{
		"3 2": "claim other of podSet w3 is for one pod at a time (ReadWriteOncePod), and one uses it",
		"2 2": "claim loose of podSet w2 is not bound yet and will be bound to the node of its first pod, which is another one",
	} {
		i, node := pair(t, text)
		if got := c.Blocks(i, node); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPodsThatNeedInterPodState(t *testing.T) {
	for name, p := range map[string]*Pod{
		"pod affinity":  newPod(t, "", required("podAffinity", "{topologyKey: zone, "+own+"}"), Objects{}),
		"anti-affinity": newPod(t, "", required("podAntiAffinity", "{topologyKey: zone, "+own+"}"), Objects{}),
		"spreading":     newPod(t, "", spreadBy("topologyKey: zone, maxSkew: 1"), Objects{}),
		"a host port":   newPod(t, "", "{hostNetwork: true, containers: [{name: a, ports: [{containerPort: 1}]}]}", Objects{}),
	} {
		if !p.Between() {
			t.Errorf("a pod with %s does not", name)
		}
		if want := name != "a host port"; want != (len(p.Topologies()) == 1 && p.Topologies()[0] == "zone") {
			t.Errorf("a pod with %s has topologies %v", name, p.Topologies())
		}
	}
	plain := newPod(t, "app=x", "", Objects{})
	if plain.Between() {
		t.Error("a plain pod does")
	}
}

func TestAntiAffinity(t *testing.T) {
	for _, tc := range []struct {
		name string
		// against is what a running pod of the namespace is against, pod the labels of the one that is judged.
		namespace, against, pod string
		// topologies are those in whose domains it is kept away, where whose pods may be.
		topologies, where string
		repels            bool
	}{
		{"nothing", "team", "", "app=x", "", "team", false},
		{"its own", "team", required("podAntiAffinity", "{topologyKey: zone, "+own+"}"), "app=x", "zone", "team", true},
		{"others", "team", required("podAntiAffinity", "{topologyKey: zone, "+own+"}"), "app=y", "", "team", true},
		{"those of another namespace", "else", required("podAntiAffinity", "{topologyKey: zone, "+own+"}"), "app=x", "", "else", true},
		{"those of a named namespace", "else", required("podAntiAffinity", "{topologyKey: host, namespaces: [team], "+own+"}"), "app=x",
			"host", "", true},
		{"those of any", "else", required("podAntiAffinity", "{topologyKey: zone, namespaceSelector: {}, "+own+"}, {topologyKey: rack, "+
			"namespaceSelector: {}, "+own+"}"), "app=x", "zone rack", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, r := newPod(t, tc.pod, "", Objects{}), running(t, tc.namespace, "", tc.against)
			var topologies []string
			for topology, matches := range r.AntiAffinity() {
				if matches(p) {
					topologies = append(topologies, topology)
				}
			}
			if got := strings.Join(topologies, " "); got != tc.topologies {
				t.Errorf("it is kept away in %q, want %q", got, tc.topologies)
			}
			if where, repels := r.Repels(); where != tc.where || repels != tc.repels {
				t.Errorf("Repels is %q, %t, want %q, %t", where, repels, tc.where, tc.repels)
			}
		})
	}
}

func TestWhatARunningPodMeansToOthers(t *testing.T) {
	pod := &corev1.Pod{}
	parse(t, `
metadata: {namespace: team, labels: {app: x}, deletionTimestamp: "2026-01-01T00:00:00Z"}
spec:
  containers: [{name: a, ports: [{containerPort: 1, hostPort: 1}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: w, emptyDir: {}}]
`, pod)
	want := &Running{Namespace: "team", Labels: set("app=x"), Terminating: true, Ports: Ports{{"0.0.0.0", "TCP", 1}}, Claims: []string{"data"}}
	if diff := cmp.Diff(want, ReadRunning(pod), cmp.AllowUnexported(Running{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
