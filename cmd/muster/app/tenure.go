package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-dev/muster/deploy"
)

// Of the time of the lease, a leader that cannot renew it goes on for the first two
// thirds; the last third is for what it has sent before. It renews every 2/15.
// Kubernetes' own components share their 15 s in this way.
func renewDeadline(lease time.Duration) time.Duration { return lease * 2 / 3 }
func retryPeriod(lease time.Duration) time.Duration   { return lease * 2 / 15 }

// leaseName is the name of the lease in Muster's namespace.
const leaseName = "muster"

var (
	// errNoLeader keeps a process from acting that does not lead.
	errNoLeader = errors.New("this process does not hold the lease, so another may lead by now")
	// errNotOurs keeps a process from giving up the lease of another.
	errNotOurs = errors.New("the lease is another's")
)

// tenure is the lease by which this process leads, and the time for which it may act
// on it.
//
// A process that was frozen for longer than its lease does not know when it goes on,
// and before it is told it would send what it was about to send: a write without
// a resourceVersion, or a call to a cloud, that the next leader has undone already.
// So each write looks at the clocks in the moment in which it goes out.
type tenure struct {
	resourcelock.Interface
	clock clock.PassiveClock
	// lasts is how long it may act after each renewal.
	lasts time.Duration

	mu sync.Mutex
	// renewed is when the last renewal that succeeded began; zero while this process
	// does not lead.
	renewed time.Time
	// holder is whom the lease named when it was last read or written.
	holder string
}

// newTenure is not begun. Its own requests are not held back.
func newTenure(config *rest.Config, lease time.Duration) (*tenure, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding a name to lead by: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, deploy.Namespace, leaseName, identity, config, renewDeadline(lease))
	if err != nil {
		return nil, fmt.Errorf("the lease %s/%s: %w", deploy.Namespace, leaseName, err)
	}
	return &tenure{Interface: lock, clock: clock.RealClock{}, lasts: renewDeadline(lease)}, nil
}

// lead has the manager lead by the tenure.
func (t *tenure) lead(o *ctrl.Options, lease time.Duration) {
	renew, retry := renewDeadline(lease), retryPeriod(lease)
	o.LeaderElection, o.LeaderElectionResourceLockInterface = true, t
	o.LeaderElectionID = leaseName // the name in its metric
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	o.LeaderElectionReleaseOnCancel = true
}

// Get implements resourcelock.Interface.
func (t *tenure) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.Interface.Get(ctx)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (t *tenure) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, record, t.Interface.Create)
}

// Update implements resourcelock.Interface. Who has lost the lease in his sleep gives
// it up as if it were still his own: that would let a third one lead beside the
// second.
func (t *tenure) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		t.mu.Lock()
		holder := t.holder
		t.renewed = time.Time{}
		t.mu.Unlock()
		if holder != t.Identity() {
			return fmt.Errorf("giving up %s, which %s holds: %w", t.Describe(), holder, errNotOurs)
		}
	}
	return t.write(ctx, record, t.Interface.Update)
}

func (t *tenure) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := t.clock.Now()
	if err := write(ctx, record); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder = record.HolderIdentity
	if t.holder == t.Identity() {
		t.renewed = began
	}
	return nil
}

// mayAct says that no other can lead now. Not each of the clocks goes on while a
// machine sleeps, so both are asked: a wall clock that is set forward by itself
// holds writes back until the next renewal.
func (t *tenure) mayAct() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.renewed.IsZero() || t.isOver() {
		return errNoLeader
	}
	return nil
}

// lapsed says that this process leads as far as it knows, and another may lead now.
func (t *tenure) lapsed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.renewed.IsZero() && t.isOver()
}

func (t *tenure) isOver() bool {
	now := t.clock.Now()
	monotonic, wall := now.Sub(t.renewed), now.Round(0).Sub(t.renewed.Round(0))
	return max(monotonic, wall) > t.lasts
}

// guard wraps a transport so that it sends nothing but reads while mayAct refuses.
func (t *tenure) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			if err := t.mayAct(); err != nil {
				if r.Body != nil {
					_ = r.Body.Close() // as every RoundTripper has to
				}
				return nil, err
			}
		}
		return next.RoundTrip(r)
	})
}

// dial opens connections that a lapsed leader sends nothing more over: a request that
// has passed the guard waits for its turn there, for milliseconds on a busy machine.
func (t *tenure) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go's own
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{conn, t}, nil
}

// wire is a connection of the tenure.
type wire struct {
	net.Conn
	tenure *tenure
}

// Write implements net.Conn. All that is under way over the connection ends with it.
func (w *wire) Write(b []byte) (int, error) {
	if w.tenure.lapsed() {
		_ = w.Close() // there is nothing more to say
		return 0, errNoLeader
	}
	return w.Conn.Write(b)
}
