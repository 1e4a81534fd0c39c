package state

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// pod requests 2 devices and is bound to node a, where it runs.
func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "w-0", CreationTimestamp: metav1.NewTime(noon)}}
	p.Spec.NodeName = "a"
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}
	p.Status.Phase = corev1.PodRunning
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) }

func unbound(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }

func nominated(p *corev1.Pod) {
	unbound(p)
	p.Status.NominatedNodeName = "b"
}

func static(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }

func withoutDevices(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }

func ownedBy(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, UID: "owner", Controller: new(true)}}
	}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string, at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)})
	}
}

var unschedulable = condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, noon)

func annotation(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

// TestWhichPodsCount: counted pods keep a machine; a pod that may be unbooked must have a booking on a machine that Muster holds; room
// is taken on the node that a pod is bound or nominated to.
func TestWhichPodsCount(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		pod                   *corev1.Pod
		counts, unbooked      bool
		node                  string
		devices               int64
		stranded, madeAgain   bool
		terminating, finished bool
	}{
		{name: "it runs", pod: pod(), counts: true, unbooked: true, node: "a", devices: 2},
		{name: "of a Job", pod: pod(ownedBy("Job")), counts: true, unbooked: true, node: "a", devices: 2, madeAgain: true},
		{name: "it has succeeded", pod: pod(phase(corev1.PodSucceeded)), node: "a", devices: 2, finished: true},
		{name: "it has failed", pod: pod(phase(corev1.PodFailed)), node: "a", devices: 2, finished: true},
		{name: "it ends", pod: pod(deleted), counts: true, node: "a", devices: 2, terminating: true},
		{name: "nominated", pod: pod(nominated), counts: true, node: "b", devices: 2},
		{name: "it waits for kube-scheduler", pod: pod(unbound), counts: true},
		{name: "kube-scheduler finds no room", pod: pod(unbound, unschedulable), counts: true, devices: 2, stranded: true},
		{name: "gated", pod: pod(unbound, condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonSchedulingGated, noon)),
			counts: true},
		{name: "nominated after it found no room", pod: pod(nominated, unschedulable), counts: true, node: "b", devices: 2},
		{name: "deleted before it found room", pod: pod(unbound, unschedulable, deleted), counts: true, terminating: true},
		{name: "failed before it found room", pod: pod(unbound, unschedulable, phase(corev1.PodFailed)), finished: true},
		{name: "static", pod: pod(static), node: "a", devices: 2},
		{name: "of a DaemonSet with devices", pod: pod(ownedBy("DaemonSet")), unbooked: true, node: "a", devices: 2},
		{name: "of a DaemonSet", pod: pod(ownedBy("DaemonSet"), withoutDevices), node: "a"},
	} {
		p := ReadPod(tc.pod)
		if p.Counts() != tc.counts || p.MayBeUnbooked() != tc.unbooked {
			t.Errorf("%s: it counts: %v, it needs a booking: %v; want %v, %v", tc.name, p.Counts(), p.MayBeUnbooked(), tc.counts, tc.unbooked)
		}
		if p.Node != tc.node || p.Requests["nvidia.com/gpu"] != tc.devices || (p.Running != nil) != (tc.node != "") {
			t.Errorf("%s: it takes %v of node %q, want %d of %q", tc.name, p.Requests, p.Node, tc.devices, tc.node)
		}
		if p.Stranded != tc.stranded || p.MadeAgain != tc.madeAgain || p.Terminating != tc.terminating || p.Finished != tc.finished {
			t.Errorf("%s: stranded %v, made again %v, terminating %v, finished %v", tc.name, p.Stranded, p.MadeAgain, p.Terminating, p.Finished)
		}
	}
}

// TestWhenAPodWasBound: kube-scheduler's condition has the time; static pods have none, and count from their creation.
func TestWhenAPodWasBound(t *testing.T) {
	later := noon.Add(time.Minute)
	scheduled := condition(corev1.PodScheduled, corev1.ConditionTrue, "", later)
	ready := condition(corev1.PodReady, corev1.ConditionTrue, "", later.Add(time.Hour))
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"without a condition": {pod(ready), noon},
		"scheduled":           {pod(scheduled, ready), later},
	} {
		if got := ReadPod(tt.pod).BoundAt; !got.Equal(tt.want) {
			t.Errorf("%s: it was bound at %s, want %s", name, got, tt.want)
		}
	}
}

