package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// object is a Workload of one podSet of 4 pods, made at noon.
func object(edits ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", CreationTimestamp: metav1.NewTime(noon)}}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 4}}
	for _, edit := range edits {
		edit(w)
	}
	return w
}

// is sets conditions to True, an hour after noon.
func is(conditions ...string) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		for _, c := range conditions {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Test",
				LastTransitionTime: metav1.NewTime(noon.Add(time.Hour))})
		}
	}
}

func isNot(condition, reason string) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason})
	}
}

// reserving has quota for count pods of 1 CPU each.
func reserving(count int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		is(kueue.WorkloadQuotaReserved)(w)
		w.Status.Admission = &kueue.Admission{ClusterQueue: "queue", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
			ResourceUsage: corev1.ResourceList{"cpu": *resource.NewQuantity(int64(count), resource.DecimalSI),
				"memory": resource.MustParse("1Gi")},
		}}}
	}
}

func reclaimable(count int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: count}}
	}
}

func beingDeleted(w *kueue.Workload) { w.DeletionTimestamp = new(metav1.NewTime(noon)) }

func annotated(key, value string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { metav1.SetMetaDataAnnotation(&w.ObjectMeta, key, value) }
}

func labelled(key, value string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { metav1.SetMetaDataLabel(&w.ObjectMeta, key, value) }
}

func ownedBy(apiVersion, kind, uid string, controls bool) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.OwnerReferences = append(w.OwnerReferences, metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: "owner", UID: types.UID(uid), Controller: &controls})
	}
}

