package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// bookedKey is the label of the nodes that a gang has booked. Its pods select it when
// they are created; their templates do not.
const bookedKey = "booked.muster.dev/gang"

// coverage counts what the worlds had in them.
type coverage struct {
	worlds, invalid, refused, verdicts int
	// cautious verdicts are no where the scheduler says yes, for a documented reason.
	cautious int
	traits   map[string]*verdicts
	// no counts the refusals of each plugin.
	no map[string]int
}

// verdicts of the scheduler on pods with a trait: yes, and no by the plugin that
// judges the trait.
type verdicts struct{ yes, no, refused int }

func newCoverage() *coverage { return &coverage{traits: map[string]*verdicts{}, no: map[string]int{}} }

func (c *coverage) of(trait string) *verdicts {
	if c.traits[trait] == nil {
		c.traits[trait] = &verdicts{}
	}
	return c.traits[trait]
}

func (c *coverage) count(trait string, yes bool, plugin string) {
	switch v := c.of(trait); {
	case yes:
		v.yes++
	case plugin == pluginOf(trait):
		v.no++
	}
}

func pluginOf(trait string) string {
	if f := featureOf(trait); f != nil {
		return f.plugin
	}
	return ofWorlds[trait]
}

func featureOf(trait string) *feature {
	for _, list := range [][]feature{judgedFeatures, refusedFeatures} {
		if i := slices.IndexFunc(list, func(f feature) bool { return f.trait == trait }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// contest is one world that both judge.
type contest struct {
	*world
	scheduler *kubeScheduler
	covered   *coverage
	// pods as the API server makes them, by podSet; they differ in their names only.
	created []*corev1.Pod
	pods    []*fit.Pod
	free    map[string]nodegroups.Resources
	state   *fit.InterPodState
	// exact is the state with selectors of namespaces spelled out; nil where there
	// are none.
	exact *fit.InterPodState
	// present nodes; the others come later.
	present []*corev1.Node
	// booked nodes; nil where the gang may use all.
	booked map[string]bool
	placed []placedPod
}

type placedPod struct {
	set  int
	pod  *corev1.Pod
	undo func()
}

// judge lets fit and the scheduler judge a world, and returns where they differ.
func judge(s *kubeScheduler, c choices, gang bool, covered *coverage) error {
	k := &contest{world: newWorld(c, gang), scheduler: s, covered: covered, free: map[string]nodegroups.Resources{}}
	covered.worlds++
	if err := k.judge(c, gang); err != nil {
		return fmt.Errorf("%w\n%s", err, k.world)
	}
	return nil
}

func (k *contest) judge(c choices, gang bool) error {
	if gang {
		k.book(c)
	}
	for i, set := range k.sets {
		pod, err := create(podName(i, 0), set.template)
		if err != nil {
			// Features may exclude each other.
			k.covered.invalid++
			return nil
		}
		k.created = append(k.created, pod)
	}
	k.present = k.nodes
	if gang {
		k.present = k.nodes[:len(k.nodes)-oneOf(c, 0, 1, len(k.nodes)/2)]
	}
	k.update()
	if refused, err := k.read(); refused || err != nil {
		return err
	}
	k.state = fit.NewInterPodState(k.pods, k.fitNodes(k.present, asWritten))
	if err := k.spellOut(); err != nil {
		return err
	}
	defer k.removeAll()
	if !gang {
		if err := k.examine(0); err != nil {
			return err
		}
		_, err := k.compare(0)
		return err
	}
	return k.place(c)
}

// book lets the gang use some of the nodes only.
func (k *contest) book(c choices) {
	if c.pick(4) < 3 {
		return
	}
	k.meet("booked nodes")
	k.booked = map[string]bool{}
	for _, n := range k.nodes {
		if c.pick(3) > 0 {
			n.Labels[bookedKey] = team
			k.booked[n.Name] = true
		}
	}
}

func (k *contest) read() (refused bool, err error) {
	for i, set := range k.sets {
		p, refusal := fit.NewPod(team, fmt.Sprintf("set%d", i), set.count, set.template, storage.lookups())
		if err := k.checkRefusal(i, refusal); err != nil {
			return true, err
		}
		if refusal.Refused() {
			k.covered.refused++
			return true, nil
		}
		k.pods = append(k.pods, p)
	}
	return false, nil
}

// checkRefusal: what is refused must be so by name, and what must be refused is.
func (k *contest) checkRefusal(set int, r fit.Refusal) error {
	wanted := false
	for _, trait := range k.sets[set].traits {
		f := featureOf(trait)
		if f.refused == fit.NotRefused {
			continue
		}
		wanted = true
		if r.Kind == f.refused && strings.HasPrefix(r.Field, f.field) && strings.Contains(r.Message, r.Field) {
			k.covered.of(trait).refused++
			return k.checkUnready(set, r)
		}
	}
	if single := slices.Contains(k.sets[set].traits, "single claim") && k.sets[set].count > 1; single && r.Kind == fit.Impossible {
		return nil
	}
	switch {
	case r.Refused() && !wanted:
		return fmt.Errorf("set%d is refused for no feature of it: %+v", set, r)
	case r.Refused():
		return fmt.Errorf("set%d is refused by another name than its features have: %+v", set, r)
	case wanted:
		return fmt.Errorf("set%d has a feature that must be refused, and is not", set)
	}
	return nil
}

// checkUnready: where fit says that something is missing the scheduler must, too.
func (k *contest) checkUnready(set int, r fit.Refusal) error {
	if r.Kind != fit.Unready {
		return nil
	}
	a := k.scheduler.try(k.created[set])
	for _, n := range k.present {
		if yes, _ := a.verdict(n.Name); yes {
			return fmt.Errorf("set%d is said to wait, and the scheduler would run it on %s: %+v", set, n.Name, r)
		}
	}
	return nil
}

// update updates the scheduler to the present world.
func (k *contest) update() {
	pods := slices.Clone(k.running)
	for _, p := range k.placed {
		pods = append(pods, p.pod)
	}
	here := func(p *corev1.Pod) bool {
		return slices.ContainsFunc(k.present, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName })
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !here(p) })
	k.scheduler.set(k.present, pods)
}

// spelling says how fit gets to see selectors of namespaces.
type spelling bool

const (
	asWritten  spelling = false
	spelledOut spelling = true
)

// fitNodes are nodes as fit sees them.
func (k *contest) fitNodes(nodes []*corev1.Node, s spelling) (out []fit.Node) {
	for _, n := range nodes {
		f := fit.Node{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Elsewhere: k.booked != nil && !k.booked[n.Name]}
		k.free[n.Name] = nodegroups.ResourcesFrom(n.Status.Allocatable)
		for _, p := range k.running {
			if p.Spec.NodeName != n.Name {
				continue
			}
			k.free[n.Name].Sub(fit.PodRequests(p), 1)
			if s == spelledOut {
				p = p.DeepCopy()
				spellOut(antiAffinity(&p.Spec))
			}
			f.Pods = append(f.Pods, fit.ReadRunning(p))
		}
		out = append(out, f)
	}
	return out
}

// spellOut makes the exact state where there are selectors of namespaces.
func (k *contest) spellOut() error {
	selectors := false
	look := func(spec *corev1.PodSpec) {
		for _, t := range antiAffinity(spec) {
			selectors = selectors || isSelectorOfNamespaces(&t)
		}
	}
	for _, p := range k.running {
		look(&p.Spec)
	}
	for _, set := range k.sets {
		look(&set.template.Spec)
	}
	if !selectors {
		return nil
	}
	var pods []*fit.Pod
	for i, set := range k.sets {
		t := set.template.DeepCopy()
		spellOut(antiAffinity(&t.Spec))
		p, refusal := fit.NewPod(team, fmt.Sprintf("set%d", i), set.count, t, storage.lookups())
		if refusal.Refused() {
			return fmt.Errorf("set%d is refused once its namespaces are spelled out: %+v", i, refusal)
		}
		pods = append(pods, p)
	}
	k.exact = fit.NewInterPodState(pods, k.fitNodes(k.present, spelledOut))
	return nil
}

func antiAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// spellOut replaces selectors of namespaces by the namespaces that they select.
func spellOut(terms []corev1.PodAffinityTerm) {
	for i := range terms {
		t := &terms[i]
		if !isSelectorOfNamespaces(t) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
		if err != nil {
			panic(err)
		}
		names := append([]string{"nobody"}, t.Namespaces...)
		for _, ns := range storage.namespaces {
			if selector.Matches(labels.Set(ns.Labels)) {
				names = append(names, ns.Name)
			}
		}
		t.Namespaces, t.NamespaceSelector = names, nil
	}
}

// examine checks what fit says about a pod beside its verdicts.
func (k *contest) examine(i int) error {
	p := k.pods[i]
	keys, names := p.Keys(), map[string]bool{}
	listed, only := p.Names()
	for _, name := range listed {
		names[name] = true
	}
	for _, n := range k.nodes {
		matches := p.Matches(n.Name, n.Labels, n.Spec.Taints)
		if matches != (p.Mismatch(n.Name, n.Labels, n.Spec.Taints) == "") {
			return fmt.Errorf("%s: Matches is %t, Mismatch %q", n.Name, matches, p.Mismatch(n.Name, n.Labels, n.Spec.Taints))
		}
		some := map[string]string{}
		for _, key := range keys {
			if v, ok := n.Labels[key]; ok {
				some[key] = v
			}
		}
		host, hasHost := n.Labels[corev1.LabelHostname]
		mentioned := names[n.Name] || names[host]
		if mentioned && hasHost {
			some[corev1.LabelHostname] = host
		}
		name := n.Name
		if !mentioned {
			name = "another"
		}
		if alike := p.Matches(name, some, n.Spec.Taints); alike != matches {
			return fmt.Errorf("%s: Matches is %t, and %t with the labels of Keys alone (%v), Names %v", n.Name, matches, alike, keys, listed)
		}
		if only && matches && !mentioned {
			return fmt.Errorf("%s: the pod may run there, but Names lists only %v", n.Name, listed)
		}
	}
	return nil
}

// compare evaluates a pod of podSet i on every node in both, and returns the nodes where it may run.
func (k *contest) compare(i int) (allowed []string, err error) {
	a := k.scheduler.try(k.nextPod(i))
	for _, n := range k.present {
		if k.booked != nil && !k.booked[n.Name] {
			continue
		}
		theirs, plugin := a.verdict(n.Name)
		ours, why := k.verdict(i, n, k.state)
		if ours != (why == "") {
			return nil, fmt.Errorf("set%d on %s: fit says %t and gives the reason %q", i, n.Name, ours, why)
		}
		switch {
		case ours && !theirs:
			return nil, fmt.Errorf("set%d on %s: fit says yes, %s of the scheduler no", i, n.Name, plugin)
		case !ours && theirs:
			if k.exact == nil {
				return nil, fmt.Errorf("set%d on %s: the scheduler says yes, fit no: %s", i, n.Name, why)
			}
			if exactly, why := k.verdict(i, n, k.exact); !exactly {
				return nil, fmt.Errorf("set%d on %s: the scheduler says yes, fit no, also with all namespaces spelled out: %s", i, n.Name, why)
			}
			k.covered.cautious++
		}
		if k.exact != nil {
			if exactly, _ := k.verdict(i, n, k.exact); exactly && !theirs {
				return nil, fmt.Errorf("set%d on %s: fit says yes with all namespaces spelled out, %s of the scheduler no", i, n.Name, plugin)
			}
		}
		k.covered.verdicts++
		if !theirs {
			k.covered.no[plugin]++
		}
		for _, trait := range slices.Concat(k.sets[i].traits, k.met) {
			k.covered.count(trait, theirs, plugin)
		}
		if ours {
			allowed = append(allowed, n.Name)
		}
	}
	return allowed, k.checkAlone(i)
}

func (k *contest) verdict(i int, n *corev1.Node, state *fit.InterPodState) (yes bool, why string) {
	p, free := k.pods[i], k.free[n.Name]
	if name, by, short := free.Short(p.Requests); short {
		why += fmt.Sprintf("%d %s short; ", by, name)
	}
	why += p.Mismatch(n.Name, n.Labels, n.Spec.Taints) + state.Blocks(i, n.Name)
	return free.Times(p.Requests, 1) == 1 && p.Matches(n.Name, n.Labels, n.Spec.Taints) && state.Allows(i, n.Name), why
}

// checkAlone: if no pod of the gang has terms about other pods, the state allows all domains except for the repelled ones.
func (k *contest) checkAlone(i int) error {
	if slices.ContainsFunc(k.pods, (*fit.Pod).Between) {
		return nil
	}
	repelled := map[[2]string]bool{}
	for _, o := range k.running {
		at := slices.IndexFunc(k.present, func(n *corev1.Node) bool { return n.Name == o.Spec.NodeName })
		for topology, matches := range fit.ReadRunning(o).AntiAffinity() {
			if at >= 0 && matches(k.pods[i]) {
				repelled[[2]string{topology, k.present[at].Labels[topology]}] = true
			}
		}
	}
	for _, n := range k.present {
		off := false
		for topology, value := range n.Labels {
			off = off || repelled[[2]string{topology, value}]
		}
		if why := k.state.Blocks(i, n.Name); (why != "") != off {
			return fmt.Errorf("set%d on %s needs no state, and is blocked (%q) where its repelled domains are %v", i, n.Name, why, repelled)
		}
	}
	return nil
}

// nextPod of the podSet that is not placed yet, as the API server would make it.
func (k *contest) nextPod(i int) *corev1.Pod {
	n := 0
	for _, p := range k.placed {
		if p.set == i {
			n++
		}
	}
	pod := k.created[i].DeepCopy()
	pod.Name, pod.UID = podName(i, n), uid(podName(i, n))
	if k.booked != nil {
		pod.Spec.NodeSelector = maps.Clone(pod.Spec.NodeSelector)
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[bookedKey] = team
	}
	return pod
}

// place puts one pod after the other where both allow it, and compares each time.
func (k *contest) place(c choices) error {
	var left []int
	for i, set := range k.sets {
		for range set.count {
			left = append(left, i)
		}
	}
	for len(left) > 0 {
		if len(k.present) < len(k.nodes) && rarely(c, 6) {
			k.join()
		}
		at := c.pick(len(left))
		i := left[at]
		left = slices.Delete(left, at, at+1)
		allowed, err := k.compare(i)
		if err != nil {
			return fmt.Errorf("with %d pods placed: %w", len(k.placed), err)
		}
		if len(allowed) == 0 {
			continue
		}
		if err := k.put(i, allowed[c.pick(len(allowed))]); err != nil {
			return err
		}
		for rarely(c, 3) && k.mayRemove() {
			left = append(left, k.removeLast())
			if _, err := k.compare(i); err != nil {
				return fmt.Errorf("with a pod removed and %d placed: %w", len(k.placed), err)
			}
		}
	}
	return nil
}

// mayRemove: of pods with volumes the scheduler would forget more than the last.
func (k *contest) mayRemove() bool {
	return len(k.placed) > 0 && len(k.placed[len(k.placed)-1].pod.Spec.Volumes) == 0
}

// join lets the nodes come that were not there.
func (k *contest) join() {
	more := k.nodes[len(k.present):]
	k.present = k.nodes
	for _, n := range k.fitNodes(more, asWritten) {
		k.state.AddNode(n)
	}
	if k.exact != nil {
		for _, n := range k.fitNodes(more, spelledOut) {
			k.exact.AddNode(n)
		}
	}
	k.meet("more nodes")
	k.update()
}

func (k *contest) put(i int, node string) error {
	pod := k.nextPod(i)
	a := k.scheduler.try(pod)
	if yes, plugin := a.verdict(node); !yes {
		return fmt.Errorf("set%d on %s: %s changed its mind", i, node, plugin)
	}
	undo, err := a.reserve(node)
	if err != nil {
		return err
	}
	pod.Spec.NodeName = node
	k.placed = append(k.placed, placedPod{i, pod, undo})
	k.count(i, node, 1)
	return nil
}

// removeLast removes the pod that was placed last and returns its podSet.
func (k *contest) removeLast() int {
	if !slices.Contains(k.met, "given back") {
		k.meet("given back")
	}
	last := k.placed[len(k.placed)-1]
	k.placed = k.placed[:len(k.placed)-1]
	last.undo()
	k.count(last.set, last.pod.Spec.NodeName, -1)
	return last.set
}

func (k *contest) count(i int, node string, n int) {
	k.free[node].Sub(k.pods[i].Requests, n)
	for _, state := range []*fit.InterPodState{k.state, k.exact} {
		switch {
		case state == nil:
		case n > 0:
			state.Place(i, node)
		default:
			state.Remove(i, node)
		}
	}
	k.update()
}

func (k *contest) removeAll() {
	for _, p := range slices.Backward(k.placed) {
		p.undo()
	}
}
