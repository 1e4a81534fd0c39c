package writes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestEventsUnderLoad: the thousandth admission of a moment has no Event, only its conditions. A warning always has one.
func TestEventsUnderLoad(t *testing.T) {
	now, recorder := time.Unix(0, 0), events.NewFakeRecorder(2000)
	w := NewWriter(nil, nil)
	w.Recorder, w.Now = recorder, func() time.Time { return now }
	object := &kueue.Workload{}
	for range 1000 {
		w.Event(object, corev1.EventTypeNormal, "Admitted", "it may run")
	}
	w.Event(object, corev1.EventTypeWarning, "FailedCreate", "it may not")
	if got := len(recorder.Events); got != eventsAtOnce+1 {
		t.Errorf("%d Events, want %d and the warning", got, eventsAtOnce)
	}
	now = now.Add(2 * time.Second)
	for range 1000 {
		w.Event(object, corev1.EventTypeNormal, "Admitted", "it may run")
	}
	if got, want := len(recorder.Events), eventsAtOnce+1+2*eventsPerSecond; got != want {
		t.Errorf("%d Events two seconds later, want %d", got, want)
	}
}