// TestStates: what the controller of a job goes by.
func TestStates(t *testing.T) {
	adopt := annotated(AdoptedAnnotation, "true")
	for _, tc := range []struct {
		name string
		w    *kueue.Workload
		want State
	}{
		{"none", nil, Absent},
		{"new", object(), Pending},
		{"with quota", object(reserving(4)), Reserved},
		{"admitted", object(reserving(4), is(kueue.WorkloadAdmitted)), Admitted},
		{"admitted without quota, by an edit", object(is(kueue.WorkloadAdmitted)), Pending},
		{"evicted with quota", object(reserving(4), is(kueue.WorkloadAdmitted, kueue.WorkloadEvicted)), Evicting},
		{"evicted, deleted with quota", object(reserving(4), is(kueue.WorkloadEvicted), beingDeleted), Evicting},
		{"evicted without quota", object(is(kueue.WorkloadEvicted)), Pending},
		{"deleted", object(reserving(4), is(kueue.WorkloadAdmitted), beingDeleted), Deleted},
		{"finished", object(reserving(4), is(kueue.WorkloadFinished), beingDeleted), Ended},
		{"requests adoption", object(adopt), AwaitsAdoption},
		{"adopted", object(adopt, is(ConditionAdopted)), AdoptionAccepted},
		{"adopted with quota", object(adopt, is(ConditionAdopted), reserving(4)), AdoptionAccepted},
		{"adopted and admitted", object(adopt, is(ConditionAdopted, kueue.WorkloadAdmitted), reserving(4)), Admitted},
		{"evicted once: it does not run any more", object(adopt, is(ConditionAdopted, kueue.WorkloadEvicted)), Pending},
		{"evicted once, and queued again", object(adopt, isNot(kueue.WorkloadEvicted, "QuotaReserved")), Pending},
		{"requests adoption and has quota", object(adopt, reserving(4)), Reserved},
	} {
		if got := StateOf(tc.w); got != tc.want {
			t.Errorf("%s: state %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestWhetherPodsMayExist decides when quota is free again.
func TestWhetherPodsMayExist(t *testing.T) {
	admitted := is(kueue.WorkloadAdmitted)
	group := annotated(GroupAnnotation, "true")
	job, gone := ownedBy("batch/v1", "Job", "1", true), labelled(JobUIDLabel, "1")
	copies := func(w *kueue.Workload) { w.Finalizers = []string{CopiesFinalizer} }
	pod, member := ownedBy("v1", "Pod", "1", true), ownedBy("v1", "Pod", "1", false)
	for _, tc := range []struct {
		name                         string
		w                            *kueue.Workload
		run, hold, orphaned, onlyPod bool
	}{
		{"of no job", object(admitted), false, false, false, false},
		{"of a job", object(admitted, job), true, true, false, false},
		{"of a job, not admitted", object(job), false, false, false, false},
		{"its job is gone", object(admitted, gone), true, true, true, false},
		{"its job is there", object(admitted, job, gone), true, true, false, false},
		{"of a group of pods", object(admitted, group, member), true, true, false, false},
		{"the group of a StatefulSet", object(admitted, group, member, gone), true, true, false, false},
		{"its group is gone", object(admitted, group, gone), true, true, true, false},
		{"of one pod", object(admitted, pod), true, true, false, true},
		{"of one pod of a group", object(admitted, pod, group), true, true, false, false},
		{"of two pods", object(admitted, pod, member), true, true, false, false},
		{"of another kind of that name", object(admitted, ownedBy("example.com/v1", "Pod", "1", true)), true, true, false, false},
		{"of another core kind", object(admitted, ownedBy("v1", "Service", "1", true)), true, true, false, false},
		{"it may have a copy elsewhere", object(copies), false, true, false, false},
	} {
		if run, hold, orphaned, onlyPod := MayRun(tc.w), MayHold(tc.w), IsOrphan(tc.w), IsOfOnePod(tc.w); run != tc.run || hold != tc.hold ||
			orphaned != tc.orphaned || onlyPod != tc.onlyPod {
			t.Errorf("%s: may run %v, may hold %v, orphan %v, of one pod %v", tc.name, run, hold, orphaned, onlyPod)
		}
	}
}

// TestSinceWhenAWorkloadWaits: a copy keeps its place from the cluster of its job, and no user can jump the queue by the annotation.
func TestSinceWhenAWorkloadWaits(t *testing.T) {
	isCopy := labelled(kueue.MultiKueueOriginLabel, "manager")
	since := func(text string) func(*kueue.Workload) { return annotated(QueuedSinceAnnotation, text) }
	for _, tc := range []struct {
		name string
		w    *kueue.Workload
		want time.Time
	}{
		{"a Workload", object(), noon},
		{"with the annotation", object(since("2026-01-01T10:00:00Z")), noon},
		{"a copy", object(isCopy, since("2026-01-01T10:00:00Z")), noon.Add(-2 * time.Hour)},
		{"a copy without the annotation", object(isCopy), noon},
		{"a copy of later", object(isCopy, since("2026-01-01T13:00:00Z")), noon},
		{"a copy with an annotation that cannot be read", object(isCopy, since("before")), noon},
	} {
		if got := WaitsSince(tc.w); !got.Equal(tc.want) {
			t.Errorf("%s: it waits since %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := ReservedSince(object()); !got.Equal(noon) {
		t.Errorf("without quota the time is %s, want that of its creation", got)
	}
	if got := ReservedSince(object(reserving(4))); !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("it has quota since %s", got)
	}
}

// TestUsage: reclaimable pods use nothing, and what has no flavor is not counted.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		name  string
		w     *kueue.Workload
		cores int64
	}{
		{"without quota", object(), -1},
		{"finished", object(reserving(4), is(kueue.WorkloadFinished)), -1},
		{"all pods", object(reserving(4)), 4},
		{"one of them has ended", object(reserving(4), reclaimable(1)), 3},
		{"all have ended", object(reserving(4), reclaimable(4)), 0},
		{"more than there are", object(reserving(4), reclaimable(5)), 0},
		{"a negative number", object(reserving(4), reclaimable(-1)), 4},
		{"admitted with fewer pods, which include none that had ended", object(reserving(3), reclaimable(1)), 3},
		{"two of those have ended since", object(reserving(3), reclaimable(3)), 1},
	} {
		want := quota.Amounts{}
		if tc.cores > 0 {
			want = quota.Amounts{{Flavor: "spot", Resource: "cpu"}: 1000 * tc.cores}
		}
		if tc.cores < 0 {
			want = nil
		}
		if diff := cmp.Diff(want, UsageOf(tc.w)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, diff)
		}
	}
	for _, tc := range []struct {
		name        string
		before, now *kueue.Workload
		want        bool
	}{
		{"pods that had ended run again", object(reserving(4), reclaimable(2)), object(reserving(4), reclaimable(1)), true},
		{"more have ended", object(reserving(4), reclaimable(1)), object(reserving(4), reclaimable(2)), false},
		{"no change", object(reserving(4), reclaimable(1)), object(reserving(4), reclaimable(1)), false},
		{"its quota is released", object(reserving(4), reclaimable(2)), object(), false},
		{"it has quota for the first time", object(reclaimable(2)), object(reserving(4)), false},
	} {
		if got := QuotaRestored(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: quota restored: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestWhenAWorkloadEnds at the latest: time that it ran before counts.
func TestWhenAWorkloadEnds(t *testing.T) {
	most := func(seconds int32) func(*kueue.Workload) {
		return func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = &seconds }
	}
	ran := func(seconds int32) func(*kueue.Workload) {
		return func(w *kueue.Workload) { w.Status.AccumulatedPastExecutionTimeSeconds = &seconds }
	}
	now := noon.Add(3 * time.Hour)
	for _, tc := range []struct {
		name string
		w    *kueue.Workload
		want time.Time
	}{
		{"unlimited", object(), time.Time{}},
		{"not admitted", object(most(60)), now.Add(time.Minute)},
		{"admitted", object(most(60), is(kueue.WorkloadAdmitted)), noon.Add(time.Hour + time.Minute)},
		{"not admitted any more", object(most(60), isNot(kueue.WorkloadAdmitted, "NoReservation")), now.Add(time.Minute)},
		{"it ran before", object(most(60), ran(20)), now.Add(40 * time.Second)},
		{"it ran for longer than it may", object(most(60), ran(80)), now},
	} {
		if at, ok := EndOf(tc.w, now); !at.Equal(tc.want) || ok == tc.want.IsZero() {
			t.Errorf("%s: it ends at %s (%v), want %s", tc.name, at, ok, tc.want)
		}
	}
	early, late := noon, noon.Add(1)
	for _, tc := range [][3]time.Time{{early, late, early}, {late, early, early}, {{}, late, late}, {late, {}, late}, {{}, {}, {}}} {
		if got := Earliest(tc[0], tc[1]); !got.Equal(tc[2]) {
			t.Errorf("the earlier one of %s and %s is %s", tc[0], tc[1], got)
		}
	}
}

// TestReplacedWorkloads: only Workloads of one job and namespace replace each other.
func TestReplacedWorkloads(t *testing.T) {
	for annotation, want := range map[string]types.NamespacedName{
		"":             {},
		"before":       {Namespace: "team", Name: "before"},
		"team/before":  {Namespace: "team", Name: "before"},
		"other/before": {},
		"train":        {},
		"team/train":   {},
	} {
		if got := ReplacedKey(object(annotated(ReplacementAnnotation, annotation))); got != want {
			t.Errorf("%q names %v, want %v", annotation, got, want)
		}
	}
	job := ownedBy("batch/v1", "Job", "1", true)
	for name, tt := range map[string]struct {
		other *kueue.Workload
		want  bool
	}{
		"the same":                 {object(job), true},
		"of no job":                {object(), false},
		"of a later one":           {object(ownedBy("batch/v1", "Job", "2", true)), false},
		"of another kind":          {object(ownedBy("batch/v1", "JobSet", "1", true)), false},
		"of another namespace":     {object(job, func(w *kueue.Workload) { w.Namespace = "other" }), false},
		"of a job of another name": {object(job, func(w *kueue.Workload) { w.OwnerReferences[0].Name = "other" }), false},
	} {
		if SameJob(object(job), tt.other) != tt.want || SameJob(tt.other, object(job)) != tt.want {
			t.Errorf("%s: they are of the same job: want %v", name, tt.want)
		}
	}
}

// TestFlavorsThatSuitPods: taints have to be tolerated, and node labels to match what the pods select of them. Nodes of the flavor may
// have other labels, too.
func TestFlavorsThatSuitPods(t *testing.T) {
	flavor := func(edit func(*kueue.ResourceFlavorSpec)) *kueue.ResourceFlavor {
		f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}
		f.Spec.NodeLabels = map[string]string{"pool": "spot"}
		if edit != nil {
			edit(&f.Spec)
		}
		return f
	}
	tainted := func(effect corev1.TaintEffect, own ...corev1.Toleration) *kueue.ResourceFlavor {
		return flavor(func(s *kueue.ResourceFlavorSpec) {
			s.NodeTaints, s.Tolerations = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: effect}}, own
		})
	}
	selects := func(pairs map[string]string) corev1.PodSpec { return corev1.PodSpec{NodeSelector: pairs} }
	tolerates := func(t corev1.Toleration) corev1.PodSpec { return corev1.PodSpec{Tolerations: []corev1.Toleration{t}} }
	requires := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}}
	}
	in := func(keysAndValues ...string) (out corev1.NodeSelectorTerm) {
		for i := 0; i < len(keysAndValues); i += 2 {
			out.MatchExpressions = append(out.MatchExpressions, corev1.NodeSelectorRequirement{Key: keysAndValues[i],
				Operator: corev1.NodeSelectorOpIn, Values: []string{keysAndValues[i+1]}})
		}
		return out
	}
	const no, run = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	exists, equal := corev1.TolerationOpExists, corev1.TolerationOpEqual
	for _, tc := range []struct {
		name   string
		spec   corev1.PodSpec
		flavor *kueue.ResourceFlavor
		want   bool
	}{
		{"plain pods", corev1.PodSpec{}, flavor(nil), true},
		{"the label is selected", selects(map[string]string{"pool": "spot"}), flavor(nil), true},
		{"another value is selected", selects(map[string]string{"pool": "dear"}), flavor(nil), false},
		{"another label is selected", selects(map[string]string{"zone": "a"}), flavor(nil), true},
		{"the label is required", requires(in("pool", "spot")), flavor(nil), true},
		{"another value is required", requires(in("pool", "dear")), flavor(nil), false},
		{"another value beside another label", requires(in("pool", "dear", "zone", "a")), flavor(nil), false},
		{"one of two terms matches", requires(in("pool", "dear"), in("pool", "spot")), flavor(nil), true},
		{"one of two terms is on another label", requires(in("pool", "dear"), in("zone", "a")), flavor(nil), true},
		{"a pod affinity", corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}, flavor(nil), true},
		{"a preferred node affinity", corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, flavor(nil), true},
		{"an expression that cannot be read", requires(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "pool", Operator: "Like"}}}), flavor(nil), false},
		{"a taint", corev1.PodSpec{}, tainted(no), false},
		{"a taint that is only a preference", corev1.PodSpec{}, tainted(corev1.TaintEffectPreferNoSchedule), true},
		{"a taint that the flavor has tolerated", corev1.PodSpec{}, tainted(no, corev1.Toleration{Key: "gpu", Operator: exists}), true},
		{"tolerated by key", tolerates(corev1.Toleration{Key: "gpu", Operator: exists}), tainted(no), true},
		{"tolerated by value", tolerates(corev1.Toleration{Key: "gpu", Operator: equal, Value: "yes"}), tainted(no), true},
		{"tolerated by value, by default", tolerates(corev1.Toleration{Key: "gpu", Value: "yes"}), tainted(no), true},
		{"tolerated with another value", tolerates(corev1.Toleration{Key: "gpu", Value: "no"}), tainted(no), false},
		{"a value without a key", tolerates(corev1.Toleration{Value: "yes"}), tainted(no), false},
		{"another key", tolerates(corev1.Toleration{Key: "cpu", Operator: exists}), tainted(no), false},
		{"everything", tolerates(corev1.Toleration{Operator: exists}), tainted(run), true},
		{"of that effect", tolerates(corev1.Toleration{Key: "gpu", Operator: exists, Effect: run}), tainted(run), true},
		{"of another effect", tolerates(corev1.Toleration{Key: "gpu", Operator: exists, Effect: no}), tainted(run), false},
		{"by an operator that is off by default", tolerates(corev1.Toleration{Key: "gpu", Operator: "Gt", Value: "1"}), tainted(no), false},
	} {
		if got := Mismatch(&tc.spec, tc.flavor); (got == "") != tc.want {
			t.Errorf("%s: the flavor suits: %q, want %v", tc.name, got, tc.want)
		}
	}
	other := flavor(func(s *kueue.ResourceFlavorSpec) { s.NodeLabels = map[string]string{"pool": "dear", "zone": "a"} })
	if label, found := Contradiction(flavor(nil), other); label != "pool" || !found {
		t.Errorf("the flavors contradict each other in %q", label)
	}
	other.Spec.NodeLabels["pool"] = "spot"
	if label, found := Contradiction(flavor(nil), other); found {
		t.Errorf("the flavors contradict each other in %q", label)
	}
}

