package state

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const prefix = v1alpha1.BookedLabelPrefix

// TestBookingsAreReadBack from the node as they were written: Muster has no other memory of them after a restart.
func TestBookingsAreReadBack(t *testing.T) {
	room := nodegroups.Resources{"cpu": 1500, "memory": 1 << 30, "nvidia.com/gpu": 8}
	open := Booking{
		Key: "train", Namespace: "team", Queue: "main", UID: "1", Open: true, Booked: room, Remaining: room, Since: noon,
		Earlier: []types.UID{"7", "8"}, Repair: 2,
	}
	closed := Booking{Key: "closed", UID: "2", Booked: room, Remaining: room, Since: noon, Closed: noon.Add(time.Minute)}
	claimed := Booking{Key: "claimed", UID: "3", Booked: room, Remaining: room, Since: noon}
	got := BookingsOn(map[string]string{"zone": "a", prefix + "train": "team"}, map[string]string{
		prefix + "train": open.Encode(), prefix + "closed": closed.Encode(), prefix + "claimed": claimed.Encode(),
		"other.example.com/x": open.Encode(),
	})
	if diff := cmp.Diff([]Booking{claimed, closed, open}, got); diff != "" {
		t.Errorf("read (-want +got)\n%s", diff)
	}
	if len(got) > 0 {
		got[0].Remaining["cpu"] = 0
		if got[0].Booked["cpu"] != 1500 {
			t.Error("what remains shares its amounts with what was booked")
		}
	}
}

// TestBookingsThatWereEdited: a label still attracts pods without a readable record, and a booking that was opened again is not closed.
func TestBookingsThatWereEdited(t *testing.T) {
	closed := Booking{UID: "2", Booked: nodegroups.Resources{}, Since: noon, Closed: noon}.Encode()
	none := nodegroups.Resources{}
	for name, tt := range map[string]struct {
		labels, annotations map[string]string
		want                []Booking
	}{
		"no booking": {labels: map[string]string{"zone": "a"}, annotations: map[string]string{"note": "{}"}},
		"a label alone": {labels: map[string]string{prefix + "train": "team"},
			want: []Booking{{Key: "train", Namespace: "team", Open: true, Booked: none, Remaining: none}}},
		"a record that cannot be read": {labels: map[string]string{prefix + "train": "team"},
			annotations: map[string]string{prefix + "train": "?"},
			want:        []Booking{{Key: "train", Namespace: "team", Open: true, Booked: none, Remaining: none}}},
		"a label on a closed booking": {labels: map[string]string{prefix + "train": "team"},
			annotations: map[string]string{prefix + "train": closed},
			want:        []Booking{{Key: "train", Namespace: "team", UID: "2", Open: true, Booked: none, Remaining: none, Since: noon}}},
	} {
		if diff := cmp.Diff(tt.want, BookingsOn(tt.labels, tt.annotations)); diff != "" {
			t.Errorf("%s: read (-want +got)\n%s", name, diff)
		}
	}
}

// TestBookingKeys fit into a label, and names that fit are kept.
func TestBookingKeys(t *testing.T) {
	fits, long := strings.Repeat("a", 63), strings.Repeat("a", 40)+strings.Repeat("b", 40)
	if got := BookingKey(fits); got != fits {
		t.Errorf("the key of a name of 63 characters is %s", got)
	}
	want := strings.Repeat("a", 31) + "." + strings.Repeat("b", 31)
	if got := BookingLabel(long); got != prefix+want || len(want) != CutKey {
		t.Errorf("the label of a name of 80 characters is %s, want %s%s", got, prefix, want)
	}
	if got := (ConsumerKey{"team", long}).Booking(); got != (ConsumerKey{"team", want}) {
		t.Errorf("the key that its pods name is %v", got)
	}
}

func TestSortBookings(t *testing.T) {
	got := []Booking{{Key: "b", Namespace: "x"}, {Key: "a", Namespace: "y"}, {Key: "a", Namespace: "x"}}
	SortBookings(got)
	if diff := cmp.Diff([]Booking{{Key: "a", Namespace: "x"}, {Key: "a", Namespace: "y"}, {Key: "b", Namespace: "x"}}, got); diff != "" {
		t.Errorf("sorted (-want +got)\n%s", diff)
	}
}

func TestSameAmounts(t *testing.T) {
	for _, tc := range []struct {
		a, b nodegroups.Resources
		want bool
	}{
		{nil, nil, true},
		{nodegroups.Resources{"cpu": 0}, nil, true},
		{nodegroups.Resources{"cpu": 1}, nodegroups.Resources{"cpu": 1, "memory": 0}, true},
		{nodegroups.Resources{"cpu": 1}, nil, false},
		{nodegroups.Resources{"cpu": 1}, nodegroups.Resources{"cpu": 2}, false},
		{nodegroups.Resources{"cpu": 1}, nodegroups.Resources{"cpu": 1, "memory": 1}, false},
	} {
		if SameAmounts(tc.a, tc.b) != tc.want || SameAmounts(tc.b, tc.a) != tc.want {
			t.Errorf("%v and %v are the same: want %v", tc.a, tc.b, tc.want)
		}
	}
}

// TestWhatAGangLeaves: a plan that waits for the gang's end must not count on more than its remaining pods surely release.
func TestWhatAGangLeaves(t *testing.T) {
	small, large, plain := nodegroups.Resources{"cpu": 1, "gpu": 1}, nodegroups.Resources{"cpu": 5, "gpu": 4}, nodegroups.Resources{"cpu": 2}
	for _, tc := range []struct {
		name    string
		came    []nodegroups.Resources
		running int
		want    nodegroups.Resources
	}{
		{"all of them run", []nodegroups.Resources{large, small}, 2, nodegroups.Resources{"cpu": 6, "gpu": 5}},
		{"one has succeeded: perhaps the large one", []nodegroups.Resources{large, small}, 1, nodegroups.Resources{"cpu": 1, "gpu": 1}},
		{"perhaps those with devices", []nodegroups.Resources{large, small, plain}, 1, nodegroups.Resources{"cpu": 1}},
		{"one of two surely has a device", []nodegroups.Resources{large, small, plain}, 2, nodegroups.Resources{"cpu": 3, "gpu": 1}},
		{"all have succeeded", []nodegroups.Resources{large, small}, 0, nodegroups.Resources{}},
		{"one is nominated and not bound yet", []nodegroups.Resources{small}, 2, nodegroups.Resources{"cpu": 1, "gpu": 1}},
	} {
		b := Booking{Came: tc.came, Running: tc.running}
		if got := b.Leaves(); !SameAmounts(got, tc.want) {
			t.Errorf("%s: they leave %v, want %v", tc.name, got, tc.want)
		}
	}
}
