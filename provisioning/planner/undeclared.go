package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// plenty is an amount of a resource that is enough for any number of pods.
const plenty = 1 << 50

// undeclared returns the reason to wait for a gang that is hopeless only because of labels and resources that no group declares. Agents
// may add them to nodes later, such as huge pages and the results of device plugins and feature discovery. ok is false if it is hopeless
// anyway. What one group declares, the others are assumed not to have.
func (q *query) undeclared() (r Reason, ok bool) {
	labels, resources, levels := map[string]string{}, nodegroups.Resources{}, []string(nil)
	for _, p := range q.pods {
		maps.Copy(labels, p.Selects())
		for name, v := range p.Requests {
			if v > 0 {
				resources[name] = plenty
			}
		}
	}
	for _, level := range q.levels() {
		if !slices.ContainsFunc(q.Groups, func(g Group) bool { _, ok := g.promises(level); return ok }) {
			labels[level] = level
			levels = append(levels, level)
		}
	}
	for i := range q.Groups {
		g := &q.Groups[i]
		maps.DeleteFunc(labels, func(key, _ string) bool { _, declared := g.Labels[key]; return declared })
		maps.DeleteFunc(resources, func(name corev1.ResourceName, _ int64) bool {
			_, declared := g.Promised[name]
			return declared || g.Allocatable[name] > 0
		})
	}
	delete(labels, corev1.LabelHostname) // a new machine has another name
	if len(labels) == 0 && len(resources) == 0 {
		return r, false
	}
	again := *q.Snapshot
	again.Groups = slices.Clone(q.Groups)
	for i := range again.Groups {
		g := &again.Groups[i]
		g.Labels, g.UsableAtBest = maps.Clone(g.Labels), g.UsableAtBest.Clone()
		maps.Copy(g.Labels, labels)
		maps.Copy(g.UsableAtBest, resources)
		if g.PublishedAtBest == nil {
			g.PublishedAtBest = fit.AnyDevices{} // none was published yet, so its properties are unknown
		}
	}
	if newQuery(&again, q.gang, q.pods, q.policy, bestOfDays).hopeless() {
		return r, false
	}
	return Reason{Code: CodeUndeclared, Message: undeclaredMessage(resources, labels, levels)}, true
}

func undeclaredMessage(resources nodegroups.Resources, labels map[string]string, levels []string) string {
	var what, where []string
	chosen := ""
	for _, name := range resources.Names() {
		what = append(what, "the resource "+string(name))
	}
	if len(resources) > 0 {
		where = append(where, "spec.template.capacity")
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		what = append(what, "the label "+key)
		if slices.Contains(levels, key) {
			chosen = "if the cloud chooses the value of " + key + " for each machine, declare it in spec.topology; "
		}
	}
	if len(labels) > 0 {
		where = append(where, "spec.template.labels")
	}
	return fmt.Sprintf("no NodeGroup declares %s: %sif nodes get it from an agent, declare it in %s, for discovered groups by the tag "+
		"k8s.io/cluster-autoscaler/node-template/%s of the Auto Scaling group, or in kube-labels and kube-env of the instance template",
		strings.Join(what, " and "), chosen, strings.Join(where, " and "), tagOf(resources, labels))
}

// tagOf returns the last part of the AWS tag that declares the first of the missing labels or resources.
func tagOf(resources nodegroups.Resources, labels map[string]string) string {
	if names := resources.Names(); len(names) > 0 {
		return "resources/" + string(names[0])
	}
	return "label/" + slices.Sorted(maps.Keys(labels))[0]
}
