package cloudsim

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var spot = PoolKey{Cloud: v1alpha1.ProviderAWS, Type: "p5.48xlarge", Zone: "us-east-1a", CapacityType: v1alpha1.Spot}

func onDemand() PoolKey { k := spot; k.CapacityType = v1alpha1.OnDemand; return k }

func d(s string) metav1.Duration {
	out, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return metav1.Duration{Duration: out}
}

func pd(s string) *metav1.Duration { out := d(s); return &out }

// story is a world with the steps of a test.
type story struct {
	*testing.T
	*World
	clock *testingclock.FakeClock
}

func tell(t *testing.T, c Config) story {
	t.Helper()
	clock := testingclock.NewFakeClock(noon)
	w, err := New(c, clock)
	if err != nil {
		t.Fatal(err)
	}
	return story{t, w, clock}
}

// launch launches and returns how many came and the code of the refusal.
func (s story) launch(k PoolKey, count, least int, reservation string) (ids []string, code string) {
	s.Helper()
	came, refusal := s.Launch(Order{Pool: k, Count: count, Min: least, Reservation: reservation,
		ID: func(n int64) string { return fmt.Sprintf("i-%d", n) }})
	for _, in := range came {
		ids = append(ids, in.ID)
	}
	if refusal != nil {
		code = refusal.Code
	}
	return ids, code
}

func (s story) want(what string, got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (s story) phases() (out []Phase) {
	for _, in := range s.Instances(true) {
		out = append(out, in.Phase)
	}
	return out
}

func holding(n int32, faults ...v1alpha1.KwokFault) Pool {
	return Pool{PoolKey: spot, Script: v1alpha1.KwokPool{Holds: &n, BootDelay: d("1m"), Faults: faults}}
}

func TestAPoolGivesWhatItHas(t *testing.T) {
	s := tell(t, Config{Pools: []Pool{holding(3)}})
	ids, code := s.launch(spot, 4, 4, "")
	s.want("four at least", ids, []string(nil))
	s.want("refusal", code, "InsufficientCapacity")
	ids, code = s.launch(spot, 4, 1, "")
	s.want("four at most", len(ids), 3)
	s.want("refusal beside them", code, "InsufficientCapacity")
	if !s.Terminate(ids[1]) || s.Terminate("i-never") {
		t.Error("only what is there can be terminated")
	}
	again, _ := s.launch(spot, 1, 1, "")
	s.want("the place that is free again", again, []string{"i-4"})
	_, code = s.launch(onDemand(), 1, 1, "")
	s.want("there is no such pool", code, "InsufficientCapacity")
}

func TestInstancesLiveAndEndByTheClock(t *testing.T) {
	first, second := []int64{0}, []int64{1}
	s := tell(t, Config{Pools: []Pool{holding(9,
		v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, Machines: first, After: pd("30s")},
		v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, Machines: second, After: pd("10m")})}})
	s.launch(spot, 3, 3, "")
	s.want("at first", s.phases(), []Phase{Pending, Pending, Pending})
	_, next := s.Changed()
	s.want("the next turn is the first death", next, noon.Add(30*time.Second))
	s.clock.Step(time.Minute)
	s.want("after the boot", s.phases(), []Phase{Terminated, Running, Running})
	s.clock.Step(10 * time.Minute)
	s.want("after the reclaim", s.phases(), []Phase{Terminated, Terminated, Running})
	all := s.Instances(true)
	s.want("reasons", []string{all[0].Reason, all[1].Reason}, []string{ReasonBootFailed, ReasonReclaimed})
	s.want("the reclaim was on time", all[1].TerminatedAt, noon.Add(11*time.Minute))
	if _, next := s.Changed(); !next.IsZero() {
		t.Errorf("the next turn is at %s, want never", next)
	}
}

