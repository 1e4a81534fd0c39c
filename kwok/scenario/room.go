package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-dev/muster/nodegroups"
)

// machines of one kind, there or to be bought.
type machines struct {
	count int64
	// offer is what pods may have of each, the number of pods included.
	offer  corev1.ResourceList
	labels map[string]string
	// names of fixed nodes. Each has its name as its host name label.
	names []string
}

func (s *Scenario) machines() (out []machines) {
	for _, n := range s.Nodes {
		out = append(out, machines{count: int64(n.Count), offer: n.offer(), labels: n.Labels, names: n.Names()})
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		count := g.Spec.MaxNodes
		if holds := g.Spec.Kwok.Holds; holds != nil {
			count = min(count, *holds)
		}
		out = append(out, machines{count: int64(count), offer: nodegroups.Allocatable(g.Spec.Template), labels: nodegroups.Labels(g)})
	}
	return slices.DeleteFunc(out, func(m machines) bool { return m.count <= 0 })
}

// has says whether some of the machines bear the label.
func (m machines) has(key, value string) bool {
	if key == corev1.LabelHostname {
		return slices.Contains(m.names, value)
	}
	got, ok := m.labels[key]
	return ok && got == value
}

// usable are the machines that a nodeSelector selects.
func usable(all []machines, selector map[string]string) (out []machines) {
	for _, m := range all {
		selects := true
		for key, value := range selector {
			selects = selects && m.has(key, value)
		}
		if !selects {
			continue
		}
		if _, ok := selector[corev1.LabelHostname]; ok {
			m.count = 1
		}
		out = append(out, m)
	}
	return out
}

// room returns how many of the pods run at once on the machines that they may use, if these are empty. The pods are identical, so each
// machine has a whole number of them.
func (p podSet) room(usable []machines) (pods int64) {
	for _, m := range usable {
		offer := m.offer[corev1.ResourcePods]
		each := offer.Value()
		for r, request := range p.requests {
			each = min(each, amount(m.offer[r], r)/amount(request, r))
		}
		pods += each * m.count
	}
	return pods
}

// gang says whether all pods of the arrival's Jobs need room at once.
func (a *Arrival) gang(s *Shape) bool {
	// It may start with fewer, says Kueue's API.
	_, partial := s.Annotations["kueue.x-k8s.io/job-min-parallelism"]
	return (s.Together || a.Queue != "") && !partial
}

// place of what is wrong with pods in the file, and what is said before it.
type place struct {
	path *field.Path
	of   string
}

// at is the place of a field of the shape, or of a key in it. An object is one place, so its pod
// set and the field are named in the message.
func (p podSet) at(shape *field.Path, name string, key ...string) place {
	within := func(path *field.Path) *field.Path {
		for _, k := range key {
			path = path.Key(k)
		}
		return path
	}
	if p.name == "" {
		return place{path: within(shape.Child(name))}
	}
	return place{shape.Child("object"), fmt.Sprintf("pod set %s, %s: ", p.name, within(field.NewPath(name)))}
}

func (j *judge) refuseAt(at place, format string, args ...any) {
	j.Refuse(at.path, "%s", at.of+fmt.Sprintf(format, args...))
}

// fits rejects pods of a shape that never fit on the machines.
func (j *judge) fits(a *Arrival, s *Shape, p podSet, all []machines, path *field.Path) {
	if s.MayNotFit {
		return
	}
	selected := usable(all, p.nodeSelector)
	if len(selected) == 0 {
		j.selectsNothing(p, all, path)
		return
	}
	fits := true
	for _, r := range slices.Sorted(maps.Keys(p.requests)) {
		request, most := p.requests[r], largest(selected, r)
		at := p.at(path, "requests", string(r))
		switch {
		case most.IsZero():
			j.refuseAt(at, "no machine %shas any; they have %s", among(p.nodeSelector), strings.Join(resources(selected), ", "))
		case request.Cmp(most) > 0:
			j.refuseAt(at, "it is %s, but the largest machine %shas %s; ask for less, or give larger machines", request.String(),
				among(p.nodeSelector), most.String())
		default:
			continue
		}
		fits = false
	}
	if !fits {
		return
	}
	switch pods := p.room(selected); {
	case pods == 0:
		j.refuseAt(p.at(path, "requests"), "no machine %shas room for all of it in one pod; ask for less, or give larger machines",
			among(p.nodeSelector))
	case pods < int64(p.pods) && a.gang(s):
		j.refuseAt(p.at(path, "pods"), "it is %d, but all machines %shave room for %d at once; give fewer pods or more machines, "+
			"or mayNotFit: true if that is what the scenario shows", p.pods, among(p.nodeSelector), pods)
	}
}

// among says for messages which machines are meant.
func among(selector map[string]string) string {
	if len(selector) == 0 {
		return ""
	}
	return "that nodeSelector selects "
}

func (j *judge) selectsNothing(p podSet, all []machines, shape *field.Path) {
	given, selector := false, p.nodeSelector
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if slices.ContainsFunc(all, func(m machines) bool { return m.has(key, selector[key]) }) {
			continue
		}
		var values []string
		for _, m := range all {
			if v, ok := m.labels[key]; ok && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		j.refuseAt(p.at(shape, "nodeSelector", key), "no node or group has the value %q; there %s", selector[key], choices(values))
		given = true
	}
	if !given {
		j.refuseAt(p.at(shape, "nodeSelector"), "no node or group has all of these labels; select one that there is")
	}
}

// largest amount that a machine offers.
func largest(of []machines, r corev1.ResourceName) (most resource.Quantity) {
	for _, m := range of {
		if offer := m.offer[r]; offer.Cmp(most) > 0 {
			most = offer
		}
	}
	return most
}

// resources that the machines offer, sorted.
func resources(of []machines) (out []string) {
	for _, m := range of {
		for r := range m.offer {
			if !slices.Contains(out, string(r)) {
				out = append(out, string(r))
			}
		}
	}
	slices.Sort(out)
	return out
}

// choices says what there is to choose from, as the end of a message.
func choices(of []string) string {
	const most = 10
	slices.Sort(of)
	switch {
	case len(of) == 0:
		return "is none"
	case len(of) > most:
		return fmt.Sprintf("are %s and %d more", strings.Join(of[:most], ", "), len(of)-most)
	}
	return "are " + strings.Join(of, ", ")
}
