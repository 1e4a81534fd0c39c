package lifecycle_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// FuzzEditedWorkloads gives State what a hand may have made of a Workload. It must
// come to rest, in a state that says what it is; and once the Workload is gone,
// nothing of it may be left in the tree.
func FuzzEditedWorkloads(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		f.Add(randomBytes(r))
	}
	w := editedWorld(f)
	f.Fuzz(func(t *testing.T, data []byte) { endure(w, t, data) })
}

// TestEditedWorkloads is the fuzz target with as many cases as fit into some
// seconds, always the same.
func TestEditedWorkloads(t *testing.T) {
	cases := 100_000
	if testing.Short() {
		cases = 5_000
	}
	w := editedWorld(t)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range cases {
		data := randomBytes(r)
		if endure(w, t, data); t.Failed() {
			t.Fatalf("case %d: %q", i, data)
		}
	}
}

func randomBytes(r *rand.Rand) []byte {
	data := make([]byte, 96)
	for i := 0; i < len(data); i += 8 {
		binary.LittleEndian.PutUint64(data[i:], r.Uint64())
	}
	return data
}

// editedWorld has a queue with an external check and one without, and all that
// the configuration can watch over.
func editedWorld(tb testing.TB) *queues.World {
	t := new(testing.T)
	hour := &metav1.Duration{Duration: time.Hour}
	w := queues.NewWith(config.Config{
		NamespaceQuota: true,
		WaitForPodsReady: &kueueconfig.WaitForPodsReady{
			Timeout: metav1.Duration{Duration: time.Minute}, BlockAdmission: new(true),
			RequeuingStrategy: &kueueconfig.RequeuingStrategy{BackoffLimitCount: new(int32(2))},
		},
		ObjectRetentionPolicies: &kueueconfig.ObjectRetentionPolicies{
			Workloads: &kueueconfig.WorkloadRetentionPolicy{AfterFinished: hour, AfterDeactivatedByKueue: hour},
		},
	})
	w.Set(queues.Flavor("f", nil))
	approve := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approve"}}
	approve.Spec.ControllerName = "example.com/approve"
	approve.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	w.Set(approve)
	w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=8"))
	w.Set(queues.ClusterQueue(t, "checked", map[string]string{"check": "approve"}, "f cpu=8"))
	w.Set(queues.ClusterQueue(t, "stopped", map[string]string{"stop": "HoldAndDrain"}, "f cpu=8"))
	for _, name := range []string{"team", "checked", "stopped", "missing"} {
		w.Set(queues.LocalQueue(name, name, ""))
	}
	w.Set(queues.ResourceQuota("team", map[string]string{"requests.cpu": "8/1"}))
	if t.Failed() {
		tb.Fatal("the world could not be made")
	}
	return w
}

// endure runs an edited Workload until nothing changes, then has its job stop,
// and at last takes it away.
func endure(w *queues.World, t *testing.T, data []byte) {
	t.Helper()
	object := edited(w, &source{data: data})
	w.Set(object)
	rest(w, t)
	for _, x := range w.State.Workloads {
		if workload.IsEvicted(x.Object) && workload.HasQuota(x.Object) {
			released := x.Object.DeepCopy()
			released.Status = *workload.Released(released, w.Now)
			w.Set(released)
		}
	}
	rest(w, t)
	for _, x := range w.State.Workloads {
		if why := unclear(x); why != "" {
			t.Errorf("%s:\n%s", why, queues.Describe(x.Object))
		}
		w.Delete(x.Object)
	}
	for _, q := range w.State.Order {
		for _, fr := range q.Node.Keys() {
			if v := q.Node.Usage(fr); v != 0 {
				t.Errorf("queue %s: %d of %v are used by no Workload", q.Object.Name, v, fr)
			}
		}
		if q.Pending.Len() > 0 || len(q.WithQuota) > 0 || len(q.Unevaluated) > 0 || q.Waiting != 0 || q.Reserving != 0 || q.Running != 0 {
			t.Errorf("queue %s is not empty", q.Object.Name)
		}
	}
	if len(w.State.PodsNotReady) > 0 || len(w.State.Unadmitted) > 0 || len(w.State.Unhealthy) > 0 || len(w.State.Due) > 0 {
		t.Error("the State is not empty")
	}
}

// rest applies verdicts until there are none.
func rest(w *queues.World, t *testing.T) {
	t.Helper()
	var out strings.Builder
	for range 12 {
		verdicts := w.State.Cycle(w.Now)
		if len(verdicts) == 0 {
			return
		}
		for i := range verdicts {
			w.Apply(&verdicts[i], &out)
		}
	}
	t.Errorf("no rest:\n%s", out.String())
}