// TestPodsOnFlavors get what leads them to the nodes of the flavors, and the template of the job stays as it is.
func TestPodsOnFlavors(t *testing.T) {
	gpu, spot := corev1.Toleration{Key: "gpu"}, corev1.Toleration{Key: "spot"}
	flavor := &kueue.ResourceFlavor{}
	flavor.Spec.NodeLabels, flavor.Spec.Tolerations = map[string]string{"pool": "spot"}, []corev1.Toleration{gpu, spot}
	plain := &kueue.ResourceFlavor{}
	for _, tc := range []struct {
		name    string
		spec    corev1.PodSpec
		flavors []*kueue.ResourceFlavor
		want    corev1.PodSpec
	}{
		{"no flavor", corev1.PodSpec{}, nil, corev1.PodSpec{}},
		{"a flavor without labels", corev1.PodSpec{}, []*kueue.ResourceFlavor{plain}, corev1.PodSpec{}},
		{"a flavor", corev1.PodSpec{}, []*kueue.ResourceFlavor{plain, flavor},
			corev1.PodSpec{NodeSelector: map[string]string{"pool": "spot"}, Tolerations: []corev1.Toleration{gpu, spot}}},
		{"beside what the pods have", corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}, Tolerations: []corev1.Toleration{gpu}},
			[]*kueue.ResourceFlavor{flavor},
			corev1.PodSpec{NodeSelector: map[string]string{"zone": "a", "pool": "spot"}, Tolerations: []corev1.Toleration{gpu, spot}}},
	} {
		template := &corev1.PodTemplateSpec{Spec: tc.spec}
		before := template.DeepCopy()
		if diff := cmp.Diff(tc.want, TemplateOn(template, tc.flavors).Spec); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(before, template); diff != "" {
			t.Errorf("%s: the template has changed\n%s", tc.name, diff)
		}
	}
	class := &nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"runtime": "kata", "zone": "b"}, Tolerations: []corev1.Toleration{spot}}}
	own := corev1.ResourceList{"cpu": resource.MustParse("2")}
	for name, tt := range map[string]struct {
		spec  corev1.PodSpec
		class *nodev1.RuntimeClass
		want  corev1.PodSpec
	}{
		"a class of nothing": {corev1.PodSpec{}, &nodev1.RuntimeClass{}, corev1.PodSpec{}},
		"a class of tolerations": {corev1.PodSpec{}, &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{spot}}},
			corev1.PodSpec{NodeSelector: map[string]string{}, Tolerations: []corev1.Toleration{spot}}},
		"a plain pod": {corev1.PodSpec{}, class, corev1.PodSpec{Overhead: class.Overhead.PodFixed,
			NodeSelector: map[string]string{"runtime": "kata", "zone": "b"}, Tolerations: []corev1.Toleration{spot}}},
		"beside its own": {
			corev1.PodSpec{Overhead: own, NodeSelector: map[string]string{"zone": "a"}, Tolerations: []corev1.Toleration{gpu}}, class,
			corev1.PodSpec{Overhead: own, NodeSelector: map[string]string{"runtime": "kata", "zone": "a"},
				Tolerations: []corev1.Toleration{gpu, spot}}},
	} {
		if diff := cmp.Diff(&tt.want, ByRuntime(&tt.spec, tt.class)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// TestPriorityClasses: the value of a WorkloadPriorityClass may be out of date in a Workload, that of a PriorityClass may not.
func TestPriorityClasses(t *testing.T) {
	spec := func(priority int32, ref *kueue.PriorityClassRef) *kueue.WorkloadSpec {
		return &kueue.WorkloadSpec{Priority: &priority, PriorityClassRef: ref}
	}
	high, low := kueue.NewWorkloadPriorityClassRef("high"), kueue.NewWorkloadPriorityClassRef("low")
	pods := kueue.NewPodPriorityClassRef("high")
	for _, tc := range []struct {
		name       string
		a, b       *kueue.WorkloadSpec
		same, kind bool
	}{
		{"no class", spec(1, nil), spec(1, nil), true, true},
		{"no class, and another value", spec(1, nil), spec(2, nil), false, true},
		{"one class", spec(1, high), spec(1, high), true, true},
		{"one class, whose value has changed", spec(1, high), spec(2, high), true, true},
		{"another class", spec(1, high), spec(1, low), false, true},
		{"a class of pods", spec(1, pods), spec(1, pods), true, true},
		{"a class of pods, and another value", spec(1, pods), spec(2, pods), false, true},
		{"another class of pods", spec(1, pods), spec(1, kueue.NewPodPriorityClassRef("low")), false, false},
		{"another kind", spec(1, high), spec(1, pods), false, false},
		{"the class is removed", spec(1, high), spec(1, nil), false, false},
	} {
		same, kind := SamePriority(tc.a, tc.b), SameClassKind(tc.a.PriorityClassRef, tc.b.PriorityClassRef)
		if same != tc.same || kind != tc.kind {
			t.Errorf("%s: same priority %v, same kind %v; want %v, %v", tc.name, same, kind, tc.same, tc.kind)
		}
	}
}

func TestPriority(t *testing.T) {
	if got := Priority(object()); got != 0 {
		t.Errorf("without a priority it is %d", got)
	}
	if got := Priority(object(func(w *kueue.Workload) { w.Spec.Priority = new(int32(-1)) })); got != -1 {
		t.Errorf("the priority -1 is %d", got)
	}
}

// TestReadinessOfPods as in Kueue: the first time, after a failure, and after that.
func TestReadinessOfPods(t *testing.T) {
	for _, tc := range []struct {
		name   string
		w      *kueue.Workload
		ready  bool
		reason string
	}{
		{"not ready yet", object(), false, ""},
		{"ready for the first time", object(), true, kueue.WorkloadStarted},
		{"ready as before", object(is(kueue.WorkloadPodsReady)), true, ""},
		{"a pod has failed", object(is(kueue.WorkloadPodsReady)), false, kueue.WorkloadWaitForRecovery},
		{"still not ready", object(isNot(kueue.WorkloadPodsReady, kueue.WorkloadWaitForRecovery)), false, ""},
		{"ready again", object(isNot(kueue.WorkloadPodsReady, kueue.WorkloadWaitForRecovery)), true, kueue.WorkloadRecovered},
		{"ready after it started", object(isNot(kueue.WorkloadPodsReady, kueue.WorkloadWaitForStart)), true, kueue.WorkloadStarted},
	} {
		status := Readiness(tc.w, tc.ready, noon)
		got := ""
		if status != nil {
			got = status.Conditions[0].Reason
			if (status.Conditions[0].Status == metav1.ConditionTrue) != tc.ready {
				t.Errorf("%s: %+v", tc.name, status.Conditions)
			}
		}
		if got != tc.reason {
			t.Errorf("%s: the reason is %q, want %q", tc.name, got, tc.reason)
		}
	}
}

// TestAWaitingWorkload: its status is written once, and a pause ends when its time has come.
func TestAWaitingWorkload(t *testing.T) {
	waits := isNot(kueue.WorkloadQuotaReserved, "Waiting")
	if status := Waiting(object(waits), nil, "Waiting", "", noon); status != nil {
		t.Errorf("nothing has changed: %+v", status)
	}
	for name, w := range map[string]*kueue.Workload{"another reason": object(isNot(kueue.WorkloadQuotaReserved, "Other")),
		"a first one": object(), "a reservation without an admission": object(is(kueue.WorkloadQuotaReserved)),
		"an admission without a reservation": object(func(w *kueue.Workload) { w.Status.Admission = &kueue.Admission{} })} {
		status := Waiting(w, []kueue.PodSetRequest{{Name: "main"}}, "Waiting", "", noon)
		if status == nil || status.Conditions[0].Reason != "Waiting" || status.Admission != nil || len(status.ResourceRequests) != 1 {
			t.Errorf("%s: %+v", name, status)
		}
	}
	paused := func(until time.Time) *kueue.Workload {
		return object(isNot(kueue.WorkloadRequeued, kueue.WorkloadEvictedByAdmissionCheck), func(w *kueue.Workload) {
			w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2)), RequeueAt: new(metav1.NewTime(until))}
		})
	}
	for _, tc := range []struct {
		name     string
		until    time.Time
		reason   string
		requeued metav1.ConditionStatus
		paused   bool
	}{
		{"the pause is over", noon, "Waiting", metav1.ConditionTrue, false},
		{"it lasts", noon.Add(1), "Waiting", metav1.ConditionTrue, true},
		{"the queue is stopped", noon, kueue.WorkloadQuotaReservedReasonSuspended, metav1.ConditionFalse, true},
		{"it is deactivated", noon, kueue.WorkloadDeactivated, metav1.ConditionFalse, true},
	} {
		status := Waiting(paused(tc.until), nil, tc.reason, "", noon)
		if status.Conditions[0].Status != tc.requeued || (status.RequeueState.RequeueAt != nil) != tc.paused || *status.RequeueState.Count != 2 {
			t.Errorf("%s: Requeued is %s, the state %+v", tc.name, status.Conditions[0].Status, status.RequeueState)
		}
	}
}

