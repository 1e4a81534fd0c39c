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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A leader that cannot renew its lease keeps acting for the first two thirds of the lease
// duration; the last third is for requests that it has already sent. It renews every 2/15.
// Kubernetes' own components divide their 15 s in this way.
func renewDeadline(lease time.Duration) time.Duration { return lease * 2 / 3 }
func retryPeriod(lease time.Duration) time.Duration   { return lease * 2 / 15 }

// leaseName is the name of the manager's lease in Muster's namespace.
const leaseName = "muster"

var (
	// errNoLeader is returned to a process that wants to act and does not lead.
	errNoLeader = errors.New("this process does not hold the lease, so another may lead by now")
	// errNotOurs is returned to a process that wants to release the lease of another.
	errNotOurs = errors.New("the lease belongs to another process")
	// errNotRead is until the lease is read for the first time.
	errNotRead = errors.New("it has not been read yet")
)

// leader is the lease by which this process leads, with a fence: the time until which it may
// act on it.
//
// A process that was frozen for longer than its lease does not notice when it resumes, and
// would still send what it was about to send: a write without a resourceVersion, or a call
// to a cloud, that the next leader has already undone. So each write checks the clocks in
// the moment in which it is sent.
type leader struct {
	resourcelock.Interface
	// name of the lease.
	name  string
	clock clock.PassiveClock
	// lasts is how long the process may act after each renewal.
	lasts time.Duration

	mu sync.Mutex
	// renewed is when the last renewal that succeeded began; zero while this process
	// does not lead.
	renewed time.Time
	// holder is the holder of the lease when it was last read or written.
	holder string
	// failed is why the last read or write of the lease failed; nil if it did not.
	failed error
}

// newLeader returns a leader that does not lead yet. Its own requests are not fenced.
func newLeader(config *rest.Config, namespace, name string, lease time.Duration) (*leader, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding an identity for leader election: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name, identity, config,
		renewDeadline(lease))
	if err != nil {
		return nil, fmt.Errorf("the lease %s/%s: %w", namespace, name, err)
	}
	return &leader{Interface: lock, name: name, clock: clock.RealClock{}, lasts: renewDeadline(lease), failed: errNotRead}, nil
}

// lead makes the manager elect its leader by l.
func (l *leader) lead(o *ctrl.Options, lease time.Duration) {
	renew, retry := renewDeadline(lease), retryPeriod(lease)
	o.LeaderElection, o.LeaderElectionResourceLockInterface = true, l
	o.LeaderElectionID = l.name // its name in the metric
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	o.LeaderElectionReleaseOnCancel = true
}

// Get implements resourcelock.Interface.
func (l *leader) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.holder = record.HolderIdentity
	}
	if l.failed = err; apierrors.IsNotFound(err) {
		l.failed = nil // it is created next
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *leader) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface. It refuses to release a lease that was lost
// meanwhile: that would let a third process lead beside the second.
func (l *leader) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		l.mu.Lock()
		holder := l.holder
		l.renewed = time.Time{}
		l.mu.Unlock()
		if holder != l.Identity() {
			return fmt.Errorf("releasing %s, which %s holds: %w", l.Describe(), holder, errNotOurs)
		}
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *leader) write(ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := l.clock.Now()
	err := write(ctx, record)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed = err; apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		l.failed = nil // another process was faster
	}
	if err != nil {
		return err
	}
	l.holder = record.HolderIdentity
	if l.holder == l.Identity() {
		l.renewed = began
	}
	return nil
}

// mayAct returns an error if another process may lead by now. Only one of the two clocks may
// advance while a machine sleeps, so both are checked. A wall clock that is set forward
// fences writes until the next renewal.
func (l *leader) mayAct() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() || l.isOver() {
		return errNoLeader
	}
	return nil
}

// ready is a healthz.Checker: the process leads, or stands by to lead.
func (l *leader) ready(*http.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failed != nil:
		return fmt.Errorf("%s cannot be read or renewed: %w", l.Describe(), l.failed)
	case !l.renewed.IsZero() && l.isOver():
		return errNoLeader
	}
	return nil
}

// lapsed reports whether this process still considers itself the leader while another may lead by now.
func (l *leader) lapsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.isOver()
}

func (l *leader) isOver() bool {
	now := l.clock.Now()
	monotonic, wall := now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0))
	return max(monotonic, wall) > l.lasts
}

// guard wraps a transport: while mayAct returns an error, it sends only reads.
func (l *leader) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			if err := l.mayAct(); err != nil {
				if r.Body != nil {
					_ = r.Body.Close() // the duty of a RoundTripper
				}
				return nil, err
			}
		}
		return next.RoundTrip(r)
	})
}

// dial opens connections that stop sending when the leader has lapsed: a request that has
// passed the guard may wait for milliseconds on a busy machine.
func (l *leader) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go's own
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{conn, l}, nil
}

// wire is a fenced connection.
type wire struct {
	net.Conn
	leader *leader
}

// Write implements net.Conn. An error closes the connection with all its requests.
func (w *wire) Write(b []byte) (int, error) {
	if w.leader.lapsed() {
		_ = w.Close() // the error below says all
		return 0, errNoLeader
	}
	return w.Conn.Write(b)
}