// unclear says what a user would not understand of a Workload at rest.
func unclear(x *cache.Workload) string {
	w := x.Object
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	switch {
	case !w.DeletionTimestamp.IsZero(), workload.IsFinished(w):
		return ""
	case workload.HasQuota(w) && len(w.Status.Admission.PodSetAssignments) != len(w.Spec.PodSets):
		return "it has quota for other podSets"
	case workload.HasQuota(w) && x.Queue == nil && !workload.IsAdmitted(w):
		return "it has quota of a queue that is not there"
	case workload.HasQuota(w):
		return ""
	case w.Status.Admission != nil || workload.IsAdmitted(w) || workload.IsTrue(w, kueue.WorkloadQuotaReserved):
		return "it has half a reservation"
	case backsOff(w) && workload.IsActive(w):
		return ""
	case reserved == nil || reserved.Reason == "" || reserved.Message == "":
		return "it is not told why it waits"
	}
	return ""
}

func backsOff(w *kueue.Workload) bool {
	return w.Status.RequeueState != nil && w.Status.RequeueState.RequeueAt != nil
}

// source turns bytes into choices; when they are used up, all are the first.
type source struct{ data []byte }

func (s *source) below(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}

func (s *source) yes() bool { return s.below(2) == 1 }

func choice[T any](s *source, of ...T) T { return of[s.below(len(of))] }

// edited makes a Workload of choices: what the API's schema takes, and some that
// it does not.
func edited(w *queues.World, s *source) *kueue.Workload {
	w.Created++
	object := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: "edited", Namespace: "default", UID: types.UID(strconv.Itoa(w.Created)), CreationTimestamp: metav1.NewTime(w.Now),
	}}
	if s.yes() {
		object.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "edited", Controller: new(true)}}
	}
	object.Annotations = choice(s, nil, nil, nil, map[string]string{workload.AdoptedAnnotation: "true"},
		map[string]string{workload.ElasticAnnotation: "true"},
		map[string]string{workload.ReplacementAnnotation: "edited"}, map[string]string{workload.GatedByAnnotation: "someone"})
	object.Spec.QueueName = choice[kueue.LocalQueueName](s, "team", "team", "checked", "checked", "stopped", "missing", "nowhere")
	object.Spec.Active = choice(s, nil, new(true), new(true), new(false))
	object.Spec.MaximumExecutionTimeSeconds = choice(s, nil, nil, new(int32(1)), new(int32(3600)))
	for i := range 1 + s.below(2) {
		cpu := corev1.ResourceList{"cpu": *resource.NewQuantity(int64(s.below(4)), resource.DecimalSI)}
		spec := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpu}}}}
		object.Spec.PodSets = append(object.Spec.PodSets, kueue.PodSet{
			Name: kueue.PodSetReference(fmt.Sprint("ps", i)), Count: int32(s.below(4)), MinCount: choice(s, nil, new(int32(1))),
			Template: corev1.PodTemplateSpec{Spec: spec},
		})
	}
	editedStatus(w, s, &object.Status)
	return object
}

func editedStatus(w *queues.World, s *source, status *kueue.WorkloadStatus) {
	at := func() metav1.Time {
		return choice(s, metav1.Time{}, metav1.NewTime(w.Now.Add(-time.Hour)), metav1.NewTime(w.Now), metav1.NewTime(w.Now.Add(time.Hour)))
	}
	reasons := map[string][]string{
		kueue.WorkloadEvicted:            {kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadDeactivated, "DeactivatedDueToMaximumExecutionTimeExceeded", "DueTo", ""},
		kueue.WorkloadRequeued:           {kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadEvictedByClusterQueueStopped, "Whatever"},
		kueue.WorkloadPodsReady:          {kueue.WorkloadWaitForStart, kueue.WorkloadWaitForRecovery, kueue.WorkloadStarted, workload.ReasonPodsRefused, ""},
		kueue.WorkloadDeactivationTarget: {kueue.WorkloadRequeuingLimitExceeded, kueue.WorkloadEvictedByAdmissionCheck, ""},
		kueue.WorkloadFinished:           {kueue.WorkloadFinishedReasonSucceeded, kueue.WorkloadSliceReplaced},
	}
	likely := []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadRequeued,
		kueue.WorkloadPodsReady}
	for _, t := range append(slices.Clone(likely), kueue.WorkloadPreempted, kueue.WorkloadDeactivationTarget, kueue.WorkloadFinished,
		kueue.WorkloadBlockedOnPreemptionGates) {
		odds := 2
		if !slices.Contains(likely, t) {
			odds = 8
		}
		if s.below(odds) != 1 {
			continue
		}
		reason := "Edited"
		if list := reasons[t]; list != nil {
			reason = choice(s, list...)
		}
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: t, Status: choice(s, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown, ""),
			Reason: reason, LastTransitionTime: at(),
		})
	}
	if s.yes() {
		status.Admission = &kueue.Admission{ClusterQueue: choice[kueue.ClusterQueueReference](s, "team", "team", "checked",
			"stopped", "nowhere", "")}
		for i := range s.below(4) {
			flavors := choice(s, nil, map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
				map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "gone", "gpu": "f"})
			usage := choice(s, "1", "3", "-2", "9223372036854775807", "1m", "1e30")
			status.Admission.PodSetAssignments = append(status.Admission.PodSetAssignments, kueue.PodSetAssignment{
				Name: kueue.PodSetReference(fmt.Sprint("ps", choice(s, i, i, 0, 7))), Flavors: flavors,
				ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse(usage)},
				Count:         choice(s, nil, new(int32(0)), new(int32(1)), new(int32(3)), new(int32(-1)), new(int32(1<<31-1))),
			})
		}
	}
	for range s.below(3) {
		status.AdmissionChecks = append(status.AdmissionChecks, kueue.AdmissionCheckState{
			Name:       choice[kueue.AdmissionCheckReference](s, "approve", "gone", ""),
			State:      choice(s, kueue.CheckStatePending, kueue.CheckStateReady, kueue.CheckStateRetry, kueue.CheckStateRejected, ""),
			RetryCount: choice(s, nil, new(int32(1<<31-1))), RequeueAfterSeconds: choice(s, nil, new(int32(-1)), new(int32(60))),
		})
	}
	if s.yes() {
		status.RequeueState = &kueue.RequeueState{Count: choice(s, nil, new(int32(-1)), new(int32(1<<31-1)))}
		if s.yes() {
			status.RequeueState.RequeueAt = new(at())
		}
	}
	if s.yes() {
		status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "ps0", Count: choice[int32](s, 1, -1, 1<<31-1)}}
	}
	status.AccumulatedPastExecutionTimeSeconds = choice(s, nil, new(int32(-1)), new(int32(1<<31-1)))
	if s.yes() {
		status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{
			Reason:          choice(s, kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadDeactivated),
			UnderlyingCause: kueue.WorkloadRequeuingLimitExceeded, Count: choice[int32](s, 1, -1, 1<<31-1),
		}}}
	}
}

