package template

import (
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// ReservationID names a reservation in a zone. It may be shared by another project.
type ReservationID struct {
	Project, Name string
	// Part reports whether a block or a sub-block of the reservation is named.
	Part bool
}

// reservationOf is what a reservation affinity names: its name, or a part of its link; without a
// name where it names none, or several.
func reservationOf(project string, a *computepb.ReservationAffinity) ReservationID {
	if a.GetConsumeReservationType() != "SPECIFIC_RESERVATION" || len(a.GetValues()) != 1 {
		return ReservationID{}
	}
	out := ReservationID{Project: project}
	rest := a.GetValues()[0]
	if of, ok := strings.CutPrefix(rest, "projects/"); ok {
		out.Project, rest, _ = strings.Cut(of, "/")
		_, rest, _ = strings.Cut(rest, "reservations/")
	}
	out.Name, _, out.Part = strings.Cut(rest, "/")
	return out
}
