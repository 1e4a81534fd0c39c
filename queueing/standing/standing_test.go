package standing_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestACapacityCheckNeedsAProvisioner: if none runs beside the queues, the check, its
// ClusterQueue and the Workloads pending there say so, and what to do about it.
func TestACapacityCheckNeedsAProvisioner(t *testing.T) {
	for name, tt := range map[string]struct {
		alone   bool
		check   map[string]string
		status  metav1.ConditionStatus
		message string
	}{
		"with the provisioner":                   {status: metav1.ConditionTrue, message: "is active"},
		"without it":                             {alone: true, status: metav1.ConditionFalse, message: "run muster with --provisioning=true, or use a check of kueue.x-k8s.io/provisioning-request"},
		"a check of Kueue's, which others serve": {alone: true, check: map[string]string{"config": "theirs"}, status: metav1.ConditionTrue, message: "is active"},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.WithCapacityCheck(t)
			if tt.alone {
				w.State.WithoutProvisioner()
			}
			ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity"}}
			ac.Spec.ControllerName = cache.CapacityController
			if tt.check != nil {
				w.Set(queues.RequestConfig(t, "theirs", map[string]string{"class": "queued-provisioning.gke.io"}))
				ac.Spec.ControllerName = cache.ProvisioningRequestController
				ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
					Kind: "ProvisioningRequestConfig", Name: "theirs"}
			}
			w.Set(ac)
			w.Set(w.Workload(t, "train", map[string]string{"gpu": "1"}))
			w.Cycles(t)
			report := w.State.Report(w.Now)
			if c := report.Checks["capacity"].Conditions[0]; c.Status != tt.status || !strings.Contains(c.Message, tt.message) {
				t.Errorf("the check is Active=%s: %s; want %s: %s", c.Status, c.Message, tt.status, tt.message)
			}
			if c := report.ClusterQueues["team"].Conditions[0]; c.Status != tt.status {
				t.Errorf("the queue is Active=%s: %s, want %s", c.Status, c.Message, tt.status)
			}
			train, active := w.Find(t, "train"), tt.status == metav1.ConditionTrue
			if workload.HasQuota(train) != active || !active && !strings.Contains(train.Status.Conditions[0].Message, tt.message) {
				t.Errorf("the workload has quota: %v, and is told %v", workload.HasQuota(train), train.Status.Conditions)
			}
		})
	}
}

// TestAMissingTopologyIsReported: the queue is inactive as long as there is none.
func TestAMissingTopologyIsReported(t *testing.T) {
	w := queues.WithCapacityCheck(t)
	var of *kueue.ResourceFlavor
	for _, f := range w.State.Flavors {
		of = f.DeepCopy()
	}
	of.Generation++
	of.Spec.TopologyName = new(kueue.TopologyReference("racks"))
	w.Set(of)
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}
	expect := func(when string, status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		w.Cycles(t)
		if c := w.State.Report(w.Now).ClusterQueues["team"].Conditions[0]; c.Status != status || c.Reason != reason ||
			!strings.Contains(c.Message, message) {
			t.Errorf("%s the queue is Active=%s, %s: %s", when, c.Status, c.Reason, c.Message)
		}
	}
	const missing = `there is no Topology "racks" for TAS flavor`
	expect("without the Topology", metav1.ConditionFalse, kueue.ClusterQueueActiveReasonTopologyNotFound, missing)
	w.Set(topology)
	expect("with the Topology", metav1.ConditionTrue, kueue.ClusterQueueActiveReasonReady, "Can admit")
	w.Delete(topology)
	expect("after the Topology", metav1.ConditionFalse, kueue.ClusterQueueActiveReasonTopologyNotFound, missing)
}

// TestWhatIsWrongWithChecksBeginsWithKueuesWords: dashboards match these words, and each sentence names all checks that it is
// about.
func TestWhatIsWrongWithChecksBeginsWithKueuesWords(t *testing.T) {
	for name, tt := range map[string]struct {
		controller string
		flavors    []kueue.ResourceFlavorReference
		message    string
	}{
		"two that are missing": {message: "Can't admit new workloads: references missing AdmissionCheck(s): check1,check2;"},
		"two that are inactive": {controller: "example.com/approve",
			message: "Can't admit new workloads: references inactive AdmissionCheck(s): check1,check2: "},
		"two of other clusters": {controller: kueue.MultiKueueControllerName,
			message: "Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: check1,check2;"},
		"two of other clusters for one flavor": {controller: kueue.MultiKueueControllerName, flavors: []kueue.ResourceFlavorReference{"spot"},
			message: "; Cannot specify MultiKueue AdmissionCheck per flavor, found: check1;"},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.WithCapacityCheck(t)
			cq := queues.ClusterQueue(t, "team", nil, "spot gpu=64")
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
			for _, check := range []string{"check1", "check2"} {
				cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks,
					kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check), OnFlavors: tt.flavors})
				if tt.controller != "" {
					ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: check}}
					ac.Spec.ControllerName = tt.controller
					w.Set(ac)
				}
			}
			w.Set(cq)
			w.Cycles(t)
			if c := w.State.Report(w.Now).ClusterQueues["team"].Conditions[0]; !strings.Contains(c.Message, tt.message) {
				t.Errorf("the queue is Active=%s, %s: %s; want %q in it", c.Status, c.Reason, c.Message, tt.message)
			}
		})
	}
}