// TestTimeThatAWorkloadRan counts towards its limit, unless the limit ended it.
func TestTimeThatAWorkloadRan(t *testing.T) {
	now := noon.Add(time.Hour + 90*time.Second)
	ran := func(w *kueue.Workload) { w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(10)) }
	tooLong := func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue,
			Reason: kueue.WorkloadDeactivated + DueTo + kueue.WorkloadMaximumExecutionTimeExceeded})
	}
	for _, tc := range []struct {
		name string
		w    *kueue.Workload
		want int32
	}{
		{"not admitted", object(reserving(4), ran), 10},
		{"not admitted any more", object(reserving(4), ran, isNot(kueue.WorkloadAdmitted, "NoReservation")), 10},
		{"for 90 s", object(reserving(4), is(kueue.WorkloadAdmitted)), 90},
		{"for 90 s more", object(reserving(4), is(kueue.WorkloadAdmitted), ran), 100},
		{"evicted for another reason", object(reserving(4), is(kueue.WorkloadAdmitted, kueue.WorkloadEvicted)), 90},
		{"for too long", object(reserving(4), is(kueue.WorkloadAdmitted), ran, tooLong), 0},
	} {
		status := Released(tc.w, now)
		if got := Accumulated(status); got != tc.want || status.Admission != nil {
			t.Errorf("%s: it ran for %d s, want %d; its admission is %v", tc.name, got, tc.want, status.Admission)
		}
	}
}

