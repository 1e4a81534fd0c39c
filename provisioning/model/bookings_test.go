package model

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestWhatABookingWaitsFor: the bookings of the last repair wait for pods; earlier ones of a Provisioned request have theirs.
func TestWhatABookingWaitsFor(t *testing.T) {
	_, v := newModel()
	for _, tc := range []struct {
		name        string
		status      transaction.Status
		consumed    bool
		repair      int // the last one of the request
		booking     int // the repair that the booking is for
		waits, runs bool
	}{
		{name: "it is provisioned", status: transaction.Provisioned, waits: true},
		{name: "it is pending", status: transaction.Pending, waits: true},
		{name: "it is over", status: transaction.Over},
		{name: "it is over, and its pods run", status: transaction.Over, consumed: true, runs: true},
		{name: "it is repaired", status: transaction.Provisioned, repair: 1, runs: true},
		{name: "the repair itself", status: transaction.Provisioned, repair: 1, booking: 1, waits: true},
		{name: "it is repaired and over", status: transaction.Over, repair: 1},
	} {
		object := v.request("gang")
		if tc.consumed {
			object = v.request("gang", provreq.Provisioned, provreq.BookingExpired)
			object.Status.Conditions[1].Reason = transaction.ReasonBookingConsumed
		}
		rs := newRequests()
		rs.byUID["gang"] = &request{object: object, status: tc.status, repair: transaction.RepairRecord{Number: tc.repair}}
		b := &state.Booking{UID: "gang", Repair: tc.booking}
		if waits, runs := rs.waits(b), rs.runs(b); waits != tc.waits || runs != tc.runs {
			t.Errorf("%s: waits %v, runs %v; want %v, %v", tc.name, waits, runs, tc.waits, tc.runs)
		}
	}
	rs := newRequests()
	for _, uid := range []types.UID{"", "gone"} {
		if b := (&state.Booking{UID: uid}); rs.waits(b) || rs.runs(b) {
			t.Errorf("a booking of request %q waits or runs", uid)
		}
	}
}
