package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selector is one thing that a pod asks of its node's labels and name: that one of
// the terms holds. A pod may request several, each of which must hold.
type selector struct {
	// what does not match, in words, where it is not the pod's node affinity.
	what  string
	terms []term
}

// term holds where all its requirements do.
type term struct {
	labels []labels.Requirement
	names  []nameRequirement
	// invalid terms hold nowhere.
	invalid bool
}

// nameRequirement is about the node's name: to be it, or not to be it.
type nameRequirement struct {
	name string
	not  bool
}

// nodeFields says what requirements on fields of the node are worth.
type nodeFields bool

const (
	// matchFields counts them.
	matchFields nodeFields = true
	// ignoreFields leaves them out, as the scheduler does with those of volumes.
	ignoreFields nodeFields = false
)

func newSelector(what string, terms []corev1.NodeSelectorTerm, fields nodeFields) selector {
	s := selector{what: what}
	for i := range terms {
		// A term that requests nothing selects no node at all.
		if t := &terms[i]; len(t.MatchExpressions) > 0 || len(t.MatchFields) > 0 {
			s.terms = append(s.terms, newTerm(t, fields))
		}
	}
	return s
}

func newTerm(t *corev1.NodeSelectorTerm, fields nodeFields) term {
	var out term
	for _, e := range t.MatchExpressions {
		r, err := labels.NewRequirement(e.Key, selectionOperators[e.Operator], e.Values)
		if err != nil {
			return term{invalid: true}
		}
		out.labels = append(out.labels, *r)
	}
	if fields == ignoreFields {
		return out
	}
	for _, f := range t.MatchFields {
		in, notIn := f.Operator == corev1.NodeSelectorOpIn, f.Operator == corev1.NodeSelectorOpNotIn
		if f.Key != metav1.ObjectNameField || len(f.Values) != 1 || !in && !notIn {
			return term{invalid: true}
		}
		out.names = append(out.names, nameRequirement{name: f.Values[0], not: notIn})
	}
	return out
}

var selectionOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

func (s *selector) holds(name string, nodeLabels map[string]string) bool {
	for i := range s.terms {
		if s.terms[i].holds(name, nodeLabels) {
			return true
		}
	}
	return false
}

func (t *term) holds(name string, nodeLabels map[string]string) bool {
	if t.invalid {
		return false
	}
	for i := range t.labels {
		if !t.labels[i].Matches(labels.Set(nodeLabels)) {
			return false
		}
	}
	for _, r := range t.names {
		if (r.name == name) == r.not {
			return false
		}
	}
	return true
}

// keys are the labels that the selector looks at. The host name is among them only
// where the nodes that it means cannot be listed.
func (s *selector) keys() (out []string) {
	for i := range s.terms {
		for k := range s.terms[i].labels {
			if r := &s.terms[i].labels[k]; r.Key() != corev1.LabelHostname || !listsValues(r) {
				out = append(out, r.Key())
			}
		}
	}
	return out
}

func listsValues(r *labels.Requirement) bool {
	switch r.Operator() {
	case selection.In, selection.NotIn, selection.Equals, selection.DoubleEquals, selection.NotEquals:
		return true
	default:
		return false
	}
}

// Selects are labels that a node of the pod must have, each with a value that suits it.
func (p *Pod) Selects() map[string]string {
	out := map[string]string{}
	if p.affinity != nil {
		for i := range p.affinity.terms {
			for k := range p.affinity.terms[i].labels {
				switch r := &p.affinity.terms[i].labels[k]; r.Operator() {
				case selection.In:
					out[r.Key()] = slices.Min(r.ValuesUnsorted())
				case selection.Exists:
					out[r.Key()] = ""
				}
			}
		}
	}
	for _, l := range p.nodeSelector {
		out[l.key] = l.value
	}
	return out
}

// names are the nodes that the selector mentions; only says that no other holds.
func (s *selector) names() (out []string, only bool) {
	only = true
	for i := range s.terms {
		t := &s.terms[i]
		limited := t.invalid
		for k := range t.labels {
			if r := &t.labels[k]; r.Key() == corev1.LabelHostname && listsValues(r) {
				out = append(out, r.ValuesUnsorted()...)
				limited = limited || r.Operator() == selection.In
			}
		}
		for _, r := range t.names {
			out = append(out, r.name)
			limited = limited || !r.not
		}
		only = only && limited
	}
	return out, only
}

// label is a label that a node must have.
type label struct{ key, value string }

// sortedLabels puts them in the order of their keys, so that messages are the same
// each time.
func sortedLabels(set map[string]string) []label {
	out := make([]label, 0, len(set))
	for k, v := range set {
		out = append(out, label{k, v})
	}
	slices.SortFunc(out, func(a, b label) int { return strings.Compare(a.key, b.key) })
	return out
}