// TestCountedEvictions: by reason and cause, in status and limits.
func TestCountedEvictions(t *testing.T) {
	w := object()
	for _, cause := range []string{"", "a", "a", "b"} {
		e := Edit(w, noon)
		e.Evict(kueue.WorkloadDeactivated, cause, "")
		w.Status = *e.Status
	}
	for cause, want := range map[string]int32{"": 4, "a": 2, "b": 1, "c": 0} {
		if got := Evictions(w, kueue.WorkloadDeactivated, cause); got != want {
			t.Errorf("%d evictions by cause %q, want %d", got, cause, want)
		}
	}
	if got := Evictions(w, kueue.WorkloadEvictedByPreemption, "") + Evictions(object(), kueue.WorkloadDeactivated, ""); got != 0 {
		t.Errorf("%d evictions that were not", got)
	}
}

// TestStatesOfChecks: what holds a Workload back, and what is said of it.
func TestStatesOfChecks(t *testing.T) {
	since := metav1.NewTime(noon)
	w := object(func(w *kueue.Workload) {
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{
			{Name: "b", State: kueue.CheckStateRetry, Message: "no room", RequeueAfterSeconds: new(int32(60)), LastTransitionTime: since},
			{Name: "a", State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(30)), LastTransitionTime: since},
			{Name: "c", State: kueue.CheckStateReady, RequeueAfterSeconds: new(int32(90)), LastTransitionTime: since},
			{Name: "d", State: kueue.CheckStateRetry, LastTransitionTime: metav1.NewTime(noon.Add(time.Hour))},
		}
	})
	if got := RetryAt(w); !got.Equal(noon.Add(time.Minute)) {
		t.Errorf("the next attempt is at %s, want that of the latest check", got)
	}
	if got := DescribeChecks(ChecksIn(w, kueue.CheckStateRetry)); got != `AdmissionChecks in Retry state: "a"; "b" (no room); "d"` {
		t.Error(got)
	}
	if got := DescribeChecks(ChecksIn(w, kueue.CheckStateReady)); got != `AdmissionCheck in Ready state: "c"` {
		t.Error(got)
	}
	checks := w.Status.AdmissionChecks
	if AllReady(checks) || !AllReady(checks[2:3]) || !AllReady(nil) {
		t.Error("all are ready if none is in another state")
	}
	if got := Unready(checks, "b"); got != "a" {
		t.Errorf("beside b waits %q, want a", got)
	}
	if got := Unready(checks[1:3], "a"); got != "" {
		t.Errorf("beside a waits %q, want none", got)
	}
}

