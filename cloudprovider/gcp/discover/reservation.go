package discover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
)

// availability of the reservation of a template in a zone.
type availability struct {
	// endsAt is when the VMs that are bound to it end with it; nil for those that go on.
	endsAt *metav1.Time
	// refused says why there is none; empty if there is one. It is over where none is to come, either.
	refused string
	over    bool
	// unread: it may not be read, since it belongs to another project.
	unread bool
}

// reservation reads the reservation that a template names.
func (d *Discoverer) reservation(ctx context.Context, t *template.Template, zone string) (a availability, err error) {
	id := t.Reservation
	if id.Name == "" {
		return a, nil
	}
	r, err := d.cloud.Reservation(ctx, id.Project, zone, id.Name)
	switch {
	case errors.Is(err, api.ErrDenied):
		return availability{unread: true}, nil
	case errors.Is(err, api.ErrNotFound):
		return d.futureReservation(ctx, id, zone)
	case err != nil:
		return a, fmt.Errorf("reading reservation %s: %w", id.Name, err)
	}
	if at, parsed := time.Parse(time.RFC3339, r.GetDeleteAtTime()); parsed == nil && t.Model() == template.ReservationBound {
		a.endsAt = &metav1.Time{Time: at}
	}
	return a, nil
}

// leavesMachines reports whether the reservation is over and machines of the template that have
// consumed it go on without it.
func (a availability) leavesMachines(t *template.Template) bool {
	return a.over && t.Model() != template.ReservationBound
}

// warnings report that the reservation is over, or what could not be read of it.
func (a availability) warnings(t *template.Template) []cloudprovider.Warning {
	switch {
	case a.over:
		return []cloudprovider.Warning{{Reason: ReservationOver, Message: a.refused + ": nothing is launched, and machines that have consumed " +
			"it go on at the on-demand price; name another reservation in the template"}}
	case !a.unread:
		return nil
	}
	return []cloudprovider.Warning{{Reason: ReservationUnread, Message: fmt.Sprintf(
		"when reservation %s of project %s ends is not known: grant Muster compute.reservations.get there",
		t.Reservation.Name, t.Reservation.Project)}}
}

// futureReservation says of a reservation that is not there whether a future reservation will make
// it, and when.
func (d *Discoverer) futureReservation(ctx context.Context, id template.ReservationID, zone string) (a availability, err error) {
	a.over = true
	a.refused = fmt.Sprintf("zone %s has no reservation %s, which the instance template names", zone, id.Name)
	all, err := d.cloud.FutureReservations(ctx, id.Project, zone)
	if errors.Is(err, api.ErrDenied) || errors.Is(err, api.ErrNotFound) {
		return a, nil
	}
	if err != nil {
		return a, fmt.Errorf("listing the future reservations of zone %s: %w", zone, err)
	}
	for _, f := range all {
		if prefix := f.GetNamePrefix(); f.GetReservationName() == id.Name || prefix != "" && strings.HasPrefix(id.Name, prefix) {
			a.over = false
			a.refused = fmt.Sprintf("its reservation %s begins at %s, by future reservation %s, and can be used from then on", id.Name,
				f.GetTimeWindow().GetStartTime(), f.GetName())
		}
	}
	return a, nil
}
