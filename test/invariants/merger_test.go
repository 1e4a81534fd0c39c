package invariants

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/invariants/promises"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// desk is a merger whose streams all have a connection.
func desk() *merger {
	m := newMerger(promises.New(promises.DefaultConfig()), 300*time.Millisecond, 15*time.Second)
	m.release(start, 0)
	return m
}

func group(name string, revision uint64, d time.Duration) message {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-group"}}
	return message{kind: promises.NodeGroups, events: []promises.Event{{Object: g, Revision: revision, Time: at(d)}}}
}

// stray is a machine of no request: a promise is broken as soon as it is seen.
func stray(revision uint64, d time.Duration) message {
	m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "stray", UID: "uid-of-stray"}}
	return message{kind: promises.Machines, events: []promises.Event{{Object: m, Revision: revision, Time: at(d)}}}
}

func (m *merger) seen() int {
	n := 0
	for _, count := range m.checker.Stats().Events {
		n += count
	}
	return n
}

func TestEventsAreReleasedInOrder(t *testing.T) {
	m := desk()
	m.take(group("second", 12, 0))
	m.take(group("third", 13, 100*time.Millisecond))
	m.take(stray(11, 250*time.Millisecond))
	m.release(at(200*time.Millisecond), 0)
	if n := m.seen(); n != 0 {
		t.Errorf("%d events were released before their time", n)
	}
	m.release(at(350*time.Millisecond), 0)
	if n := m.seen(); n != 2 {
		t.Errorf("%d events were released, want the ripe one and the one written before it", n)
	}
	m.release(at(450*time.Millisecond), 0)
	if n, late := m.seen(), m.checker.Stats().Late; n != 3 || late != 0 {
		t.Errorf("%d events were released, %d of them late", n, late)
	}
}

func TestNothingIsReleasedWhileAStreamIsBlind(t *testing.T) {
	m := desk()
	m.take(stray(11, 0))
	m.take(message{kind: promises.ProvisioningRequests, lost: true, time: at(100 * time.Millisecond)})
	m.release(at(10*time.Second), 0)
	if n := m.seen(); n != 0 {
		t.Errorf("%d events were released although some may be missing before them", n)
	}
	m.take(message{kind: promises.ProvisioningRequests, gap: &gap{5, 20}, time: at(10 * time.Second)})
	m.take(message{kind: promises.ProvisioningRequests, back: true, time: at(10 * time.Second)})
	m.release(at(10*time.Second), 0)
	m.finish(at(20 * time.Second))
	stats := m.checker.Stats()
	if n := m.seen(); n != 1 || stats.Unjudged[promises.Launches] != 1 || stats.Gaps[promises.ProvisioningRequests] != 1 {
		t.Errorf("the gap was not allowed for: %s", stats)
	}
	if v := m.checker.Violations(); len(v) > 0 {
		t.Errorf("false alarms: %v", v)
	}
}

func TestEndReleasesAllEvents(t *testing.T) {
	m := desk()
	m.take(stray(11, 0))
	m.finish(at(10 * time.Millisecond))
	if v := m.checker.Violations(); len(v) != 1 {
		t.Errorf("violations: %v, want one", v)
	}
}
