package nodegroups

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// randomAttempt is the i-th outcome of a random history.
func randomAttempt(r *rand.Rand, i int, now time.Time) v1alpha1.LaunchAttempt {
	classes := []v1alpha1.ErrorClass{all, all, stockout, stockout, v1alpha1.Quota, v1alpha1.Network, v1alpha1.Throttle, v1alpha1.Auth,
		v1alpha1.Config, v1alpha1.Timeout, v1alpha1.Lost}
	return v1alpha1.LaunchAttempt{
		Time: metav1.NewTime(now), Request: "ns/gang", Token: fmt.Sprint("gang-", i),
		Requested: 1 + r.Int32N(100), Class: classes[r.IntN(len(classes))], Message: "the cloud's words",
	}
}

// reread is the status as the API server returns it.
func reread(t *testing.T, status v1alpha1.NodeGroupStatus) (out v1alpha1.NodeGroupStatus) {
	t.Helper()
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A group that is restarted after each outcome knows what one knows that never was;
// whatever is learned, the status stays within the bounds of its schema.
func TestARestartRemembersAll(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var kept, restarted v1alpha1.NodeGroupStatus
		now := noon
		for i := range 60 {
			now = now.Add(time.Duration(r.Int64N(int64(3 * minute))))
			if r.IntN(20) == 0 {
				now = now.Add(24 * time.Hour)
			}
			a := randomAttempt(r, i, now)
			kept, restarted = Learn(kept, a), reread(t, Learn(restarted, a))
			if !equality.Semantic.DeepEqual(kept, restarted) {
				t.Fatalf("seed %d, outcome %d (-kept +restarted):\n%s", seed, i, cmp.Diff(kept, restarted))
			}
			if len(kept.Attempts) > keptAttempts || len(kept.Backoffs) > 64 {
				t.Fatalf("seed %d: %d attempts and %d backoffs", seed, len(kept.Attempts), len(kept.Backoffs))
			}
			if kept.Ledger == nil {
				continue
			}
			for _, e := range kept.Ledger.Sizes {
				if e.Got < 0 || e.Got > mostObserved || e.Failed < 0 || e.Failed > mostObserved || e.Got+e.Failed == 0 {
					t.Fatalf("seed %d: evidence %+v", seed, e)
				}
			}
		}
	}
}

// All that repeats an outcome, in whatever order, with whatever else, teaches nothing.
func TestARepeatTeachesNothing(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		var history []v1alpha1.LaunchAttempt
		var status v1alpha1.NodeGroupStatus
		now := noon
		for i := range 40 {
			// Often many within one second, which is all that a status can distinguish.
			if r.IntN(3) == 0 {
				now = now.Add(time.Duration(r.Int64N(int64(2 * second))))
			}
			history = append(history, randomAttempt(r, i, now))
			status = Learn(status, history[i])
			states := []v1alpha1.NodeGroupStatus{status, reread(t, status)}
			for _, a := range history {
				for _, s := range states {
					if !Recorded(s, a) {
						t.Fatalf("seed %d: outcome %s is not known after %s", seed, a.Token, history[i].Token)
					}
					if after := Learn(s, a); !equality.Semantic.DeepEqual(s, after) {
						t.Fatalf("seed %d: outcome %s teaches again (-before +after):\n%s", seed, a.Token, cmp.Diff(s, after))
					}
				}
			}
		}
	}
}

func TestLearningLeavesTheGivenStatusAlone(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		var status v1alpha1.NodeGroupStatus
		for i := range 30 {
			before := *status.DeepCopy()
			next := Learn(status, randomAttempt(r, i, noon.Add(time.Duration(i)*minute)))
			Amended(next, &v1alpha1.NodeGroup{})
			withAdvice(next.Ledger, &v1alpha1.Advice{Machines: 4, At: metav1.NewTime(noon)})
			if !equality.Semantic.DeepEqual(before, status) {
				t.Fatalf("seed %d (-before +after):\n%s", seed, cmp.Diff(before, status))
			}
			status = next
		}
	}
}

func TestAttemptsAreKeptNewestFirst(t *testing.T) {
	status := learn(launch{2 * minute, 1, all}, launch{0, 1, all}, launch{minute, 1, all})
	var tokens []string
	for _, a := range status.Attempts {
		tokens = append(tokens, a.Token)
	}
	if diff := cmp.Diff([]string{"gang-0", "gang-2", "gang-1"}, tokens); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	a := v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon), Token: "gang-1", Requested: 1, Class: stockout,
		Message: strings.Repeat("ü", keptMessage)}
	status := Learn(v1alpha1.NodeGroupStatus{}, a)
	want := strings.Repeat("ü", keptMessage/2)
	if status.Attempts[0].Message != want || status.Backoffs[0].Message != want {
		t.Errorf("%d and %d bytes are kept, want %d", len(status.Attempts[0].Message), len(status.Backoffs[0].Message), len(want))
	}
	if got := shorten("aü", 2); got != "a" {
		t.Errorf("a message is cut to %q, within a character", got)
	}
}

func TestAChangedConfigurationIsTriedAtOnce(t *testing.T) {
	status := Amended(learn(launch{0, 8, v1alpha1.Config}, launch{second, 8, v1alpha1.Auth}), &v1alpha1.NodeGroup{})
	if len(status.Backoffs) != 2 {
		t.Errorf("a status of before configurations were compared keeps %+v, want both backoffs", status.Backoffs)
	}
	changed := &v1alpha1.NodeGroup{Spec: v1alpha1.NodeGroupSpec{Zone: "z2"}}
	status = Amended(status, changed)
	g := GroupFrom(&v1alpha1.NodeGroup{}, status, 0)
	if until, _ := g.BlockedUntil(8, ""); until.Sub(noon) != 5*minute+second {
		t.Errorf("blocked until %s after noon, want 5m1s for the credentials", until.Sub(noon))
	}
	if len(status.Backoffs) != 1 || status.BackoffUntil.Sub(noon) != 5*minute+second {
		t.Errorf("backoffs %+v until %s", status.Backoffs, status.BackoffUntil)
	}
}

func TestGroupFromReadsWhatWasLearned(t *testing.T) {
	ng := &v1alpha1.NodeGroup{}
	ng.Spec.Template.Capacity = corev1.ResourceList{"cpu": *quantity("cpu", 8000)}
	status := learn(launch{0, 8, stockout})
	g := GroupFrom(ng, status, 3)
	if g.Chance(8, "", noon) != 633 || len(g.Backoffs) != 1 || g.Machines != 3 {
		t.Errorf("the group is %+v", g)
	}
}