// TestWhatAHandLeaves: after the status of a Workload that ran was edited, it starts over as a whole, or its status reports what is
// wrong.
func TestWhatAHandLeaves(t *testing.T) {
	without := func(condition string) func(*kueue.Workload) {
		return func(w *kueue.Workload) { apimeta.RemoveStatusCondition(&w.Status.Conditions, condition) }
	}
	for name, c := range map[string]struct {
		edit func(*kueue.Workload)
		// want is how the first verdict begins; empty is none.
		want string
	}{
		"nothing":                    {edit: func(*kueue.Workload) {}},
		"the whole status is gone":   {edit: func(w *kueue.Workload) { w.Status = kueue.WorkloadStatus{} }, want: "Reserve"},
		"no admission":               {edit: func(w *kueue.Workload) { w.Status.Admission = nil }, want: "Release PendingEvaluation: Status was edited"},
		"no condition QuotaReserved": {edit: without(kueue.WorkloadQuotaReserved), want: "Release PendingEvaluation: Status was edited"},
		"no condition Admitted":      {edit: without(kueue.WorkloadAdmitted), want: "Admit"},
		"no podSetAssignments":       {edit: func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments = nil }, want: "Evict AdmissionEdited: status.admission was edited: it has 0 podSetAssignments for 1 podSets"},
		"another podSet":             {edit: func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[0].Name = "other" }, want: "Evict AdmissionEdited: status.admission was edited: it has no count for podSet main"},
		"no count":                   {edit: func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[0].Count = nil }, want: "Evict AdmissionEdited: status.admission was edited: it has no count for podSet main"},
		"more pods than there are":   {edit: func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[0].Count = new(int32(9)) }, want: "Evict AdmissionEdited: status.admission was edited: the count of podSet main is 9, where spec.podSets has 2"},
		"a flavor that was never":    {edit: func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[0].Flavors["cpu"] = "gone" }},
		"the same, not admitted yet": {edit: func(w *kueue.Workload) {
			w.Status.Admission.PodSetAssignments[0].Flavors["cpu"] = "gone"
			without(kueue.WorkloadAdmitted)(w)
		}, want: `Release Misconfigured: status.admission was edited: ResourceFlavor "gone" does not exist`},
		"a queue that was never": {edit: func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "gone" }},
		"the same, not admitted": {edit: func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "gone"; without(kueue.WorkloadAdmitted)(w) }, want: "Release Misconfigured: ClusterQueue gone is terminating or missing"},
		"negative usage uses nothing": {edit: func(w *kueue.Workload) {
			w.Status.Admission.PodSetAssignments[0].ResourceUsage["cpu"] = resource.MustParse("-5")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.New()
			w.Set(queues.Flavor("f", nil))
			w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=8"))
			w.Set(queues.LocalQueue("main", "team", ""))
			w.Set(w.Workload(t, "train", map[string]string{"cpu": "1", "count": "2"}))
			w.Cycles(t)
			object := w.Find(t, "train")
			c.edit(object)
			w.Set(object)
			got := ""
			if verdicts := w.State.Cycle(w.Now); len(verdicts) > 0 {
				got = fmt.Sprintf("%v %s: %s", verdicts[0].Action, verdicts[0].Reason, verdicts[0].Message)
			}
			if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