func TestTagsLag(t *testing.T) {
	s := tell(t, Config{Pools: []Pool{holding(9)}, Lag: d("1s"), TagLag: d("3s")})
	in, refused := s.Launch(Order{Pool: holding(9).PoolKey, Count: 1, Min: 1, IDs: []string{"m"}, Tags: map[string]string{"born": "yes"}})
	if refused != nil {
		t.Fatal(refused)
	}
	for _, step := range []struct {
		after time.Duration
		tag   map[string]string
		want  map[string]string
	}{
		{time.Second, map[string]string{"late": "yes"}, map[string]string{}},
		{2 * time.Second, nil, map[string]string{"born": "yes"}},
		{time.Second, nil, map[string]string{"born": "yes", "late": "yes"}},
	} {
		s.clock.Step(step.after)
		if step.tag != nil {
			s.Tag(in[0].ID, step.tag)
		}
		list := s.Instances(false)
		if len(list) != 1 {
			t.Fatalf("%d instances are listed, want one", len(list))
		}
		if diff := cmp.Diff(step.want, list[0].Tags); diff != "" {
			t.Errorf("%s later: tags (-want +got):\n%s", step.after, diff)
		}
	}
	if all := s.Instances(true); len(all[0].Tags) != 2 {
		t.Errorf("the instance has the tags %v, want both", all[0].Tags)
	}
}

func TestListsLag(t *testing.T) {
	s := tell(t, Config{Pools: []Pool{holding(9)}, Lag: d("2s")})
	s.launch(spot, 2, 2, "")
	s.want("at once", len(s.Instances(false)), 0)
	s.clock.Step(2 * time.Second)
	s.want("a moment later", len(s.Instances(false)), 2)
}

// A reservation takes places of the pool, keeps them through a drought, and gives the
// unused ones back at its end.
func TestReservationsHoldTheirPlaces(t *testing.T) {
	s := tell(t, Config{Pools: []Pool{holding(4, v1alpha1.KwokFault{Type: v1alpha1.FaultDry, From: pd("1m")})}})
	if _, refusal := s.Reserve("cr-1", Order{Pool: spot, Count: 5}, time.Time{}); refusal == nil {
		t.Error("more was reserved than there is")
	}
	if _, refusal := s.Reserve("cr-1", Order{Pool: spot, Count: 3}, noon.Add(time.Hour)); refusal != nil {
		t.Fatal(refusal)
	}
	ids, _ := s.launch(spot, 2, 1, "")
	s.want("beside it there is one place", len(ids), 1)
	s.clock.Step(time.Minute)
	_, code := s.launch(spot, 1, 1, "")
	s.want("then the pool is dry", code, "InsufficientCapacity")
	ids, code = s.launch(spot, 2, 2, "cr-1")
	s.want("but not for the reservation", len(ids), 2)
	s.want("without refusal", code, "")
	_, code = s.launch(spot, 2, 2, "cr-1")
	s.want("which has one place left", code, CodeReservationFull)
	s.clock.Step(time.Hour)
	s.want("it ends by itself", s.Reservations()[0].EndedAt, noon.Add(time.Hour))
	s.want("what filled it goes on", s.phases(), []Phase{Running, Running, Running})
}

// racks is a pool of two racks that deals its machines to one after the other.
func racks() Pool {
	p := holding(9)
	p.Script.Domains = &v1alpha1.KwokDomains{
		NodeLabel: "rack", Placement: v1alpha1.PlacedScattered, Of: []v1alpha1.KwokDomain{{Name: "a", Machines: 3}, {Name: "b", Machines: 5}},
	}
	return p
}

// in counts the live machines by their racks.
func (s story) in() map[string]int {
	out := map[string]int{}
	for _, in := range s.Instances(true) {
		if in.Phase != Terminated {
			out[in.Domain()]++
		}
	}
	return out
}

func (s story) together(name string, count int) (code string) {
	_, refusal := s.Launch(Order{Pool: spot, Count: count, Min: count, Together: name,
		ID: func(n int64) string { return fmt.Sprintf("i-%d", n) }})
	if refusal != nil {
		return refusal.Code
	}
	return ""
}

