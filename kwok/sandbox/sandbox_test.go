package sandbox

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestTheDevicePluginToleratesTheTaintsOfDevices: a simulated machine offers its devices once the plugin runs on it, and clouds taint
// machines by their devices.
func TestTheDevicePluginToleratesTheTaintsOfDevices(t *testing.T) {
	var plugin appsv1.DaemonSet
	if err := yaml.Unmarshal(devicePlugin, &plugin); err != nil {
		t.Fatal(err)
	}
	d := state.NewDaemonSet(&plugin)
	labels := map[string]string{"kwok.muster.dev/devices": "true"}
	for key, want := range map[string]bool{
		"nvidia.com/gpu": true, "amd.com/gpu": true, "google.com/tpu": true, "aws.amazon.com/neuron": true, "mine": false,
	} {
		if got := d.RunsOn("n", labels, []corev1.Taint{{Key: key, Value: "present", Effect: corev1.TaintEffectNoSchedule}}); got != want {
			t.Errorf("with the taint %s it runs: %t, want %t", key, got, want)
		}
	}
}

// TestWhatIsForQueueingAloneIsLeftOut determines whether an object is about queues by its content, not by its file.
func TestWhatIsForQueueingAloneIsLeftOut(t *testing.T) {
	var full, part cluster.Config
	Fill(&full)
	FillHalf(&part, deploy.Provisioning)
	all, err := full.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	some, err := part.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, o := range some {
		left[o.GetKind()+" "+o.GetName()] = true
	}
	for _, o := range all {
		name := o.GetKind() + " " + o.GetName()
		switch name {
		case "ClusterRole muster-explain", "ClusterRole muster-viewer", "ClusterRole muster-queue-viewer", "ClusterRole muster-job-viewer",
			"ClusterRole muster-job-editor", "ClusterRole muster-queue-editor", "ClusterRole muster-batch-user", "ClusterRole muster-batch-admin":
			continue // of users, whatever there is
		case "ClusterRole muster-health":
			continue // what is installed is compared with what should be, for all that may be
		}
		if name == "ValidatingAdmissionPolicy muster-requests-queue" {
			continue // the label says whose budget pays for a request, whatever runs the queues
		}
		if strings.HasSuffix(name, "Policy muster-strangers") || strings.HasSuffix(name, "Policy muster-late-strangers") {
			continue // it keeps pods off held machines, those with a gate of a queue once they have lost it
		}
		if strings.HasSuffix(name, "Policy muster-consuming-pods") {
			continue // the queue of another controller may name the request as it removes its gate
		}
		// The history and the notifications are about Workloads, though none of their objects names that API.
		ofQueues := aboutQueues(t, o) || strings.HasPrefix(o.GetName(), "muster-history") || o.GetName() == "muster-notifications"
		if want := !ofQueues; left[name] != want {
			t.Errorf("%s is there: %v, want %v", name, left[name], want)
		}
	}
}

// aboutQueues says that the object, or what a binding binds, mentions Kueue's API
// or Muster's word over queued Jobs.
func aboutQueues(t *testing.T, o *unstructured.Unstructured) bool {
	if group, ok, _ := unstructured.NestedString(o.Object, "spec", "group"); ok {
		return group == "kueue.x-k8s.io" // a kind may refer to the kinds of other projects
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"kueue.x-k8s.io", "muster-jobs-", "muster-queues-", "muster-quotas", "muster-workloads",
		"muster-queueing", "muster-job-kinds",
		"muster-pods-gate", "muster-pods-resize", "muster-born-in-place", "muster-moved", "muster-serving",
		"muster-rights-pods", "muster-rights-queues", "muster-rights-jobs", "muster-pods-marks", "muster-gangs", "break-glass"}
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(string(text), word)
	})
}
