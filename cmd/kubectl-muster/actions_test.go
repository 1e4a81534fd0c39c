package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

// acts changes a job that runs, one that waits, and their queue.
func (s *onSandbox) acts(kube client.Client) {
	s.Helper()
	small := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small",
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}}}
	small.Spec.Template.Annotations = map[string]string{kwokv1alpha1.RunForAnnotation: "1h"}
	small.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse("8")}}}}}
	night := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "night"}}
	night.Spec.ClusterQueue = "research"
	urgent := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 10}
	for _, o := range []client.Object{small, night, urgent} {
		if err := kube.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
	const runs = "default job/small Running"
	s.tells([]string{"jobs"}, runs, "main 1 8 nvidia.com/gpu 98.32", "default job/train Waiting")
	s.tells([]string{"jobs", "--state", "waiting", "-o", "wide"}, "default job/train Waiting")

	s.tells([]string{"hold", "job/small"}, "With --yes job/small is stopped (1 pod with 8 nvidia.com/gpu)", "Nothing is changed yet.")
	s.refuses([]string{"release", "job/small"}, "job/small is not held: it is Running")
	tenant := []string{"--as", "system:serviceaccount:default:tenant"}
	s.refuses(append([]string{"hold", "job/small"}, tenant...), "--clusterrole=muster-batch-admin --user=YOU -n default")
	s.does([]string{"hold", "job/small"}, "Done: job/small is stopped")
	s.tells([]string{"jobs"}, "default job/small Held")
	s.refuses([]string{"hold", "job/small"}, "job/small is held already: `kubectl muster release job/small` queues it again")
	s.refuses([]string{"requeue", "job/small"}, "job/small has no quota to give back: it is Held")
	s.does([]string{"move", "job/small", "night"}, "Done: job/small waits in LocalQueue night")
	s.tells([]string{"jobs", "--state", "Held"}, "default job/small Held", "night 1 8")
	s.does([]string{"move", "job/small", "main"}, "Done: job/small waits in LocalQueue main")
	s.tells([]string{"jobs", "--state", "Held"}, "default job/small Held", "main 1 8")
	s.does([]string{"release", "job/small"}, "Done: job/small is in LocalQueue main again")
	s.tells([]string{"jobs"}, runs)
	s.does([]string{"requeue", "job/small"}, "Done: job/small is stopped", "Done: job/small is in LocalQueue main again")
	s.tells([]string{"jobs"}, runs)

	s.refuses([]string{"move", "job/train", "nigth"}, `LocalQueue "nigth" does not exist`)
	s.refuses([]string{"move", "job/train"}, "`kubectl muster move` takes KIND/NAME and LOCALQUEUE, and got 1 argument")
	s.does([]string{"move", "job/train", "night"}, "Done: job/train waits in LocalQueue night")
	s.tells([]string{"jobs", "--state", "Waiting"}, "night 4 32 nvidia.com/gpu")
	s.refuses([]string{"move", "job/small", "night"}, "nothing is changed")
	s.does([]string{"prioritize", "job/train", "urgent"}, "Done: job/train has the priority of WorkloadPriorityClass urgent")
	s.tells([]string{"jobs", "-o", "wide"}, "night 4 32 nvidia.com/gpu - - 10 ")
	s.refuses([]string{"prioritize", "job/train", "urgent"}, "job/train has the label kueue.x-k8s.io/priority-class=urgent already")

	s.refuses([]string{"stop", "research"}, `"research" names no queue: use clusterqueue/NAME or localqueue/NAME`)
	s.tells([]string{"stop", "localqueue/main"}, "With --yes LocalQueue main admits no more jobs; 1 job of it that has quota goes on.")
	s.does([]string{"stop", "clusterqueue/research", "--drain"}, "admits no more jobs, and 1 job of it that has quota is stopped")
	s.tells([]string{"jobs"}, "default job/small Waiting")
	s.refuses([]string{"stop", "cq/research", "--drain"}, "ClusterQueue research has spec.stopPolicy HoldAndDrain already")
	s.does([]string{"resume", "clusterqueue/research"}, "Done: ClusterQueue research admits jobs again")
	s.tells([]string{"jobs"}, runs)
	s.lends()
	s.tells([]string{"cancel", "job/small"}, "With --yes job/small is deleted, and 1 pod with 8 nvidia.com/gpu are stopped.")
	s.does([]string{"cancel", "job/small"}, "Done: job/small is deleted")
	s.refuses([]string{"cancel", "job/small"}, "namespace default has no job named small")
}

