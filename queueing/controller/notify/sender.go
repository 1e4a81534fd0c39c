// Package notify sends Notifications about jobs and budgets to the webhooks of namespaces and of the cluster.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/notify"
)

const (
	// deadline is how long after the change a Notification is sent at the latest.
	deadline = 10 * time.Minute
	// firstRetry is the pause after the first attempt that failed, which doubles up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// mostWaiting Notifications wait for all receivers, and mostOfOne for the receiver of one namespace: some 10 MB.
	mostWaiting = 10_000
	mostOfOne   = 1_000
	// A Secret is read again after keep, and after keepNone where there is none or Muster may not read it.
	keep     = time.Minute
	keepNone = 5 * time.Minute
)

// Sender sends each Notification to the receiver of its namespace and to that of the cluster. The receivers do not delay each other; each
// gets its Notifications in their order, one at a time.
type Sender struct {
	// Live reads past any cache: Muster may get the Secret, and not list Secrets.
	Live client.Reader
	// Namespace of Muster, whose Secret has the receiver of the cluster.
	Namespace string
	// AllowedHosts are the hosts with ports that receivers may be at.
	AllowedHosts []string
	// Source is the URI of the cluster.
	Source string
	Events events.EventRecorder
	// Dial connects to receivers.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// lanes are the Notifications that wait, by the namespace of the Secret with their receiver. Each is emptied by a goroutine.
	lanes   map[string][]item
	waiting int
	known   map[string]known
	client  *http.Client
}

// item is a Notification that has to be sent until a time.
type item struct {
	notification notify.Notification
	until        time.Time
}

// known is what a Secret says; the receiver is nil if there is none.
type known struct {
	secret   *corev1.Secret
	receiver *receiver
	until    time.Time
}

// open makes the Sender ready to send.
func (s *Sender) open() {
	s.lanes, s.known, s.client = map[string][]item{}, map[string]known{}, newClient(s.Dial)
}

// close ends idle connections.
func (s *Sender) close() { s.client.CloseIdleConnections() }

// send queues Notifications for their receivers. It does not block.
func (s *Sender) send(ctx context.Context, all []notify.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range all {
		s.queue(ctx, s.Namespace, n)
		if namespace := n.Namespace(); namespace != "" && namespace != s.Namespace {
			s.queue(ctx, namespace, n)
		}
	}
}

func (s *Sender) queue(ctx context.Context, namespace string, n notify.Notification) {
	lane, running := s.lanes[namespace]
	if s.waiting >= mostWaiting || len(lane) >= mostOfOne {
		dropped.WithLabelValues(dropFull).Inc()
		return
	}
	s.lanes[namespace] = append(lane, item{n, time.Now().Add(deadline)})
	s.waiting++
	if !running {
		go s.empty(ctx, namespace)
	}
}

// empty sends what waits for a receiver until nothing does.
func (s *Sender) empty(ctx context.Context, namespace string) {
	for ctx.Err() == nil {
		s.mu.Lock()
		lane := s.lanes[namespace]
		if len(lane) == 0 {
			delete(s.lanes, namespace)
			s.mu.Unlock()
			return
		}
		next := lane[0]
		s.mu.Unlock()
		s.deliver(ctx, namespace, &next)
		s.mu.Lock()
		s.lanes[namespace] = s.lanes[namespace][1:]
		s.waiting--
		s.mu.Unlock()
	}
}

// deliver sends one Notification until it is taken, refused or too old.
func (s *Sender) deliver(ctx context.Context, namespace string, i *item) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		to, err := s.receiverIn(ctx, namespace)
		var after time.Duration
		if err == nil && to.receiver == nil {
			return
		}
		if err == nil {
			if after, err = to.receiver.send(ctx, s.client, &i.notification, s.Source); err == nil {
				sent.Inc()
				return
			}
		}
		wait, reason := max(pause, after), ""
		switch final := refusal(""); {
		case errors.As(err, &final):
			reason = dropRefused
		case time.Now().Add(wait).After(i.until):
			reason = dropLate
		}
		if reason != "" {
			dropped.WithLabelValues(reason).Inc()
			s.report(to.secret, fmt.Sprintf("A notification was dropped. The receiver: %v", err))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// receiverIn reads the Secret of a namespace, unless it was read a short time ago.
func (s *Sender) receiverIn(ctx context.Context, namespace string) (known, error) {
	s.mu.Lock()
	was, ok := s.known[namespace]
	s.mu.Unlock()
	now := time.Now()
	if ok && now.Before(was.until) {
		return was, nil
	}
	is := known{secret: &corev1.Secret{}, until: now.Add(keep)}
	switch err := s.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: Secret}, is.secret); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		is = known{until: now.Add(keepNone)}
	case err != nil:
		return known{}, fmt.Errorf("reading Secret %s/%s: %w", namespace, Secret, err)
	default:
		if is.receiver, err = receiverOf(is.secret, s.AllowedHosts); err != nil {
			misconfigured.Inc()
			s.report(is.secret, fmt.Sprintf("No notifications are sent: %v", err))
		}
		is.secret.Data = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[namespace] = is
	return is, nil
}

// forget drops what was read of Secrets longer ago than it is kept.
func (s *Sender) forget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, k := range s.known {
		if !now.Before(k.until) {
			delete(s.known, namespace)
		}
	}
}

// report records an Event on the Secret, whose owner can fix it.
func (s *Sender) report(secret *corev1.Secret, note string) {
	if secret != nil {
		s.Events.Eventf(secret, nil, corev1.EventTypeWarning, "NotificationFailed", "Notify", "%s", text.Clip(note, text.NoteLimit))
	}
}
