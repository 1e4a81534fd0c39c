package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// BadInput tests the messages for a job that cannot be queued as it is, or that is changed in a way that is not allowed. Each case is
// built from the object of each kind, by the location of its pod templates.
func BadInput(t *testing.T, subject func(schema.GroupVersionKind) Subject) {
	for _, op := range operators() {
		t.Run(op.kind+op.what, func(t *testing.T) {
			for _, c := range badCases(op) {
				t.Run(c.name, func(t *testing.T) {
					bad := op.changed(c.change)
					bad.unqueued = c.unqueued
					w := newWorld(subject(bad.key().GroupVersionKind), bad)
					w.down = c.down
					w.play(story{c.name, c.steps})
					w.report(t, "a %s %s", op.kind, c.name)
				})
			}
		})
	}
}

// badCase is what is wrong with a job, and what is to come of that.
type badCase struct {
	name string
	// change changes what the user submits; nil is nothing.
	change func(job map[string]any)
	// unqueued jobs are created without a queue, and down: their operator does not run at first.
	unqueued, down bool
	steps          []step
}

// badCases are those of a kind.
func badCases(op *operator) []badCase {
	out := slices.Concat(unfit(op), refusals(op), moves(op))
	for _, owner := range operators() {
		if owner.kind != "Job" && owner.kind != op.kind {
			out = append(out, part(owner.key().GroupVersionKind))
		}
	}
	if op.kind != "AppWrapper" {
		out = append(out, partOfUnqueued(schema.GroupVersionKind{Group: "workload.codeflare.dev", Version: "v1beta2", Kind: "AppWrapper"}))
	}
	return append(out, badCase{name: "whose owner is deleted while it is held", steps: []step{
		{"it waits", func(w *world) { w.pool = "" }, waits}, owned, orphaned}},
		badCase{name: "whose owner is deleted amid its pods", steps: []step{
			owned, {"it has pods", nil, func(w *world) bool { return len(w.running()) > 0 }}, orphaned}})
}

// unfit returns jobs that have no pods, or too many podSets.
func unfit(op *operator) (out []badCase) {
	what := "the " + op.kind
	// corrected jobs run.
	corrected := step{"it runs once it is corrected", func(w *world) {
		w.down = false
		w.edit(user, op.job(w), func(o map[string]any) { o["spec"] = runtime.DeepCopyJSON(op.submitted().Object)["spec"] })
	}, allRun("a")}
	switch op.kind {
	case "Job", "SparkApplication": // the API server refuses one without its templates
	case "TrainJob":
		out = append(out, badCase{name: "whose operator does not run", down: true,
			steps: []step{refusedFor("its pods are not known yet"), corrected}})
	default:
		out = append(out, badCase{name: "of which the stanza matches nothing", change: func(job map[string]any) {
			job["spec"] = map[string]any{}
			op.hold(job, true)
		}, steps: []step{refusedFor(what), corrected}})
	}
	const tooMany = "kinds of pods, and a Workload has room for 18"
	for _, c := range []badCase{
		{name: "of 300 kinds of pods", change: func(job map[string]any) { multiply(job, 300) }, steps: []step{refusedFor(tooMany), corrected}},
		{name: "whose pods have a name twice", change: func(job map[string]any) { repeat(job) }, steps: []step{refusedFor("twice; rename one"), corrected}},
	} {
		if op.changed(c.change).object != op.changed(nil).object {
			out = append(out, c)
		}
	}
	return append(out, badCase{name: "of no replicas", change: func(job map[string]any) { zero(job) }, steps: []step{
		{"it is started, or it is told why not", nil, func(w *world) bool { return hasEvent(w, "Started: ") || hasEvent(w, "Refused: ") }}, goes}})
}