// lends sets the quota of a queue for some seconds, and waits until Muster has restored it.
func (s *onSandbox) lends() {
	s.Helper()
	s.refuses([]string{"set-quota", "research/h100/nvidia.com/gpus=64"},
		"ClusterQueue research has no nominalQuota of nvidia.com/gpus in flavor h100")
	s.refuses(append([]string{"set-quota", "research/h100/nvidia.com/gpu=48"}, "--as", "system:serviceaccount:default:tenant"),
		"kubectl create clusterrolebinding batch-admin-YOU")
	shrink := []string{"set-quota", "research/h100/nvidia.com/gpu=48", "--until"}
	s.tells(append(shrink, "1h"),
		"With --yes ClusterQueue research has nominalQuota 48 of nvidia.com/gpu in flavor h100, and not 64, temporary until 20",
		", then 64 again; 0 pending jobs start.\nNothing is changed yet.")
	s.does(append(shrink, "15s"), "Done: ClusterQueue research has nominalQuota 48")
	s.tells([]string{"queue"}, "ClusterQueue research has 48 nvidia.com/gpu of flavor h100, temporary until 20")
	s.tells([]string{"explain", "cq/research"}, "flavor h100: 8 of 48 nvidia.com/gpu, temporary until 20")
	s.tells([]string{"explain", "cq/research"}, "flavor h100: 8 of 64 nvidia.com/gpu")
}

// does runs an action with --yes.
func (s *onSandbox) does(args []string, sentences ...string) {
	s.Helper()
	text, err := s.run(append(args, "--yes")...)
	for _, sentence := range sentences {
		if err != nil || !strings.Contains(text, sentence) {
			s.Errorf("`kubectl muster %s --yes` lacks %q (%v):\n%s", strings.Join(args, " "), sentence, err, text)
		}
	}
}

// TestJobsAreListedByState has each state, in the order of the states.
func TestJobsAreListedByState(t *testing.T) {
	ended := func(reason, message string) func(*kueue.Workload) {
		return func(w *kueue.Workload) { condition(w, kueue.WorkloadFinished, metav1.ConditionTrue, reason, message) }
	}
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=64"), running("big", "team", 6, nil),
		running("leaving", "team", 1, func(w *kueue.Workload) {
			condition(w, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, "preempted for urgent")
		}),
		running("holding", "team", 1, func(w *kueue.Workload) { w.Spec.Active = new(false) }),
		waiting("large", 8, nil),
		waiting("held", 1, func(w *kueue.Workload) { w.Spec.Active = new(false) }),
		running("done", "team", 1, ended(kueue.WorkloadFinishedReasonSucceeded, "ok")),
		running("small", "team", 1, ended(kueue.WorkloadSliceReplaced, "large takes its place")),
		running("broken", "team", 1, ended(kueue.WorkloadFinishedReasonFailed, "exit code 1")))
	var got []view.JobState
	for _, l := range p.Jobs("") {
		got = append(got, l.State)
	}
	want := []view.JobState{view.Running, view.Stopping, view.Stopping, view.Waiting, view.Held, view.Failed, view.Finished}
	if len(got) != len(want) {
		t.Fatalf("the states are %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("the states are %v, want %v", got, want)
			break
		}
	}
	lacks(t, printed(t, jobList(p.Jobs("default"))),
		"default workload/big Running", "workload/leaving Stopping", "preempted for urgent", "workload/large Waiting", "waits for quota",
		"workload/held Held", "workload/broken Failed", "exit code 1", "workload/done Finished")
	if left := p.Jobs("other"); len(left) > 0 {
		t.Errorf("another namespace has %v", left)
	}
	const why = `--state="paused": use some of Running Stopping`
	if _, err := statesNamed([]string{"paused"}); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a state that is none: %v", err)
	}
	if since := p.Jobs("")[0].Since; since.After(noon) || since.Before(noon.Add(-2*time.Hour)) {
		t.Errorf("it runs since %s", since)
	}
}

// submits runs a job from a line, and one from a script, on the machines of group h100.
func (s *onSandbox) submits() {
	s.Helper()
	line := []string{"run", "short", "--image=main", "--gpus=8", "--priority=urgent"}
	s.refuses(append(line, "--", "true"), "--queue is missing: use one of main, night")
	s.refuses(append(line, "--queue=mian", "--", "true"), "namespace default has no LocalQueue mian: --queue is one of main, night")
	line = append(line, "--queue=main")
	s.refuses(append(line, "true"), "name one job, and not 2: the command of the pods follows --")
	s.refuses(line, "the command is missing: give it after --")
	s.refuses(append(line, "--kind=pytorchjob", "--", "true"), "this cluster does not serve pytorchjobs.kubeflow.org")
	s.tells(append(line, "--dry-run", "--", "true"), "kind: Job", "kueue.x-k8s.io/queue-name: main", "nvidia.com/gpu: \"8\"")
	s.refuses([]string{"explain", "job/short"}, "namespace default has no job named short")
	s.tells(append(line, "--wait", "--", "true"), "job/short is created in namespace default", "job/short is Running", "job/short is Finished")
	s.refuses(append(line, "--", "true"), "namespace default has a Job short already: choose another name")

	script := filepath.Join(s.TempDir(), "two.sh")
	text := "#!/bin/sh\n#MUSTER --name=two --image=main --nodes=2 --gpus-per-node=8 --queue=main\ntrue\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	s.tells([]string{"run", "--script", script, "--wait"}, "job/two is created", "job/two is Finished")
}
