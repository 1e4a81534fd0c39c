package scenario

import (
	"iter"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// named are the objects of the file that something in it refers to by name.
type named struct {
	// queues are the names of the LocalQueues of each namespace.
	queues                    map[string][]string
	clusterQueues, priorities []string
}

// refers rejects references to objects that the file does not have: Jobs would wait for them
// until the end.
func (j *judge) refers(s *Scenario) {
	all := named{queues: map[string][]string{}}
	for _, o := range s.created(math.MaxInt32) {
		all.add(o)
	}
	// What is wrong with one team's is wrong with those of all.
	for path, o := range s.created(1) {
		j.object(o, all, path)
	}
	for i := range s.Arrivals {
		a, path := &s.Arrivals[i], field.NewPath("arrivals").Index(i)
		if a.Queue != "" {
			for _, namespace := range s.namespacesOf(a) {
				if queues := all.queues[namespace]; !slices.Contains(queues, a.Queue) {
					j.Refuse(path.Child("queue"), "there is no LocalQueue %q in namespace %s; there %s: choose one, or add it to objects", a.Queue,
						namespace, choices(queues))
					break // the others lack it, too
				}
			}
		}
		for k, shape := range a.Shapes {
			if shape.Priority != "" && !slices.Contains(all.priorities, shape.Priority) {
				j.Refuse(path.Child("shapes").Index(k).Child("priority"),
					"there is no WorkloadPriorityClass %q; there %s: choose one, or add it to objects", shape.Priority, choices(all.priorities))
			}
		}
	}
}

func (n *named) add(o *unstructured.Unstructured) {
	if !ForQueues(o) {
		return
	}
	switch o.GetKind() {
	case "LocalQueue":
		n.queues[o.GetNamespace()] = append(n.queues[o.GetNamespace()], o.GetName())
	case "ClusterQueue":
		n.clusterQueues = append(n.clusterQueues, o.GetName())
	case "WorkloadPriorityClass":
		n.priorities = append(n.priorities, o.GetName())
	}
}

func (j *judge) object(o *unstructured.Unstructured, all named, path *field.Path) {
	switch kind := o.GroupVersionKind().GroupKind(); {
	case kind == kueue.SchemeGroupVersion.WithKind("LocalQueue").GroupKind():
		queue, _, _ := unstructured.NestedString(o.Object, "spec", "clusterQueue")
		if !slices.Contains(all.clusterQueues, queue) {
			j.Refuse(path.Child("spec", "clusterQueue"), "there is no ClusterQueue %q; there %s: choose one, or add it to objects", queue,
				choices(all.clusterQueues))
		}
	// Neither the bound nor --speed would include them.
	case kind == v1alpha1.GroupVersion.WithKind("NodeGroup").GroupKind():
		j.Refuse(path, "a NodeGroup has its place in groups; move it there")
	case kind == corev1.SchemeGroupVersion.WithKind("Node").GroupKind():
		j.Refuse(path, "a Node has its place in nodes; move it there")
	}
}

// created are the objects that a run creates, with those of the first so many teams.
func (s *Scenario) created(teams int32) iter.Seq2[*field.Path, *unstructured.Unstructured] {
	return func(yield func(*field.Path, *unstructured.Unstructured) bool) {
		for i := range s.Objects {
			if !yield(field.NewPath("objects").Index(i), &s.Objects[i]) {
				return
			}
		}
		if s.Teams == nil {
			return
		}
		for n := range int(min(teams, s.Teams.Count, mostTeams)) {
			objects, err := s.Teams.For(n)
			if err != nil {
				return // reported when they are created
			}
			for i, o := range objects {
				if !yield(field.NewPath("teams", "objects").Index(i), o) {
					return
				}
			}
		}
	}
}

// namespacesOf returns the namespaces of the arrival's Jobs.
func (s *Scenario) namespacesOf(a *Arrival) (out []string) {
	if a.Namespace != TeamWord {
		return []string{s.namespace(a, 0)}
	}
	if s.Teams == nil {
		return nil
	}
	for n := range int(min(s.Teams.Count, a.Count, mostTeams)) {
		out = append(out, s.Teams.Namespace(n))
	}
	return out
}
