package app

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// store stores a lease.
type store struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	holders []string
}

// lock is the lease in the view of one candidate. As with a real one, an update is of the version that was last read.
type lock struct {
	*store
	name    string
	version int
	// asleep, while the candidate is frozen, is closed when it wakes up.
	asleep atomic.Pointer[chan struct{}]
}

var errConflict = errors.New("it has been changed meanwhile")

func (l *lock) Identity() string   { return l.name }
func (l *lock) Describe() string   { return "the lease" }
func (l *lock) RecordEvent(string) {}

// enter blocks the call of a frozen candidate.
func (l *lock) enter(ctx context.Context) (leave func(), err error) {
	if asleep := l.asleep.Load(); asleep != nil {
		<-*asleep
	}
	l.mu.Lock()
	return l.mu.Unlock, ctx.Err()
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	leave, err := l.enter(ctx)
	defer leave()
	if err != nil {
		return nil, nil, err
	}
	l.version = l.store.version
	raw, err := json.Marshal(l.record)
	return l.record, raw, err
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	leave, err := l.enter(ctx)
	defer leave()
	switch {
	case err != nil:
		return err
	case l.version != l.store.version:
		return errConflict
	}
	l.store.version++
	l.version, l.record = l.store.version, &r
	if n := len(l.holders); n == 0 || l.holders[n-1] != r.HolderIdentity {
		l.holders = append(l.holders, r.HolderIdentity)
	}
	return nil
}

const leaseTime = 15 * time.Second

// candidate runs for the leadership until ctx is done or it has lost it.
func candidate(ctx context.Context, t *testing.T, s *store, name string) (*lock, *leader, <-chan struct{}) {
	t.Helper()
	l := &lock{store: s, name: name}
	lead := &leader{Interface: l, clock: clock.RealClock{}, lasts: renewDeadline(leaseTime)}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lead, LeaseDuration: leaseTime, RenewDeadline: renewDeadline(leaseTime), RetryPeriod: retryPeriod(leaseTime), ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(ctx)
	}()
	return l, lead, over
}

// TestAFrozenLeaderNeitherActsNorGivesUpWhatIsAnothers runs the election of client-go
// over a lease in memory: the leader freezes in the middle of a renewal, which is
// where it does the most harm when it wakes up.
func TestAFrozenLeaderNeitherActsNorGivesUpWhatIsAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &store{record: &resourcelock.LeaderElectionRecord{}}
		first, old, firstOver := candidate(ctx, t, s, "first")
		<-time.After(time.Second)
		_, next, secondOver := candidate(ctx, t, s, "second")
		<-time.After(time.Minute)
		if err := old.mayAct(); err != nil {
			t.Fatalf("the leader may not act: %v", err)
		}
		if err := next.mayAct(); !errors.Is(err, errNoLeader) {
			t.Errorf("the one that waits may act: %v", err)
		}
		wake := make(chan struct{})
		first.asleep.Store(&wake)
		for asleep := time.Duration(0); asleep < 3*leaseTime; asleep += time.Second {
			<-time.After(time.Second)
			if old.mayAct() == nil && next.mayAct() == nil {
				t.Errorf("both may act, %s after the first fell asleep", asleep)
			}
		}
		if err := next.mayAct(); err != nil {
			t.Errorf("nobody leads though the first has been silent for %s: %v", 3*leaseTime, err)
		}
		close(wake)
		<-firstOver
		if err := old.mayAct(); !errors.Is(err, errNoLeader) {
			t.Errorf("the first may act though the second leads: %v", err)
		}
		<-time.After(time.Minute)
		if err := next.mayAct(); err != nil {
			t.Errorf("the second does not lead any more: %v", err)
		}
		cancel()
		<-secondOver
		if diff := cmp.Diff([]string{"first", "second", ""}, s.holders); diff != "" {
			t.Errorf("the holders of the lease in order (-want +got):\n%s", diff)
		}
	})
}

