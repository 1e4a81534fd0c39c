package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// groups are the PodGroups of the rig, with what each waits for.
func (g *rig) groups() string {
	var list schedulingv1beta1.PodGroupList
	if err := g.c.List(context.Background(), &list); err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, p := range list.Items {
		text := fmt.Sprintf("%s of %d", p.Name, p.Spec.SchedulingPolicy.Gang.MinCount)
		if p.Spec.PriorityClassName != "" {
			text += " with priority " + p.Spec.PriorityClassName
		}
		if c := p.Spec.SchedulingConstraints; c != nil {
			text += " in one " + c.Topology[0].Key
		}
		if metav1.GetControllerOf(&p) != nil {
			text += ", controlled"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func inOneRack(j *batchv1.Job) {
	j.Spec.Template.Annotations = map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"}
}

// TestGangs: each start has a PodGroup of its own, and unused ones are deleted. The Job controller has created one, too.
func TestGangs(t *testing.T) {
	foreign := &schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Name: "train-1", Namespace: "default"}}
	owner := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "1234", Controller: new(true)}}
	frozen := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "train-1-main", Namespace: "default", OwnerReferences: owner}}
	frozen.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	frozen.Spec.WorkloadRef = &schedulingv1beta1.WorkloadReference{WorkloadName: foreign.Name, TemplateName: "main"}
	const frozenGroup = "train-1-main of 2, controlled"
	start := fmt.Sprint("1234-", now.Unix())
	for name, c := range map[string]struct {
		change     func(*batchv1.Job)
		off        bool
		groups     string
		label      string
		unlabelled bool
	}{
		"a gang":             {groups: start + " of 2", label: start},
		"a part of a gang":   {change: of(4, 4), groups: start + " of 2", label: start},
		"a gang in one rack": {change: inOneRack, groups: start + " of 2 in one rack", label: start},
		"a gang of a priority": {change: func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "high" },
			groups: start + " of 2 with priority high", label: start},
		"one pod":            {change: of(1, 1), label: ""},
		"an elastic Job":     {change: func(j *batchv1.Job) { j.Annotations = map[string]string{workload.ElasticAnnotation: "true"} }},
		"without PodGroups":  {off: true, groups: frozenGroup, unlabelled: true},
		"what is left of it": {change: func(j *batchv1.Job) { of(3, 3)(j); j.Status.Succeeded = 1 }, groups: start + " of 2", label: start},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*batchv1.Job) {}
			}
			g := newRig(t, suspendedJob(c.change), foreign.DeepCopy(), frozen.DeepCopy())
			g.r.Gangs().Store(!c.off)
			g.settle()
			g.status(admit)
			g.settle()
			if got := g.groups(); got != c.groups {
				t.Errorf("groups %q, want %q", got, c.groups)
			}
			label, labelled := g.job().Spec.Template.Labels[PodGroupLabel]
			if label != c.label || labelled == c.unlabelled || *g.job().Spec.Suspend {
				t.Errorf("label %q (%v), want %q; suspended %v", label, labelled, c.label, *g.job().Spec.Suspend)
			}
			if gone := g.c.Get(context.Background(), client.ObjectKeyFromObject(foreign), foreign.DeepCopy()) != nil; gone == c.off {
				t.Errorf("the Workload of scheduling.k8s.io is gone: %v", gone)
			}
			g.status(evict)
			g.settle() // stops
			g.settle() // restores
			if _, left := g.job().Spec.Template.Labels[PodGroupLabel]; left {
				t.Error("the label is left when the Job is restored")
			}
		})
	}
}
