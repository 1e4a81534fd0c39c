package loop

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/standing"
)

// TestStandingsArePublished on LocalQueues, with the own Workloads alone, and written again only when they have changed.
func TestStandingsArePublished(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"), hourly("c"))...)
	published := func() (*kueue.LocalQueue, *standing.Standing) {
		t.Helper()
		list := &kueue.LocalQueueList{}
		if err := w.api.List(t.Context(), list); err != nil || len(list.Items) != 1 {
			t.Fatal(len(list.Items), err)
		}
		return &list.Items[0], standing.Of(&list.Items[0])
	}
	w.run(3 * time.Minute)
	lq, s := published()
	if s == nil || s.Pending != 2 || s.Places["b"].Position != 1 || s.Places["c"].Position != 2 || len(s.Places) != 2 {
		t.Fatalf("while a runs %s has %+v", client.ObjectKeyFromObject(lq), s)
	}
	if got, want := s.Places["b"].Start, start.Add(time.Hour).UTC().Truncate(time.Minute); !got.Equal(want) {
		t.Errorf("b is to start at %s, want %s", got, want)
	}
	if f := s.Flavors; len(f) != 1 || !f[0].Free.Cpu().IsZero() || f[0].Nominal.Cpu().Value() != 1 {
		t.Errorf("the flavors are %+v", f)
	}
	if strings.Contains(lq.Annotations[standing.Annotation], `"a"`) {
		t.Errorf("a Workload that runs has a place: %s", lq.Annotations[standing.Annotation])
	}
	w.run(10 * time.Minute)
	if again, _ := published(); again.ResourceVersion != lq.ResourceVersion {
		t.Errorf("it was written again though nothing has changed:\n%s\n%s", lq.Annotations[standing.Annotation],
			again.Annotations[standing.Annotation])
	}
}
