package podgroup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// gang is pods that queue together.
type gang struct {
	key
	// job is what its Workload is made from, and what Events are about: the pod, the first of
	// the group, or the object that makes the pods; nil if there is none. kind is what the
	// Workload is named after.
	job  client.Object
	kind schema.GroupVersionKind
	// total is how many pods run at once.
	total    int
	podSets  []kueue.PodSet
	refusals []string
	// podSet is the name of the pod set of a pod.
	podSet func(*corev1.Pod) kueue.PodSetReference
	// awaited: something makes the pods, and the gang queues before they are there.
	awaited bool
	// serves: it never ends.
	serves bool
	// leaves: the owner of the pods is being deleted, which a finalizer may delay. Running pods keep their quota until they stop, and no
	// other pod starts.
	leaves bool
	// surges: it is a group that a rolling update adds for a while. It is there as long as it has pods.
	surges bool

	// gated pods may not run yet, open pods may, and over pods have ended. Each list starts with the oldest.
	gated, open, over []*corev1.Pod
	// succeeded is how many pods have succeeded, including deleted ones.
	succeeded int
	// succeededOf is the same of each pod set of the Workload.
	succeededOf []int32
}

// GroupVersionKind implements jobs.Source.
func (g *gang) GroupVersionKind() schema.GroupVersionKind { return g.kind }

// PodSets implements jobs.Source.
func (g *gang) PodSets(client.Object) ([]kueue.PodSet, []string) { return g.podSets, g.refusals }

// main is the name of the pod set of gangs whose pods are all alike.
func main(*corev1.Pod) kueue.PodSetReference { return kueue.DefaultPodSetName }

// add takes pods in.
func (g *gang) add(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		switch {
		case jobs.IsOver(pod):
			g.over = append(g.over, pod)
		case !isGated(pod):
			g.open = append(g.open, pod)
		case pod.DeletionTimestamp.IsZero():
			g.gated = append(g.gated, pod)
		}
	}
	for _, pod := range g.over {
		if pod.Status.Phase == corev1.PodSucceeded {
			g.succeeded++
		}
	}
}

// all are the pods, in the order of their creation as far as it counts.
func (g *gang) all() []*corev1.Pod { return slices.Concat(g.over, g.open, g.gated) }

// labelOf is a label of what the Workload is made from, or else of the first pod that has it.
func (g *gang) labelOf(key string) (value string, has bool) {
	if value, has = g.job.GetLabels()[key]; has {
		return value, true
	}
	for _, pod := range g.all() {
		if value, has = pod.Labels[key]; has {
			return value, true
		}
	}
	return "", false
}

// isComplete reports whether the pods are there that are to run.
func (g *gang) isComplete() bool {
	return g.awaited || len(g.gated)+len(g.open)+g.succeeded >= g.total
}

// outcome is what became of a gang, with Kueue's message about a group.
func (g *gang) outcome() (jobs.Outcome, string) {
	switch {
	case g.serves || len(g.open) > 0 || len(g.over) == 0 && g.succeeded == 0:
		return jobs.Unfinished, ""
	case g.family == single:
		pod := g.over[0]
		if pod.Status.Phase == corev1.PodSucceeded {
			return jobs.Succeeded, cmp.Or(pod.Status.Message, "Pod finished successfully")
		}
		return jobs.Failed, cmp.Or(pod.Status.Message, "Pod failed")
	}
	message := fmt.Sprintf("Pods succeeded: %d/%d.", g.succeeded, g.total)
	switch {
	case g.succeeded >= g.total:
		return jobs.Succeeded, message
	case len(g.gated) == 0 && slices.ContainsFunc(g.over, isFinal):
		return jobs.Failed, message
	}
	return jobs.Unfinished, ""
}

// isFinal reports whether a pod says that its group is not to be repaired.
func isFinal(pod *corev1.Pod) bool { return pod.Annotations[retriableAnnotation] == "false" }

// indexLabelOf is the label that numbers the pods of a group: one that the pod names, or Kueue's.
func indexLabelOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation], kueue.PodGroupPodIndexLabel)
}

// singleOf is the gang of a pod.
func singleOf(k key, pod *corev1.Pod) *gang {
	g := &gang{key: k, job: pod, kind: podKind, total: 1, podSet: main}
	g.podSets = []kueue.PodSet{{
		Name: kueue.DefaultPodSetName, Count: 1, Template: templateOf(pod), TopologyRequest: numbered(indexLabelOf(pod)),
	}}
	g.add([]*corev1.Pod{pod})
	return g
}

