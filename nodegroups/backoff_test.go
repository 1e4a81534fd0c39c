package nodegroups

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const second = time.Second

func TestBackoff(t *testing.T) {
	const quota, throttle, auth, config, late, lost = v1alpha1.Quota, v1alpha1.Throttle, v1alpha1.Auth, v1alpha1.Config,
		v1alpha1.Timeout, v1alpha1.Lost
	// backoff is one of those that are left, its end counted from noon.
	type backoff struct {
		class    v1alpha1.ErrorClass
		atLeast  int32
		failures int32
		until    time.Duration
	}
	for _, tc := range []struct {
		name    string
		history []launch
		want    []backoff
	}{
		{"what succeeds leaves nothing", []launch{{0, 8, all}}, nil},

		// Each class for itself.
		{"a stockout is over soon, and holds for that size", []launch{{0, 9, stockout}}, []backoff{{stockout, 8, 1, 30 * second}}},
		{"so is a lost machine", []launch{{0, 9, lost}}, []backoff{{lost, 8, 1, 30 * second}}},
		{"quota takes a person, and holds for that size", []launch{{0, 9, quota}}, []backoff{{quota, 8, 1, 5 * minute}}},
		{"so do addresses of a subnet", []launch{{0, 9, v1alpha1.Network}}, []backoff{{v1alpha1.Network, 8, 1, minute}}},
		{"nodes that do not join are a matter of the whole group", []launch{{0, 9, late}}, []backoff{{late, 1, 1, 30 * second}}},
		{"throttling is over at once", []launch{{0, 9, throttle}}, []backoff{{throttle, 1, 1, 5 * second}}},
		{"credentials take a person", []launch{{0, 9, auth}}, []backoff{{auth, 1, 1, 5 * minute}}},
		{"configuration takes a person", []launch{{0, 9, config}}, []backoff{{config, 1, 1, 5 * minute}}},

		// In a row.
		{"waits double", []launch{{0, 8, stockout}, {30 * second, 8, stockout}, {90 * second, 8, stockout}},
			[]backoff{{stockout, 8, 3, 90*second + 2*minute}}},
		{"up to a bound", []launch{{0, 8, stockout}, {1 * minute, 8, stockout}, {3 * minute, 8, stockout}, {6 * minute, 8, stockout},
			{12 * minute, 8, stockout}, {22 * minute, 8, stockout}, {33 * minute, 8, stockout}}, []backoff{{stockout, 8, 7, 43 * minute}}},
		{"a group whose nodes never join is left alone", []launch{{0, 8, late}, {30 * second, 8, late}, {90 * second, 8, late}},
			[]backoff{{late, 1, 3, 90*second + 24*60*minute}}},
		{"throttling does not lengthen a row of stockouts", []launch{{0, 8, stockout}, {30 * second, 8, throttle}, {40 * second, 8, stockout}},
			[]backoff{{stockout, 8, 2, 100 * second}, {throttle, 1, 1, 35 * second}}},
		{"what failed for 4 is not new for 16", []launch{{0, 4, stockout}, {minute, 16, stockout}},
			[]backoff{{stockout, 4, 1, 30 * second}, {stockout, 16, 2, 2 * minute}}},
		{"what failed for 16 is new for 4", []launch{{0, 16, stockout}, {minute, 4, stockout}},
			[]backoff{{stockout, 4, 1, 90 * second}, {stockout, 16, 1, 30 * second}}},
		{"launches that were under way together have met one stockout", []launch{{0, 8, stockout}, {0, 8, stockout}, {29 * second, 15, stockout}, {29 * second, 64, stockout}},
			[]backoff{{stockout, 8, 1, 30 * second}}},
		{"a row that nobody went on with for an hour is forgotten", []launch{{0, 8, stockout}, {30 * second, 8, stockout}, {62 * minute, 8, stockout}},
			[]backoff{{stockout, 8, 1, 62*minute + 30*second}}},
		{"not sooner", []launch{{0, 8, stockout}, {30 * second, 8, stockout}, {61 * minute, 8, stockout}}, []backoff{{stockout, 8, 3, 63 * minute}}},

		// What a success disproves.
		{"a success ends the row", []launch{{0, 8, stockout}, {minute, 8, all}}, nil},
		{"that of more machines, too", []launch{{0, 8, stockout}, {minute, 64, all}}, nil},
		{"that of fewer does not", []launch{{0, 8, stockout}, {minute, 4, all}}, []backoff{{stockout, 8, 1, 30 * second}}},
		{"it disproves every class", []launch{{0, 8, late}, {0, 8, lost}, {0, 8, throttle}, {0, 8, auth}, {0, 8, config}, {0, 8, quota}, {6 * minute, 8, all}}, nil},
		{"quota for more machines may still be short", []launch{{0, 64, quota}, {6 * minute, 8, all}}, []backoff{{quota, 64, 1, 5 * minute}}},
		{"a launch that began before the failure disproves nothing", []launch{{0, 8, stockout}, {29 * second, 8, all}}, []backoff{{stockout, 8, 1, 30 * second}}},
		{"what is long over is forgotten by a success of any size", []launch{{0, 64, quota}, {65 * minute, 1, all}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := learn(tc.history...)
			var got []backoff
			var until time.Duration
			var failures int32
			for _, b := range status.Backoffs {
				got = append(got, backoff{b.Class, b.AtLeast, b.Failures, b.Until.Sub(noon)})
				until, failures = max(until, b.Until.Sub(noon)), max(failures, b.Failures)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(backoff{})); diff != "" {
				t.Errorf("backoffs (-want +got):\n%s", diff)
			}
			if status.Failures != failures || (status.BackoffUntil == nil) != (until == 0) || until > 0 && status.BackoffUntil.Sub(noon) != until {
				t.Errorf("in sum %d failures until %s, want %d until %s after noon", status.Failures, status.BackoffUntil, failures, until)
			}
		})
	}
}

