package provisioning

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
// the label booked.muster.dev/<key> = <namespace>, which the gang's pods select,
// and as an annotation of the same name with a BookingRecord.
type Booking struct {
	// Key is the booking key of the request's name.
	Key       string
	Namespace string
	UID       types.UID
	// Remaining is what the gang's pods that are not on the node yet will take.
	Remaining nodegroups.Resources
	// Pods of the gang that are bound to the node, those that have succeeded
	// included; Running those that have not finished, bound or nominated.
	Pods, Running int
	// Used is what the running pods take of the node.
	Used nodegroups.Resources
	// Since is when the node was booked.
	Since time.Time
}

// BookingRecord is what a booking's annotation holds.
type BookingRecord struct {
	UID   types.UID `json:"uid"`
	Since time.Time `json:"since"`
	// Requests is the room booked on this node for all pods of the gang.
	Requests corev1.ResourceList `json:"requests"`
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

// EncodeBooking renders the annotation of a booking.
func EncodeBooking(uid types.UID, since time.Time, requests nodegroups.Resources) string {
	out, err := json.Marshal(BookingRecord{UID: uid, Since: since.UTC(), Requests: requests.List()})
	if err != nil {
		panic(fmt.Sprintf("a booking record cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// BookingsOn reads the bookings from a node's labels and annotations, in the
// order of their keys. Remaining is all that was booked. A label without a
// readable annotation is a booking of nobody: UID is empty.
func BookingsOn(labels, annotations map[string]string) []Booking {
	var out []Booking
	for label, namespace := range labels {
		key, ok := strings.CutPrefix(label, v1alpha1.BookedLabelPrefix)
		if !ok {
			continue
		}
		b := Booking{Key: key, Namespace: namespace}
		var rec BookingRecord
		if json.Unmarshal([]byte(annotations[label]), &rec) == nil {
			b.UID, b.Since = rec.UID, rec.Since
			b.Remaining = nodegroups.ResourcesFrom(rec.Requests)
		} else {
			b.Remaining = nodegroups.Resources{}
		}
		out = append(out, b)
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