// TestFailedAttempts count until the Workload is admitted; pods that were not ready, or rejected, are a failed attempt of an admitted one.
func TestFailedAttempts(t *testing.T) {
	failed := func(w *kueue.Workload) { w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2))} }
	admitted := is(kueue.WorkloadAdmitted)
	for _, tc := range []struct {
		name   string
		w      *kueue.Workload
		reason string
		kept   bool
	}{
		{"before it was admitted", object(failed), kueue.WorkloadEvictedByAdmissionCheck, true},
		{"preempted", object(failed, admitted), kueue.WorkloadEvictedByPreemption, false},
		{"its pods were not ready", object(failed, admitted), kueue.WorkloadEvictedByPodsReadyTimeout, true},
		{"its pods were rejected", object(failed, admitted), ReasonPodsRefused, true},
		{"deactivated", object(failed), kueue.WorkloadDeactivated, false},
	} {
		if status := Evicted(tc.w, tc.reason, "", noon); (status.RequeueState != nil) != tc.kept {
			t.Errorf("%s: the attempts are %+v", tc.name, status.RequeueState)
		}
	}
}

// TestPreemptionGates: a gate is closed until its controller opens it, and the condition names only those.
func TestPreemptionGates(t *testing.T) {
	gate := func(w *kueue.Workload) { w.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "a"}} }
	state := func(name string, position kueue.PreemptionGatePosition) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.PreemptionGates = append(w.Status.PreemptionGates, kueue.PreemptionGateState{Name: name, Position: position})
		}
	}
	open, closed := state("a", kueue.PreemptionGatePositionOpen), state("a", kueue.PreemptionGatePositionClosed)
	for _, tc := range []struct {
		name    string
		w       *kueue.Workload
		reason  string
		closed  string
		blocked bool
	}{
		{"no gate", object(), kueue.WorkloadAdmissionGated, "", false},
		{"without a state", object(gate), kueue.WorkloadAdmissionGated, "a", true},
		{"closed", object(gate, closed), kueue.WorkloadAdmissionGated, "a", true},
		{"open", object(gate, open), kueue.WorkloadAdmissionGated, "", false},
		{"another one is open", object(gate, state("b", kueue.PreemptionGatePositionOpen)), kueue.WorkloadAdmissionGated, "a", true},
		{"it waits for something else", object(gate), "Waiting", "a", false},
		{"its admission is gated", object(gate, annotated(GatedByAnnotation, "controller")), kueue.WorkloadAdmissionGated, "a", false},
	} {
		if got := ClosedGate(tc.w); got != tc.closed {
			t.Errorf("%s: the closed gate is %q, want %q", tc.name, got, tc.closed)
		}
		status := Waiting(tc.w, nil, tc.reason, "", noon)
		if got := IsTrue(&kueue.Workload{Status: *status}, kueue.WorkloadBlockedOnPreemptionGates); got != tc.blocked {
			t.Errorf("%s: blocked: %v, want %v", tc.name, got, tc.blocked)
		}
	}
}