// refusals are those of the webhook of an operator.
func refusals(op *operator) []badCase {
	const why = "spec.network: no such network"
	// refuses makes the webhook refuse changes of suspended jobs, or of those that are not suspended.
	refuses := func(w *world, held bool) {
		w.refuses = func(o *unstructured.Unstructured) error {
			if o.GetKind() != op.kind || w.actor.(*operator).isHeld(o) != held {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: strings.ToLower(op.kind) + "s"}, o.GetName(), fmt.Errorf("%s", why))
		}
	}
	isTold := func(reason string) func(*world) bool {
		return func(w *world) bool { return hasEvent(w, reason+": ") && hasEvent(w, why) && pass(w, 30) }
	}
	accepted := step{"it runs once that is accepted", func(w *world) { w.refuses, w.pool = nil, "b" }, allRun("b")}
	return []badCase{
		{name: "whose start its operator refuses", steps: []step{
			{"it is told, and makes room", func(w *world) { refuses(w, true) }, func(w *world) bool {
				return isTold("StartRefused")(w) && !workload.HasQuota(w.workload())
			}}, accepted}},
		{name: "whose stop its operator refuses", steps: []step{starts,
			{"it is told, and keeps its quota", func(w *world) { refuses(w, false); w.evict("") }, func(w *world) bool {
				return isTold("StopRefused")(w) && workload.HasQuota(w.workload())
			}}, accepted}},
		{name: "whose restore its operator refuses", steps: []step{starts,
			{"it is told, and keeps its quota", func(w *world) { refuses(w, true); w.evict("") }, func(w *world) bool {
				return isTold("FailedRestore")(w) && workload.HasQuota(w.workload())
			}}, accepted}},
	}
}

// moves are jobs that get a queue, change it, or leave it.
func moves(op *operator) []badCase {
	label := func(queue string) func(*world) {
		return func(w *world) {
			w.edit(user, op.job(w), func(o map[string]any) {
				set(o, queue, "metadata", "labels", jobs.QueueLabel)
				if queue == "" {
					delete(get[map[string]any](o, "metadata", "labels"), jobs.QueueLabel)
				}
			})
		}
	}
	held := step{"it waits", func(w *world) { w.pool = "" }, waits}
	// runsOn: what no policy has refused stops no job.
	runsOn := func(queue string) []step {
		return []step{starts, {"it runs on, with its quota", label(queue), func(w *world) bool {
			return pass(w, 30) && allRun("a")(w) && workload.HasQuota(w.workload())
		}}, goes}
	}
	return []badCase{
		{name: "that gets a queue while it runs", unqueued: true,
			change: func(job map[string]any) { op.hold(job, false) },
			steps: []step{
				{"it runs", nil, func(w *world) bool { return pass(w, 10) && len(w.running()) > 0 && w.workload() == nil }},
				{"it is stopped, and told so", label("main"), func(w *world) bool { return hasEvent(w, "Stopped: Suspended: ") && w.workload() != nil }},
				{"it runs by its queue", nil, allRun("a")}, goes}},
		{name: "that leaves its queue while it waits", steps: []step{held,
			{"it has no queue", label(""), func(w *world) bool { return w.workload() == nil && len(w.life.due) == 0 }},
			{"it is told", nil, func(w *world) bool { return hasEvent(w, "LeftQueue: ") }},
			{"it waits again", label("other"), func(w *world) bool { return w.workload() != nil }}, goes}},
		{name: "that goes to another queue while it waits", steps: []step{held,
			{"its Workload follows", label("other"), func(w *world) bool { return w.workload().Spec.QueueName == "other" }}, goes}},
		{name: "that leaves its queue while it runs", steps: runsOn("")},
		{name: "that goes to another queue while it runs", steps: runsOn("other")},
	}
}

// ownerOf is an object of a kind, and what is written of it on what it controls.
func ownerOf(kind schema.GroupVersionKind) (owner *unstructured.Unstructured, references []any) {
	owner = &unstructured.Unstructured{}
	owner.SetGroupVersionKind(kind)
	owner.SetNamespace("default")
	owner.SetName("whole")
	owner.SetUID("whole-uid")
	return owner, []any{map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "name": "whole",
		"uid": "whole-uid", "controller": true}}
}

// partOfUnqueued is a job that an object of a kind controls which is in no queue.
func partOfUnqueued(kind schema.GroupVersionKind) badCase {
	owner, references := ownerOf(kind)
	return badCase{name: "that is part of a " + kind.Kind + " in no queue", change: func(job map[string]any) {
		set(job, references, "metadata", "ownerReferences")
	}, steps: []step{
		{"it runs by its own queue", func(w *world) { w.create(user, owner.DeepCopy()) }, allRun("a")},
		{"it goes with what it is part of", func(w *world) { w.remove(user, owner) }, isGone},
	}}
}

// part is a job that an object of a kind controls which queues with all that it makes: its operator
// has copied the label of the queue to it, and the record of the start.
func part(kind schema.GroupVersionKind) badCase {
	owner, references := ownerOf(kind)
	owner.SetLabels(map[string]string{jobs.QueueLabel: "main"})
	return badCase{name: "that is part of a " + kind.Kind, change: func(job map[string]any) {
		set(job, references, "metadata", "ownerReferences")
		set(job, "{}", "metadata", "annotations", jobs.StartedAnnotation)
	}, steps: []step{
		{"it is left alone", func(w *world) { w.create(user, owner.DeepCopy()) }, func(w *world) bool {
			return pass(w, 30) && w.workload() == nil && w.changes == 0
		}},
		{"it goes with what it is part of", func(w *world) { w.remove(user, owner) }, isGone},
	}}
}