func TestOnlyALeaderWrites(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ours, others := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{HolderIdentity: "other"}
	for name, tc := range map[string]struct {
		method string
		before func(context.Context, *leader, *lock)
		passes time.Duration
		want   error
	}{
		"a write before the first lease":  {method: http.MethodPost, before: func(context.Context, *leader, *lock) {}, want: errNoLeader},
		"a read before the first lease":   {method: http.MethodGet, before: func(context.Context, *leader, *lock) {}},
		"a write by the leader":           {method: http.MethodPatch, passes: 10 * time.Second},
		"a write when renewal is overdue": {method: http.MethodPatch, passes: 10*time.Second + 1, want: errNoLeader},
		"a read when renewal is overdue":  {method: http.MethodGet, passes: time.Hour},
		"a write after a late renewal": {method: http.MethodDelete, before: func(ctx context.Context, te *leader, l *lock) {
			_ = te.Create(ctx, ours)
			te.clock.(*clocktesting.FakePassiveClock).SetTime(start.Add(time.Hour))
			_ = te.Update(ctx, ours)
		}, passes: time.Hour + time.Second},
		"a write after a renewal that failed": {method: http.MethodDelete, before: func(ctx context.Context, te *leader, l *lock) {
			_ = te.Create(ctx, ours)
			l.store.version++
			te.clock.(*clocktesting.FakePassiveClock).SetTime(start.Add(9 * time.Second))
			_ = te.Update(ctx, ours)
		}, passes: 11 * time.Second, want: errNoLeader},
		"a write after the lease was given up": {method: http.MethodPut, before: func(ctx context.Context, te *leader, l *lock) {
			_ = te.Create(ctx, ours)
			_ = te.Update(ctx, resourcelock.LeaderElectionRecord{})
		}, want: errNoLeader},
		"a write after another's lease was read": {method: http.MethodPut, before: func(ctx context.Context, te *leader, l *lock) {
			l.record = &others
			_, _, _ = te.Get(ctx)
		}, want: errNoLeader},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lock{store: &store{}, name: "me"}
			clock := clocktesting.NewFakePassiveClock(start)
			te := &leader{Interface: l, clock: clock, lasts: 10 * time.Second}
			if tc.before == nil {
				tc.before = func(ctx context.Context, te *leader, _ *lock) { _ = te.Create(ctx, ours) }
			}
			tc.before(t.Context(), te, l)
			clock.SetTime(start.Add(tc.passes))
			sent := false
			transport := te.guard(roundTripper(func(*http.Request) (*http.Response, error) {
				sent = true
				return &http.Response{Body: http.NoBody}, nil
			}))
			request, err := http.NewRequestWithContext(t.Context(), tc.method, "http://127.0.0.1/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := transport.RoundTrip(request)
			if err == nil {
				answer.Body.Close()
			}
			if !errors.Is(err, tc.want) || sent != (tc.want == nil) {
				t.Errorf("error %v, sent %t; want %v", err, sent, tc.want)
			}
		})
	}
}

func TestOnlyTheHolderReleasesItsLease(t *testing.T) {
	l := &lock{store: &store{record: &resourcelock.LeaderElectionRecord{HolderIdentity: "other"}}, name: "me"}
	te := &leader{Interface: l, clock: clock.RealClock{}, lasts: time.Minute}
	if _, _, err := te.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := te.Update(t.Context(), resourcelock.LeaderElectionRecord{}); !errors.Is(err, errNotOurs) || l.record.HolderIdentity != "other" {
		t.Errorf("error %v, the lease is held by %q", err, l.record.HolderIdentity)
	}
}

// socket records what is sent.
type socket struct {
	net.Conn
	sent   string
	closed bool
}

func (s *socket) Write(b []byte) (int, error) {
	s.sent += string(b)
	return len(b), nil
}

func (s *socket) Close() error {
	s.closed = true
	return nil
}

func TestALapsedLeaderSendsNothingMore(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		led        bool
		passes     time.Duration
		wantLapsed bool
	}{
		"one that waits, for its snapshot of the cluster": {passes: time.Hour},
		"the leader":          {led: true, passes: 10 * time.Second},
		"a leader that slept": {led: true, passes: 10*time.Second + 1, wantLapsed: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(start)
			te := &leader{Interface: &lock{store: &store{}, name: "me"}, clock: clock, lasts: 10 * time.Second}
			if tc.led {
				if err := te.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
					t.Fatal(err)
				}
			}
			clock.SetTime(start.Add(tc.passes))
			s := &socket{}
			_, err := (&wire{s, te}).Write([]byte("launch"))
			if lapsed := errors.Is(err, errNoLeader); lapsed != tc.wantLapsed || s.closed != lapsed || (s.sent == "") != lapsed {
				t.Errorf("error %v, sent %q, closed %t; want it to be lapsed: %t", err, s.sent, s.closed, tc.wantLapsed)
			}
		})
	}
}