// groupOfPods is the gang of a pod group. Each pod set has the pods of one role; with fast
// admission, the group queues as soon as its first pod is there, and all others are like it.
func groupOfPods(k key, pods []*corev1.Pod) *gang {
	g := &gang{key: k, kind: podKind, podSet: func(pod *corev1.Pod) kueue.PodSetReference { return kueue.PodSetReference(roleOf(pod)) }}
	g.add(pods)
	if len(g.all()) == 0 {
		return g // there is none, or all that wait are on their way out
	}
	first := g.all()[0]
	g.job = first
	g.serves = first.Annotations[servingAnnotation] == "true"
	g.awaited = first.Annotations[fastAnnotation] == "true"
	text := first.Annotations[workload.GroupCountAnnotation]
	total, err := strconv.ParseInt(text, 10, 32)
	if g.total = int(total); err != nil || total < 1 {
		g.total = len(pods)
		g.refusals = append(g.refusals, fmt.Sprintf("the annotation %s of pod %s is %q, which is not a number of pods of at least 1; "+
			"create the pods with it", workload.GroupCountAnnotation, first.Name, text))
	}
	for _, pod := range g.all() {
		if why := g.refusePrebuilt(pod); why != "" && !isFromManager(pod) {
			g.refusals = append(g.refusals, why)
		}
		for _, what := range []struct{ name, of, first string }{
			{"label " + jobs.QueueLabel, pod.Labels[jobs.QueueLabel], first.Labels[jobs.QueueLabel]},
			{"annotation " + workload.GroupCountAnnotation, pod.Annotations[workload.GroupCountAnnotation], text},
		} {
			if what.of != what.first {
				g.refusals = append(g.refusals, fmt.Sprintf("the %s is %q on pod %s and %q on pod %s of the group; give all pods the same",
					what.name, what.of, pod.Name, what.first, first.Name))
			}
		}
		if pod.Status.Phase == corev1.PodFailed {
			continue
		}
		name := g.podSet(pod)
		i := slices.IndexFunc(g.podSets, func(s kueue.PodSet) bool { return s.Name == name })
		if i < 0 {
			g.podSets = append(g.podSets, kueue.PodSet{
				Name: name, Template: templateOf(pod), TopologyRequest: numbered(indexLabelOf(pod)),
			})
			i = len(g.podSets) - 1
		}
		g.podSets[i].Count++
	}
	slices.SortFunc(g.podSets, func(a, b kueue.PodSet) int { return cmp.Compare(a.Name, b.Name) })
	if g.awaited {
		if len(g.podSets) > 1 {
			g.refusals = append(g.refusals, fmt.Sprintf("the pods of the group differ in what they take or where they may go, "+
				"and the annotation %s is for pods that are alike; remove it", fastAnnotation))
		} else if len(g.podSets) == 1 {
			g.podSets[0].Count = int32(g.total) //nolint:gosec // it was parsed as 32 bits
		}
	}
	return g
}

// Another client may create the Workload of a group, with the name of the group. Like Kueue, Muster recognizes it by its pods. Until
// there are any, it has no owner and no mark of Muster's:
//
//	no such Workload ──created──▶ it waits for its pods ──all are there──▶ owned by them ──admitted──▶ start
//	                                                                            │
//	                                                                            └─ for other pods ──▶ Finished, OutOfSync

// namesPrebuilt reports whether the pods of a gang are a group that names its Workload.
func (g *gang) namesPrebuilt() bool {
	return g.family == group && g.job != nil && jobs.PrebuiltName(g.job) == g.name
}

// refusePrebuilt says why a pod of a group names a Workload that cannot be that of the group; empty if it does not.
func (g *gang) refusePrebuilt(pod *corev1.Pod) string {
	name := jobs.PrebuiltName(pod)
	if name == "" || name == g.name {
		return ""
	}
	return fmt.Sprintf("%s names the Workload %q on pod %s of the group %s, and that of a group has its name; give both the same",
		jobs.PrebuiltLabel, name, pod.Name, g.name)
}

// awaitsPods reports whether another client has created the Workload for a group that has had no pods yet. Muster marks its own
// Workloads, since pods that are deleted with --cascade=orphan leave them without owners, too.
func awaitsPods(w *kueue.Workload) bool {
	return len(w.OwnerReferences) == 0 && w.Labels[workload.ManagedLabel] != "true"
}

// name is that of the Workload.
func (g *gang) workloadName() string {
	switch g.family {
	case group:
		return g.name
	case ofLeaderWorkerSet:
		named := &metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", g.name, g.index), UID: originOf(g.job)}
		return jobs.WorkloadName(g.kind, named)
	}
	return cmp.Or(copyOf(g.job), jobs.WorkloadName(g.kind, g.job))
}
