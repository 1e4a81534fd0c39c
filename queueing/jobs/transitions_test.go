package jobs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestTransitions is the whole table: what is done for each state of a job, by that of its
// Workload.
func TestTransitions(t *testing.T) {
	want := strings.TrimSpace(`
                absent  pending asking  adopted reserved admitted  evicted    deleted finished
held            queue   queue   queue   queue   queue    start     release    -       reportEnd
stopped         restore restore restore restore evict    evict     restore    -       reportEnd
running         adopt   adopt   adopt   -       adopt    keep      stop       -       -
runningUnqueued -       stop    adopt   -       stop     keep      stop       -       -
exempt          excuse  excuse  excuse  excuse  excuse   keep      excuse     -       -
ending          -       -       -       -       -        keep      -          -       -
delegated       queue   queue   queue   queue   queue    runRemote stopRemote -       reportEnd
remote          stop    stop    stop    stop    stop     runRemote stopRemote -       reportEnd
ended           -       finish  finish  finish  finish   finish    finish     finish  -`)
	actions := strings.Fields("- queue start keep adopt excuse stop evict restore release runRemote stopRemote finish reportEnd")
	lines := strings.Split(want, "\n")
	for i, line := range lines[1:] {
		var got []string
		for _, a := range transitions[i] {
			got = append(got, actions[a])
		}
		if diff := cmp.Diff(strings.Fields(line)[1:], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", strings.Fields(line)[0], diff)
		}
	}
	if len(lines)-1 != len(transitions) || len(strings.Fields(lines[0])) != len(transitions[0]) {
		t.Errorf("the table has %d states of jobs and %d of Workloads", len(transitions), len(transitions[0]))
	}
}

// TestTransitionsKeepThePromises, whichever action a cell has.
func TestTransitionsKeepThePromises(t *testing.T) {
	for j := range jobStates {
		for w := range workload.States {
			a := transitions[j][w]
			suspended, mayRun := j == held || j == stopped, w == admitted
			switch {
			case a == start && (!suspended || !mayRun):
				t.Errorf("a job starts without an admission: %d, %d", j, w)
			case a == stop && (suspended || mayRun):
				t.Errorf("a job stops that may run: %d, %d", j, w)
			case a == release && (j != held || w != evicted):
				t.Errorf("quota is released of a job that may have pods: %d, %d", j, w)
			case j == running && slices.Contains([]workload.State{pending, reserved, evicted}, w) && a != stop && (a != adopt || w == evicted):
				t.Errorf("a job runs without an admission: %d, %d", j, w)
			case w == finished && a != nothing && a != reportEnd:
				t.Errorf("a finished Workload is changed: %d, %d", j, w)
			}
		}
	}
}

// fakeKind is of jobs that are as their spec says.
type fakeKind struct{ Kind }

func (fakeKind) IsSuspended(o client.Object) bool { return field(o, "suspend") == "true" }

func (fakeKind) Outcome(o client.Object) (Outcome, string) {
	return Outcome(slices.Index([]string{"", "ending", "succeeded", "failed"}, field(o, "outcome"))), ""
}

func field(o client.Object, name string) string {
	value, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", name)
	return value
}

func TestStateOf(t *testing.T) {
	for name, c := range map[string]struct {
		suspend, outcome, queue string
		annotation              string
		want                    jobState
	}{
		"suspended":                       {suspend: "true", queue: "main", want: held},
		"suspended, in no queue":          {suspend: "true", want: held},
		"suspended after a start":         {suspend: "true", queue: "main", annotation: StartedAnnotation, want: stopped},
		"running":                         {queue: "main", want: running},
		"running after a start":           {queue: "main", annotation: StartedAnnotation, want: running},
		"running in no queue":             {want: runningUnqueued},
		"running by break-glass":          {queue: "main", annotation: BreakGlassAnnotation, want: exempt},
		"break-glass in no queue":         {annotation: BreakGlassAnnotation, want: runningUnqueued},
		"suspended, for all break-glass":  {suspend: "true", queue: "main", annotation: BreakGlassAnnotation, want: held},
		"ending":                          {outcome: "ending", queue: "main", want: ending},
		"ending by break-glass":           {outcome: "ending", queue: "main", annotation: BreakGlassAnnotation, want: exempt},
		"succeeded":                       {outcome: "succeeded", queue: "main", want: ended},
		"failed, and suspended meanwhile": {outcome: "failed", suspend: "true", queue: "main", want: ended},
	} {
		job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": c.suspend, "outcome": c.outcome}}}
		job.SetLabels(map[string]string{QueueLabel: c.queue})
		if c.annotation != "" {
			job.SetAnnotations(map[string]string{c.annotation: "{}"})
		}
		if got := stateOf(fakeKind{}, job); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestStateOfWorkload(t *testing.T) {
	const quota, admission, eviction, end = kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadFinished
	for name, c := range map[string]struct {
		conditions   []string
		asks, leaves bool
		want         workload.State
	}{
		"it waits":                              {want: pending},
		"it asks to be adopted":                 {asks: true, want: asking},
		"it is adopted":                         {asks: true, conditions: []string{workload.ConditionAdopted}, want: adopted},
		"adopted, and admitted":                 {conditions: []string{workload.ConditionAdopted, quota, admission}, want: admitted},
		"adopted, but evicted since":            {conditions: []string{workload.ConditionAdopted, eviction}, want: pending},
		"quota":                                 {conditions: []string{quota}, want: reserved},
		"quota and checks":                      {conditions: []string{quota, admission}, want: admitted},
		"evicted":                               {conditions: []string{quota, admission, eviction}, want: evicted},
		"evicted before it was admitted":        {conditions: []string{quota, eviction}, want: evicted},
		"evicted, and its quota was released":   {conditions: []string{eviction}, want: pending},
		"it is over":                            {conditions: []string{quota, admission, end}, want: finished},
		"it is over, and about to go":           {conditions: []string{end}, leaves: true, want: finished},
		"it is about to go, with quota":         {conditions: []string{quota, admission}, leaves: true, want: deleted},
		"it is about to go, and asks adoption ": {asks: true, leaves: true, want: deleted},
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		for _, condition := range c.conditions {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
		}
		if slices.Contains(c.conditions, quota) {
			w.Status.Admission = &kueue.Admission{}
		}
		if c.asks {
			w.Annotations[workload.AdoptedAnnotation] = "true"
		}
		if c.leaves {
			w.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		if got := workload.StateOf(w); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if workload.StateOf(nil) != absent {
		t.Error("without a Workload it is not absent")
	}
}