// TestWhichRequestAPodConsumes, by either spelling of the annotation.
func TestWhichRequestAPodConsumes(t *testing.T) {
	current, older := annotation(consumeAnnotations[0], "new"), annotation(consumeAnnotations[1], "old")
	replica := ownedBy("ReplicaSet")
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		want    ConsumerKey
		movable bool
	}{
		{"none, and it may be moved", pod(replica, withoutDevices), ConsumerKey{}, true},
		{"none, and it is not bound", pod(replica, withoutDevices, nominated), ConsumerKey{}, false},
		{"the current spelling", pod(replica, withoutDevices, current), ConsumerKey{"team", "new"}, false},
		{"the older spelling", pod(replica, withoutDevices, older), ConsumerKey{"team", "old"}, false},
		{"both", pod(replica, withoutDevices, current, older), ConsumerKey{"team", "new"}, false},
	} {
		if p := ReadPod(tc.pod); p.Consumes != tc.want || (p.Movable != nil) != tc.movable {
			t.Errorf("%s: it consumes %v, movable: %v; want %v, %v", tc.name, p.Consumes, p.Movable != nil, tc.want, tc.movable)
		}
	}
}

// TestWhatBlocksAPod is reported as its kubelet has put it. Waiting for an image or a volume is no failure.
func TestWhatBlocksAPod(t *testing.T) {
	waits := func(name, reason, message string) corev1.ContainerStatus {
		s := corev1.ContainerStatus{Name: name}
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
		return s
	}
	starting := func(init, main corev1.ContainerStatus, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := pod(append([]func(*corev1.Pod){phase(corev1.PodPending)}, edits...)...)
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = []corev1.ContainerStatus{init}, []corev1.ContainerStatus{main}
		return p
	}
	fine, creating, initializing := corev1.ContainerStatus{}, waits("main", "ContainerCreating", ""), waits("main", "PodInitializing", "")
	pulls := waits("main", "ImagePullBackOff", "no such tag")
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"its container is created", starting(fine, creating), ""},
		{"a container before it runs", starting(fine, initializing), ""},
		{"it waits for no reason yet", starting(fine, waits("main", "", "")), ""},
		{"its image cannot be pulled", starting(fine, pulls), "container main: ImagePullBackOff: no such tag"},
		{"its phase is not set yet", starting(fine, pulls, phase("")), "container main: ImagePullBackOff: no such tag"},
		{"without a message", starting(fine, waits("main", "CreateContainerError", "")), "container main: CreateContainerError"},
		{"the container before it", starting(waits("init", "ErrImagePull", "denied"), initializing), "container init: ErrImagePull: denied"},
		{"it is being deleted", starting(fine, pulls, deleted), ""},
		{"it runs, and one of its containers restarts", starting(fine, waits("main", "CrashLoopBackOff", ""), phase(corev1.PodRunning)), ""},
		{"it is not bound", starting(fine, pulls, nominated), ""},
	} {
		if got := ReadPod(tc.pod).Blocked; got != tc.want {
			t.Errorf("%s: blocked by %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := ReadPod(starting(fine, waits("main", "ErrImagePull", strings.Repeat("x", 1000)))).Blocked; len(got) > mostBlocked {
		t.Errorf("the text has %d bytes", len(got))
	}
}

// TestClaimedDevices replace those that were counted before, and leave the requests of the pod that they were read from.
func TestClaimedDevices(t *testing.T) {
	p := ReadPod(pod())
	before := p.Requests
	p.Claim(nodegroups.Resources{"nvidia.com/gpu": 4})
	p.Claim(nodegroups.Resources{"nvidia.com/gpu": 1})
	if got := p.Requests["nvidia.com/gpu"]; got != 3 || before["nvidia.com/gpu"] != 2 {
		t.Errorf("it requests %d devices, want the 2 of its containers and 1; read of it were %v", got, before)
	}
	waiting := ReadPod(pod(unbound))
	waiting.Claim(nodegroups.Resources{"nvidia.com/gpu": 1})
	if got := waiting.Requests["nvidia.com/gpu"]; got != 1 {
		t.Errorf("a pod without a node claims %d devices, want 1", got)
	}
}

// TestWhenAPodEnded: at the end of its last container, or when it was last ready.
func TestWhenAPodEnded(t *testing.T) {
	ended := func(minutes int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			s := corev1.ContainerStatus{}
			s.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))}
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
	}
	ready := func(status corev1.ConditionStatus, minutes int) func(*corev1.Pod) {
		return condition(corev1.PodReady, status, "", noon.Add(time.Duration(minutes)*time.Minute))
	}
	scheduled := condition(corev1.PodScheduled, corev1.ConditionFalse, "", noon.Add(time.Hour))
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want int
	}{
		{"no trace", pod(), 0},
		{"its last container", pod(ended(5), ended(9), ended(7)), 9},
		{"a node that was lost", pod(ready(corev1.ConditionFalse, 8)), 8},
		{"both", pod(ended(5), ready(corev1.ConditionFalse, 8)), 8},
		{"it was not ready before its end", pod(ended(5), ready(corev1.ConditionFalse, 3)), 5},
		{"it became ready", pod(ended(5), ready(corev1.ConditionTrue, 8)), 5},
		{"other conditions", pod(ended(5), scheduled), 5},
	} {
		if got := EndOf(tc.pod); !got.Equal(noon.Add(time.Duration(tc.want) * time.Minute)) {
			t.Errorf("%s: it ended at %s, want %d minutes after noon", tc.name, got, tc.want)
		}
	}
}
