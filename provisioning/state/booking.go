package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Booking is the promise of room on one node to a gang. It lives on the node: as
// the annotation booked.muster.dev/<key> with a BookingRecord, and, once the gang
// may come, as a label of the same name whose value is the namespace, which the
// gang's pods select.
type Booking struct {
	// Key is the booking key of the request's name.
	Key       string
	Namespace string
	// Queue is the LocalQueue of the request; empty without one.
	Queue string
	UID   types.UID
	// Open bookings bear the label: pods of the gang may be bound to the node.
	Open bool
	// Booked is the room for all of the gang's pods that are to run on the node;
	// Remaining what those of them will take that are not there yet.
	Booked, Remaining nodegroups.Resources
	// Came has what each pod of the gang takes that is bound to the node, those that
	// have succeeded included.
	Came []nodegroups.Resources
	// Running pods of the gang have not finished, whether bound or nominated. Ran has what each of
	// those takes that are bound.
	Running int
	Ran     []nodegroups.Resources
	// Staying is what those of them take that are not ending.
	Staying nodegroups.Resources
	// Kept is the room of pods that have ended here, of a gang that runs: others may be
	// made in their place, until KeptUntil; zero if none is kept.
	Kept      nodegroups.Resources
	KeptUntil time.Time
	// Since is when the node was booked, by Muster's clock.
	Since time.Time
	// Closed is when a booking that had been open was closed; zero without.
	Closed time.Time
	// Held: the pods are created as soon as the request is Provisioned, and not before.
	Held bool
	// Provisioned is since when the request has been Provisioned; zero while it is not.
	Provisioned time.Time
	// Earlier are the pods that were on the node by then under the same key: those of an
	// earlier request of that name. Clocks could not distinguish them, since pods are
	// dated by others.
	Earlier []types.UID
	// Repair is the number of the repair that it is for, of a gang that ran; 0 for none.
	Repair int
}

// Tenant is what pays for the booking.
func (b *Booking) Tenant() Tenant { return Tenant{b.Namespace, b.Queue} }

// BookingRecord is what a booking's annotation holds.
type BookingRecord struct {
	UID types.UID `json:"uid"`
	// Queue says which LocalQueue pays, also when the request is gone.
	Queue string    `json:"queue,omitempty"`
	Since time.Time `json:"since"`
	// Closed is when the label went, before the gang is sent elsewhere.
	Closed *time.Time `json:"closed,omitempty"`
	// Requests is the room booked on this node for all pods of the gang.
	Requests corev1.ResourceList `json:"requests"`
	// Earlier are the pods of the same key that were there before.
	Earlier []types.UID `json:"earlier,omitempty"`
	// Repair is the number of the repair that it is for.
	Repair int `json:"repair,omitempty"`
}

// maxKey is how long the name part of a label key may be.
const maxKey = 63

// CutKey is the length of the keys of names that are too long for a label. Only
// requests with names of at least this length can have the same key.
const CutKey = 31 + 1 + 31

// BookingKey is the name part of the label of a request's bookings: its name,
// or, where that is longer than 63 characters, its first 31 and last 31
// characters joined by a dot.
func BookingKey(name string) string {
	if len(name) <= maxKey {
		return name
	}
	return name[:31] + "." + name[len(name)-31:]
}

// BookingLabel is the label of the nodes that a request has booked.
func BookingLabel(name string) string {
	return v1alpha1.BookedLabelPrefix + BookingKey(name)
}

// Encode renders the annotation of the booking.
func (b Booking) Encode() string {
	rec := BookingRecord{UID: b.UID, Queue: b.Queue, Since: b.Since.UTC(), Requests: b.Booked.List(), Earlier: b.Earlier, Repair: b.Repair}
	if !b.Closed.IsZero() {
		rec.Closed = new(b.Closed.UTC())
	}
	out, err := json.Marshal(rec)
	if err != nil {
		panic(fmt.Sprintf("a booking record cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// BookingsOn reads the bookings from a node's labels and annotations, in the
// order of their keys. Nothing of what is booked has been used as far as they
// show. A label without a readable annotation is a booking of no request: UID is
// empty. One that is not open has no namespace here: its request names it.
func BookingsOn(labels, annotations map[string]string) []Booking {
	var out []Booking
	for name, text := range annotations {
		key, ok := strings.CutPrefix(name, v1alpha1.BookedLabelPrefix)
		var rec BookingRecord
		if !ok || json.Unmarshal([]byte(text), &rec) != nil {
			continue
		}
		namespace, open := labels[name]
		booked := nodegroups.ResourcesFrom(rec.Requests)
		b := Booking{
			Key: key, Namespace: namespace, Queue: rec.Queue, UID: rec.UID, Open: open, Since: rec.Since, Earlier: rec.Earlier, Booked: booked,
			Remaining: booked.Clone(), Repair: rec.Repair,
		}
		if rec.Closed != nil && !open {
			b.Closed = *rec.Closed
		}
		out = append(out, b)
	}
	for name, namespace := range labels {
		key, ok := strings.CutPrefix(name, v1alpha1.BookedLabelPrefix)
		if ok && !slices.ContainsFunc(out, func(b Booking) bool { return b.Key == key }) {
			out = append(out, Booking{Key: key, Namespace: namespace, Open: true, Booked: nodegroups.Resources{}, Remaining: nodegroups.Resources{}})
		}
	}
	SortBookings(out)
	return out
}

// SortBookings puts them in the order of their keys.
func SortBookings(b []Booking) {
	slices.SortFunc(b, func(x, y Booking) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Namespace, y.Namespace))
	})
}

// SameAmounts reports whether two amounts are equal; a resource that is missing is 0.
func SameAmounts(a, b nodegroups.Resources) bool {
	_, _, less := a.Short(b)
	_, _, more := b.Short(a)
	return !less && !more
}

// Leaves is the room that comes back at least when the gang's pods leave the node.
// Which of those that came have succeeded is not known, so of each resource the
// smallest amounts count.
func (b *Booking) Leaves() nodegroups.Resources {
	amounts := map[corev1.ResourceName][]int64{}
	for _, pod := range b.Came {
		for name, v := range pod {
			amounts[name] = append(amounts[name], v)
		}
	}
	out := nodegroups.Resources{}
	for name, of := range amounts {
		// A pod that came without the resource is among those with the least.
		running := b.Running - (len(b.Came) - len(of))
		slices.Sort(of)
		for _, v := range of[:min(max(0, running), len(of))] {
			out[name] += v
		}
	}
	return out
}