// What an order says is together is in one domain, though the pool deals otherwise.
func TestWhatIsTogetherSharesADomain(t *testing.T) {
	s := tell(t, Config{Pools: []Pool{racks()}})
	s.want("the first that has room", s.together("gang", 4), "")
	s.want("is the second", s.in(), map[string]int{"b": 4})
	s.want("one more joins them", s.together("gang", 1), "")
	s.want("and then it is full", s.together("gang", 1), "InsufficientCapacity")
	s.want("which another is not", s.together("other", 3), "")
	s.want("in the end", s.in(), map[string]int{"a": 3, "b": 5})
}

// The places of a reservation are somewhere, and the machines that fill them are there.
func TestAReservationIsInDomains(t *testing.T) {
	s := tell(t, Config{Pools: []Pool{racks()}})
	r, refusal := s.Reserve("cr-1", Order{Pool: spot, Count: 2, Together: "gang"}, time.Time{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	s.want("in one", r.Domains, []string{"a", "a"})
	s.want("where there is no room for two more", s.together("gang", 2), "InsufficientCapacity")
	s.launch(spot, 2, 2, "")
	s.want("others get what is left", s.in(), map[string]int{"a": 1, "b": 1})
	_, code := s.launch(spot, 2, 2, "cr-1")
	s.want("the places are kept", code, "")
	s.want("for what fills them", s.in(), map[string]int{"a": 3, "b": 1})
	for _, in := range s.Instances(true) {
		s.Terminate(in.ID)
	}
	_, code = s.launch(spot, 1, 1, "cr-1")
	s.want("they are free again", code, "")
	s.want("in their rack", s.in(), map[string]int{"a": 1})
}

func TestQuotaCoversACapacityTypeOfARegion(t *testing.T) {
	other := holding(9)
	other.Zone = "us-east-1b"
	s := tell(t, Config{
		Pools:  []Pool{holding(9), other, {PoolKey: onDemand()}},
		Quotas: []Quota{{Cloud: v1alpha1.ProviderAWS, Region: "us-east-1", CapacityType: v1alpha1.Spot, Machines: 4}},
	})
	if _, refusal := s.Reserve("cr-1", Order{Pool: spot, Count: 2}, time.Time{}); refusal != nil {
		t.Fatal(refusal)
	}
	ids, _ := s.launch(other.PoolKey, 2, 2, "")
	s.want("as many as it allows", len(ids), 2)
	_, code := s.launch(other.PoolKey, 1, 1, "")
	s.want("and no more", code, "MaxNodesExceeded")
	ids, _ = s.launch(spot, 2, 2, "cr-1")
	s.want("what was reserved counts once", len(ids), 2)
	ids, _ = s.launch(onDemand(), 3, 3, "")
	s.want("another capacity type is free", len(ids), 3)
}

func TestTheBillIsByMachineAndSecond(t *testing.T) {
	p := holding(9)
	p.Prices = []Price{{PerHour: resource.MustParse("10")}, {From: d("30m"), PerHour: resource.MustParse("20")}}
	s := tell(t, Config{Pools: []Pool{p}})
	if _, refusal := s.Reserve("cr-1", Order{Pool: spot, Count: 3, Tags: map[string]string{"team": "ml"}}, time.Time{}); refusal != nil {
		t.Fatal(refusal)
	}
	s.clock.Step(6 * time.Minute)
	ids, _ := s.launch(spot, 2, 2, "cr-1")
	s.clock.Step(6 * time.Minute)
	s.Terminate(ids[0])
	s.clock.Step(48 * time.Minute)
	s.EndReservation("cr-1")
	s.clock.Step(time.Hour)

	got := map[string][2]int64{}
	for _, l := range s.Bill() {
		got[l.ID] = [2]int64{l.MachineMilliseconds / 60000, l.MicroUSD}
	}
	s.want("machine minutes and cost", got, map[string][2]int64{
		// 3 places for 6 minutes, 1 for 6, then 2 for 18 at 10 USD and for 30 at 20.
		"cr-1": {3*6 + 6 + 2*18 + 2*30, 10e6 + 20e6},
		"i-1":  {6, 1e6},
		// 24 minutes at 10 USD, then 90 at 20.
		"i-2": {114, 4e6 + 30e6},
	})
	s.want("what is open", []bool{s.Bill()[0].Open, s.Bill()[2].Open}, []bool{false, true})
}

// front answers every call with its path.
type front struct{ served int }

func (*front) Cloud() v1alpha1.Provider      { return v1alpha1.ProviderAWS }
func (*front) Action(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }
func (*front) Throttled() *Error             { return &Error{Status: 503, Code: "TooFast"} }
func (*front) Refuse(w http.ResponseWriter, _ *http.Request, e *Error) {
	http.Error(w, e.Code, e.Status)
}
func (f *front) ServeHTTP(http.ResponseWriter, *http.Request) { f.served++ }

func TestCallsGoWrongAsScripted(t *testing.T) {
	s := tell(t, Config{
		Calls: []CallFault{
			{Cloud: v1alpha1.ProviderAWS, Action: "Launch", Type: CallRefused, Calls: []int64{1}, Error: &Error{Status: 400, Code: "NotNow"}},
			{Cloud: v1alpha1.ProviderAWS, Action: "Launch", Type: ReplyLost, Calls: []int64{2}},
			{Cloud: v1alpha1.ProviderAWS, Action: "Launch", Type: CallLost, Calls: []int64{3}},
			{Cloud: v1alpha1.ProviderAWS, Action: "Later", Type: CallRefused, From: d("1m"), Until: d("2m"), Error: &Error{Status: 400, Code: "NotNow"}},
			{Cloud: v1alpha1.ProviderGCP, Type: CallLost},
		},
		Throttles: []Throttle{{Cloud: v1alpha1.ProviderAWS, Action: "List", Burst: 2, PerSecond: 1}},
	})
	f := &front{}
	h := s.Handler(f)
	call := func(action string) (result string) {
		defer func() {
			if r := recover(); r != nil {
				result = fmt.Sprint(r)
			}
		}()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/"+action, nil))
		return strings.TrimSpace(rec.Body.String())
	}
	broken := http.ErrAbortHandler.Error()
	var got []string
	for range 5 {
		got = append(got, call("Launch"))
	}
	s.want("launches", got, []string{"", "NotNow", broken, broken, ""})
	s.want("those that had their effect", f.served, 3)
	s.want("lists", []string{call("List"), call("List"), call("List")}, []string{"", "", "TooFast"})
	s.want("before its time", call("Later"), "")
	s.clock.Step(time.Minute)
	s.want("in its time", call("Later"), "NotNow")
	s.want("a token has come back", call("List"), "")
	s.clock.Step(time.Minute)
	s.want("after its time", call("Later"), "")
	s.want("all are counted", s.Calls(v1alpha1.ProviderAWS), map[string]int64{"Launch": 5, "List": 4, "Later": 3})
}

// TestASlowCallIsSeenBeforeItIsAnswered: others see half-way what it has done, also where its caller has given up by then.
func TestASlowCallIsSeenBeforeItIsAnswered(t *testing.T) {
	for name, patience := range map[string]time.Duration{"answered": time.Hour, "given up": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := CallFault{Cloud: v1alpha1.ProviderAWS, Action: "Launch", Type: CallSlow, Delay: d("1m")}
				w, err := New(Config{Calls: []CallFault{slow}}, clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				f := &front{}
				call := func(ctx context.Context, action string) (code int) {
					defer func() { _ = recover() }() // the connection breaks
					rec := httptest.NewRecorder()
					w.Handler(f).ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+action, nil))
					return rec.Code
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began, answered, code := time.Now(), time.Duration(0), 0
				go func() { code = call(ctx, "Launch"); answered = time.Since(began) }()
				var served []int
				for range 2 {
					<-time.After(20 * time.Second)
					call(t.Context(), "List")
					served = append(served, f.served)
				}
				<-time.After(time.Minute)
				synctest.Wait()
				if want := []int{1, 3}; !slices.Equal(served, want) || f.served != 3 {
					t.Errorf("after 20 and 40 s %v calls had their effect, in the end %d: want %v and 3", served, f.served, want)
				}
				if want := min(patience, time.Minute); answered != want || (code == http.StatusOK) != (patience > time.Minute) {
					t.Errorf("the caller had code %d after %s, want %s", code, answered, want)
				}
			})
		})
	}
}

