package writes

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestTheOrderOfWrites: by urgency, then namespaces take turns; what gives quota keeps its order.
func TestTheOrderOfWrites(t *testing.T) {
	b := NewBacklog()
	var got []string
	add := func(u Urgency, namespace, name string) {
		b.Add(u, namespace, func(context.Context) Done {
			got = append(got, name)
			return func(time.Time) {}
		})
	}
	for _, name := range []string{"1", "2", "3"} {
		add(Acting, "crowd", "admit-"+name)
		add(Freeing, "crowd", "free-"+name)
	}
	add(Acting, "calm", "admit-calm")
	add(Freeing, "calm", "free-calm")
	for range 8 {
		b.next()(t.Context())
	}
	want := []string{"free-1", "free-calm", "free-2", "free-3", "admit-1", "admit-2", "admit-3", "admit-calm"}
	if !slices.Equal(got, want) {
		t.Errorf("written in the order %v, want %v", got, want)
	}
}