// TestAssignments: pods that wait for nodes have no topology assignment yet.
func TestAssignments(t *testing.T) {
	pending, ready := new(kueue.DelayedTopologyRequestStatePending), new(kueue.DelayedTopologyRequestStateReady)
	for _, tc := range []struct {
		name string
		ps   kueue.PodSetAssignment
		want bool
	}{
		{"no topology", kueue.PodSetAssignment{}, false},
		{"assigned at once", kueue.PodSetAssignment{TopologyAssignment: &kueue.TopologyAssignment{}}, false},
		{"to be assigned", kueue.PodSetAssignment{DelayedTopologyRequest: pending}, true},
		{"assigned later", kueue.PodSetAssignment{DelayedTopologyRequest: ready, TopologyAssignment: &kueue.TopologyAssignment{}}, false},
		{"none was needed", kueue.PodSetAssignment{DelayedTopologyRequest: ready}, false},
		{"assigned and not marked yet", kueue.PodSetAssignment{DelayedTopologyRequest: pending,
			TopologyAssignment: &kueue.TopologyAssignment{}}, false},
	} {
		if got := AwaitsTopology(&kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{}, tc.ps}}); got != tc.want {
			t.Errorf("%s: it awaits its topology: %v, want %v", tc.name, got, tc.want)
		}
	}
	w := object(reserving(3))
	w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: "launcher",
		Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "dear", "gpu": "spot"}},
		kueue.PodSetAssignment{Name: "none"})
	if got := PodsIn(w.Status.Admission); got != 4 {
		t.Errorf("%d pods are admitted, want 4", got)
	}
	if diff := cmp.Diff([]kueue.ResourceFlavorReference{"dear", "spot"}, AssignedFlavors(w.Status.Admission)); diff != "" {
		t.Errorf("flavors (-want +got)\n%s", diff)
	}
	if FindAssignment(w, "launcher").Name != "launcher" || FindAssignment(w, "other").Name != "" ||
		FindPodSet(w, "main").Count != 4 || FindPodSet(w, "other").Count != 0 {
		t.Error("a podSet is found by its name, or an empty one")
	}
}