// owned gives a job an owner that does not queue, and orphaned deletes the owner.
var (
	pipeline = read(`{apiVersion: acme.io/v1, kind: Pipeline, metadata: {namespace: default, name: pipeline, uid: pipeline-uid}}`)
	owned    = step{"it has an owner", func(w *world) {
		w.create(user, pipeline.DeepCopy())
		w.edit(user, w.actor.job(w), func(o map[string]any) {
			set(o, []any{map[string]any{"apiVersion": "acme.io/v1", "kind": "Pipeline", "name": "pipeline",
				"uid": "pipeline-uid", "controller": true}}, "metadata", "ownerReferences")
		})
	}, func(w *world) bool { return true }}
	orphaned = step{"its owner is deleted, and nothing is left", func(w *world) { w.remove(user, pipeline) }, isGone}
)

// hasEvent reports whether the message of an event contains what.
func hasEvent(w *world, what string) bool {
	return slices.ContainsFunc(w.events, func(e string) bool { return strings.Contains(e, what) })
}

// refusedFor is the step of a job that says why it is refused, to its user and to its queue.
func refusedFor(why string) step {
	return step{"it is refused: " + why, nil, func(w *world) bool {
		own := w.workload()
		return hasEvent(w, "Refused: The job cannot be queued as specified: ") && hasEvent(w, why) && own != nil &&
			strings.Contains(own.Annotations[workload.RefusedAnnotation], why)
	}}
}

// changed returns an operator whose job is changed before it is submitted.
func (op *operator) changed(change func(job map[string]any)) *operator {
	job, out := read(op.object), *op
	if change != nil {
		change(job.Object)
	}
	text, err := json.Marshal(job.Object)
	if err != nil {
		panic(err) // it was read from YAML
	}
	out.object = string(text)
	return &out
}

// hasTemplate reports whether a value has a pod template somewhere.
func hasTemplate(value any) bool {
	switch x := value.(type) {
	case map[string]any:
		if _, ok := x["containers"]; ok {
			return true
		}
		for _, inner := range x {
			if hasTemplate(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(x, hasTemplate)
	}
	return false
}

// nameOf is the field of an element that names its pods; empty if their place does.
func nameOf(element any) string {
	for _, name := range []string{"name", "groupName"} {
		if get[string](element.(map[string]any), name) != "" {
			return name
		}
	}
	return ""
}

// multiply makes of each list of elements with pod templates one of n elements.
func multiply(value any, n int) {
	eachList(value, func(all []any) []any {
		for i := len(all); i < n; i++ {
			next := runtime.DeepCopyJSON(all[0].(map[string]any))
			if name := nameOf(next); name != "" {
				next[name] = fmt.Sprint("more-", i)
			}
			all = append(all, next)
		}
		return all
	})
}

// repeat repeats an element with a pod template, by its name.
func repeat(value any) {
	eachList(value, func(all []any) []any {
		if nameOf(all[0]) == "" {
			return all
		}
		return append(all, runtime.DeepCopyJSONValue(all[0]))
	})
}

// eachList changes the lists below a value whose elements have pod templates.
func eachList(value any, change func([]any) []any) {
	object, ok := value.(map[string]any)
	if !ok {
		return
	}
	for key, inner := range object {
		if all, ok := inner.([]any); ok && key != "containers" && hasTemplate(inner) {
			object[key] = change(all)
			continue
		}
		eachList(inner, change)
	}
}

// zero sets every number of pods to zero.
func zero(value any) {
	switch x := value.(type) {
	case map[string]any:
		for _, name := range []string{"replicas", "parallelism", "completions", "instances", "numNodes"} {
			if _, ok := x[name]; ok {
				x[name] = int64(0)
			}
		}
		for _, inner := range x {
			if role, ok := inner.(map[string]any); ok && hasTemplate(role["template"]) {
				role["replicas"] = int64(0)
			}
			zero(inner)
		}
	case []any:
		for _, inner := range x {
			if role, ok := inner.(map[string]any); ok && hasTemplate(role["template"]) {
				role["replicas"] = int64(0)
			}
			zero(inner)
		}
	}
}