func TestNoRowIsTooLong(t *testing.T) {
	for class, h := range handlings {
		for _, machines := range []bool{false, true} {
			want := h.most
			switch {
			case h.patience > 0:
				want = stopped
			case h.vain && (machines || !h.unbilled):
				want = longestInVain
			}
			if got := h.pause(math.MaxInt32, machines); got != want {
				t.Errorf("%s: launches wait for %s after very many failures, want %s (machines: %t)", class, got, want, machines)
			}
		}
	}
}

// Gangs of one size that wait for a dry pool, and try whenever they may, try the
// seldomer the longer it lasts, however many they are.
func TestADryPoolIsNotHammered(t *testing.T) {
	var status v1alpha1.NodeGroupStatus
	rounds, token := 0, 0
	for now := noon; now.Before(noon.Add(2 * time.Hour)); now = now.Add(second) {
		g := GroupFrom(&v1alpha1.NodeGroup{}, status, 0)
		if until, _ := g.BlockedUntil(8, ""); until.After(now) {
			continue
		}
		rounds++
		for range 5 {
			token++
			status = Learn(status, v1alpha1.LaunchAttempt{Time: metav1.NewTime(now.Add(300 * time.Millisecond)), Token: string(rune(token)),
				Requested: 8, Class: stockout})
		}
	}
	// After 30 s, 1, 2, 4 and 8 minutes, then every 10.
	if rounds != 16 {
		t.Errorf("they tried %d times in two hours, want 16", rounds)
	}
}

// TestTriesInVainAreBounded without any budget: a gang tries for a week whenever it may, and each try buys machines that never serve.
func TestTriesInVainAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		class v1alpha1.ErrorClass
		got   int32
		level string
		most  int
	}{
		{"machines that are scattered over racks", v1alpha1.Scattered, 7, "rack", 40},
		{"machines that end while they start", v1alpha1.Lost, 0, "", 40},
		{"nodes that the gang cannot use", v1alpha1.Config, 7, "", 40},
		{"nodes that never join: a person is waited for", v1alpha1.Timeout, 7, "", 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var status v1alpha1.NodeGroupStatus
			tries, last, pause := 0, noon, time.Duration(0)
			for now := noon; now.Before(noon.Add(7 * 24 * time.Hour)); now = now.Add(10 * second) {
				g := GroupFrom(&v1alpha1.NodeGroup{}, status, 0)
				if until, _ := g.BlockedUntil(7, tc.level); until.After(now) {
					continue
				}
				if tries > 0 && now.Sub(last) < pause {
					t.Fatalf("try %d comes after %s, the one before after %s", tries+1, now.Sub(last), pause)
				} else if tries > 0 {
					pause = now.Sub(last)
				}
				last = now
				tries++
				status = Learn(status, v1alpha1.LaunchAttempt{Time: metav1.NewTime(now), Token: fmt.Sprint("gang-", tries), Requested: 7, Got: tc.got,
					Class: tc.class, Level: tc.level})
			}
			if tries > tc.most {
				t.Errorf("it bought 7 machines %d times, want at most %d", tries, tc.most)
			}
			g := GroupFrom(&v1alpha1.NodeGroup{}, status, 0)
			if until, _ := g.BlockedUntil(6, tc.level); (tc.class == v1alpha1.Scattered) != !until.After(noon) {
				t.Errorf("6 machines wait until %s", until)
			}
		})
	}
}