func TestAShareOfCallsIsDrawnFromTheSeed(t *testing.T) {
	hit := func(seed int64) (out []bool) {
		s := tell(t, Config{Seed: seed, Calls: []CallFault{{Cloud: v1alpha1.ProviderAWS, Type: CallLost, Percent: 30}}})
		for range 1000 {
			fault, _ := s.arrive(callKind{v1alpha1.ProviderAWS, "Any"})
			out = append(out, fault != nil)
		}
		return out
	}
	n := 0
	for _, h := range hit(1) {
		if h {
			n++
		}
	}
	if n < 250 || n > 350 {
		t.Errorf("%d of 1000 calls were hit, want about 300", n)
	}
	if diff := cmp.Diff(hit(1), hit(1)); diff != "" {
		t.Error("the same seed hits other calls")
	}
	if cmp.Equal(hit(1), hit(2)) {
		t.Error("another seed hits the same calls")
	}
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
		want string
	}{
		{"another cloud", Config{Pools: []Pool{{PoolKey: PoolKey{Cloud: "azure"}}}}, `pools[0].cloud is "azure": it must be aws or gcp`},
		{"no type", Config{Pools: []Pool{{PoolKey: PoolKey{Cloud: "aws"}}}}, "pools[0].type is missing"},
		{"no zone", Config{Pools: []Pool{{PoolKey: PoolKey{Cloud: "aws", Type: "p5.48xlarge"}}}}, "pools[0].zone is missing"},
		{"no capacity type", Config{Pools: []Pool{{PoolKey: PoolKey{Cloud: "aws", Type: "p5.48xlarge", Zone: "a"}}}}, `pools[0].capacityType is "": it must be Reserved, Spot or OnDemand`},
		{"a pool twice", Config{Pools: []Pool{holding(1), holding(2)}}, "pools[1] is the pool aws/p5.48xlarge/us-east-1a/spot once more"},
		{"prices out of order", Config{Pools: []Pool{{PoolKey: spot, Prices: []Price{{From: d("1h")}, {From: d("1h")}}}}}, "pools[0].prices[1].from is 1h0m0s"},
		{"a negative price", Config{Pools: []Pool{{PoolKey: spot, Prices: []Price{{PerHour: resource.MustParse("-1")}}}}}, "pools[0].prices[0].perHour is -1"},
		{"an unknown fault", Config{Calls: []CallFault{{Type: "Lost"}}}, `calls[0].type is "Lost": it must be Refused, ReplyLost, CallLost, Unanswered, Late, Slow or OperationFailed`},
		{"a refusal without error", Config{Calls: []CallFault{{Type: CallRefused}}}, "calls[0].error belongs to"},
		{"a slow call without delay", Config{Calls: []CallFault{{Type: CallSlow}}}, "calls[0].delay belongs to"},
		{"more than all", Config{Calls: []CallFault{{Type: CallLost, Percent: 101}}}, "calls[0].percent is 101"},
		{"a bucket without a bottom", Config{Throttles: []Throttle{{}}}, "throttles[0]: burst is 0 and perSecond 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := New(tc.c, testingclock.NewFakeClock(noon)); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}