// TestARefusalThatBoughtNothingIsTriedSooner: it costs nothing to find out that an admin has corrected the group.
func TestARefusalThatBoughtNothingIsTriedSooner(t *testing.T) {
	for got, want := range map[int32]time.Duration{0: 30 * minute, 7: 40 * minute} {
		var status v1alpha1.NodeGroupStatus
		for i := range 4 {
			status = Learn(status, v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon.Add(time.Duration(i) * time.Hour)), Requested: 7, Got: got,
				Token: fmt.Sprint("gang-", i), Class: v1alpha1.Config})
		}
		if pause := status.BackoffUntil.Sub(noon.Add(3 * time.Hour)); pause != want {
			t.Errorf("with %d machines the 4th failure in a row pauses for %s, want %s", got, pause, want)
		}
	}
}

func TestBlockedUntil(t *testing.T) {
	status := learn(
		launch{0, 16, stockout}, launch{30 * second, 16, stockout},
		launch{minute, 64, v1alpha1.Quota},
		launch{minute, 2, v1alpha1.Throttle},
	)
	g := GroupFrom(&v1alpha1.NodeGroup{}, status, 0)
	for _, tc := range []struct {
		n     int
		until time.Duration
		why   []string
	}{
		{0, 65 * second, []string{"the cloud's words"}},
		{1, 65 * second, []string{"the cloud's words"}},
		{15, 65 * second, []string{"the cloud's words"}},
		{16, 90 * second, []string{"the cloud's words", "2nd failure in a row", "fewer than 16 machines need not wait"}},
		{63, 90 * second, []string{"2nd failure in a row"}},
		{64, 6 * minute, []string{"the cloud's words", "the owner of the cloud account", "higher quota", "spec.maxNodes", "fewer than 64 machines"}},
	} {
		until, why := g.BlockedUntil(tc.n, "")
		if got := until.Sub(noon); got != tc.until {
			t.Errorf("%d machines wait until %s after noon, want %s", tc.n, got, tc.until)
		}
		for _, part := range tc.why {
			if !strings.Contains(why, part) {
				t.Errorf("%d machines wait because %q, which does not speak of %q", tc.n, why, part)
			}
		}
	}
	fresh := Group{}
	if until, why := fresh.BlockedUntil(1, ""); !until.IsZero() || why != "" {
		t.Errorf("a fresh group is blocked until %s because %q", until, why)
	}
}

func TestAFailureWithoutWordsStillSaysWhat(t *testing.T) {
	b := v1alpha1.Backoff{Class: v1alpha1.Auth, AtLeast: 1, Failures: 1}
	if why := WhyBackoff(&b); !strings.Contains(why, "Auth") || !strings.Contains(why, "credentials") {
		t.Errorf("the reason is %q", why)
	}
}

// Nodes that do not become ready cost their price each time, so a person is asked to look,
// and a change of the spec lets the group try again.
func TestNodesThatNeverBecomeReadyNeedAPerson(t *testing.T) {
	b := v1alpha1.Backoff{Class: v1alpha1.Timeout, AtLeast: 1, Failures: 2}
	if NeedsPerson(&b) || strings.Contains(WhyBackoff(&b), "admin") {
		t.Errorf("a person is asked after two failures: %s", WhyBackoff(&b))
	}
	kept := Amended(v1alpha1.NodeGroupStatus{Backoffs: []v1alpha1.Backoff{b}, ConfigurationHash: "before"}, &v1alpha1.NodeGroup{}).Backoffs
	b.Failures = 3
	if !NeedsPerson(&b) || !strings.Contains(WhyBackoff(&b), "image") {
		t.Errorf("no person is asked after three failures: %s", WhyBackoff(&b))
	}
	left := Amended(v1alpha1.NodeGroupStatus{Backoffs: []v1alpha1.Backoff{b}, ConfigurationHash: "before"}, &v1alpha1.NodeGroup{}).Backoffs
	if len(kept) != 1 || len(left) != 0 {
		t.Errorf("a change of the spec leaves %v of two failures and %v of three", kept, left)
	}
}

func TestOrdinals(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 10: "10th", 11: "11th", 12: "12th", 13: "13th", 21: "21st",
		112: "112th", 123: "123rd"} {
		if got := Ordinal(n); got != want {
			t.Errorf("%d is the %s, want %s", n, got, want)
		}
	}
}

// A rack that was not to be had keeps only those waiting that need one.
func TestBackoffOfALevel(t *testing.T) {
	at := func(class v1alpha1.ErrorClass, level string, after time.Duration) v1alpha1.LaunchAttempt {
		return v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon.Add(after)), Token: string(class) + level + after.String(), Requested: 16,
			Class: class, Level: level}
	}
	status := Learn(v1alpha1.NodeGroupStatus{}, at(v1alpha1.Scattered, "rack", 0))
	waits := func(n int, level string) bool {
		g := Group{Backoffs: status.Backoffs}
		until, _ := g.BlockedUntil(n, level)
		return until.After(noon)
	}
	if !waits(16, "rack") || waits(8, "rack") || waits(16, "") || waits(16, "block") {
		t.Errorf("backoffs are %+v", status.Backoffs)
	}
	if g := (Group{Ledger: status.Ledger}); g.Chance(16, "", noon) != 950 || g.Chance(16, "rack", noon) >= 950 {
		t.Errorf("scattered machines were to be had, but not in one rack: ledger %+v", status.Ledger)
	}
	later := 10 * time.Minute
	if status = Learn(status, at("", "", later)); !waits(16, "rack") {
		t.Error("a launch that was bound to no rack has disproved it")
	}
	if status = Learn(status, at("", "rack", later+time.Second)); len(status.Backoffs) != 0 {
		t.Errorf("a launch in one rack has not disproved it: %+v", status.Backoffs)
	}
	status = Learn(status, at(v1alpha1.Stockout, "", 2*later))
	if !waits(16, "rack") || !waits(16, "") {
		t.Errorf("where there are no machines there is no rack: %+v", status.Backoffs)
	}
}

// TestScatteredLaunchesAreDistinguishedBySize: a rack that has room for 4 machines proves nothing for 7, and 6 may fit where 7 did not.
func TestScatteredLaunchesAreDistinguishedBySize(t *testing.T) {
	at := func(asked int32, class v1alpha1.ErrorClass, after time.Duration) v1alpha1.LaunchAttempt {
		return v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon.Add(after)), Token: after.String(), Requested: asked, Class: class, Level: "rack"}
	}
	waits := func(s v1alpha1.NodeGroupStatus, n int) time.Duration {
		g := Group{Backoffs: s.Backoffs}
		until, _ := g.BlockedUntil(n, "rack")
		return until.Sub(noon)
	}
	status := Learn(v1alpha1.NodeGroupStatus{}, at(7, v1alpha1.Scattered, 0))
	if waits(status, 7) != minute || waits(status, 6) > 0 {
		t.Errorf("after 7 machines were scattered the backoffs are %+v", status.Backoffs)
	}
	status = Learn(status, at(4, "", 2*minute))
	status = Learn(status, at(7, v1alpha1.Scattered, 3*minute))
	if got := waits(status, 7); got != 5*minute {
		t.Errorf("after the second time 7 machines wait until %s after noon, want 5m: 4 that were together prove nothing", got)
	}
}

// TestLastInVain: a launch is likely to be in vain if the last one of its size was, which bought machines.
func TestLastInVain(t *testing.T) {
	vain := map[v1alpha1.ErrorClass]bool{v1alpha1.Timeout: true, v1alpha1.Lost: true, v1alpha1.Config: true, v1alpha1.Scattered: true}
	for class := range handlings {
		if InVain(class) != vain[class] {
			t.Errorf("%s is in vain: %t, want %t", class, InVain(class), vain[class])
		}
	}
	failed := func(class v1alpha1.ErrorClass, asked int32, level string) v1alpha1.LaunchAttempt {
		return v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon), Token: "a", Class: class, Requested: asked, Level: level,
			Message: "it was " + string(class)}
	}
	for _, tc := range []struct {
		name  string
		past  []v1alpha1.LaunchAttempt
		n     int
		level string
		want  string
	}{
		{name: "nothing is known against a group without a past", n: 8},
		{name: "a stockout buys nothing", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Stockout, 8, "")}, n: 8},
		{name: "machines in several racks are bought", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Scattered, 7, "rack")}, n: 7, level: "rack", want: "it was Scattered"},
		{name: "more machines are scattered, too", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Scattered, 7, "rack")}, n: 8, level: "rack", want: "it was Scattered"},
		{name: "fewer may have room", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Scattered, 7, "rack")}, n: 6, level: "rack"},
		{name: "others need no rack", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Scattered, 7, "rack")}, n: 7},
		{name: "nodes that do not join do not, however few", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Timeout, 8, "")}, n: 1, want: "it was Timeout"},
		{name: "a success ends it", past: []v1alpha1.LaunchAttempt{failed(v1alpha1.Scattered, 7, "rack"),
			{Time: metav1.NewTime(noon.Add(10 * minute)), Token: "b", Requested: 7, Got: 7, Level: "rack"}}, n: 7, level: "rack"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var status v1alpha1.NodeGroupStatus
			for _, a := range tc.past {
				status = Learn(status, a)
			}
			g := GroupFrom(&v1alpha1.NodeGroup{}, status, 0)
			got := g.LastInVain(tc.n, tc.level)
			if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
