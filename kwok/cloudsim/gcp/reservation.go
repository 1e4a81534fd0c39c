package gcp

import (
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// reservation of a name in a zone; nil where it is not there now.
func (f *Front) reservation(name, zone string) *Reservation {
	age := f.world.Now().Sub(f.began)
	i := slices.IndexFunc(f.config.Reservations, func(r Reservation) bool {
		return r.Name == name && r.Zone == zone && age >= r.From.Duration && (r.Until.Duration == 0 || age < r.Until.Duration)
	})
	if i < 0 {
		return nil
	}
	return &f.config.Reservations[i]
}

// at is a time that counts from the beginning of the world, as the cloud writes it.
func (f *Front) at(d time.Duration) string { return f.began.Add(d).UTC().Format(time.RFC3339) }

func (f *Front) getReservation(c *call) (any, *cloudsim.Error) {
	zone, name := c.PathValue("zone"), c.PathValue("reservation")
	r := f.reservation(name, zone)
	if r == nil {
		return nil, notFound("projects/" + f.config.Project + "/zones/" + zone + "/reservations/" + name)
	}
	out := map[string]any{
		"kind": "compute#reservation", "name": name, "zone": f.link("zones/" + zone), "status": "READY", "specificReservationRequired": true,
		"specificReservation": map[string]any{"count": strconv.FormatInt(r.Count, 10)},
	}
	if r.Until.Duration > 0 {
		out["deleteAtTime"] = f.at(r.Until.Duration)
	}
	return out, nil
}

// listFutureReservations answers with those whose reservations are still to come.
func (f *Front) listFutureReservations(c *call) (any, *cloudsim.Error) {
	items := []any{}
	for _, r := range f.config.Reservations {
		if r.Zone != c.PathValue("zone") || f.world.Now().Sub(f.began) >= r.From.Duration {
			continue
		}
		items = append(items, map[string]any{
			"kind": "compute#futureReservation", "name": r.Name + "-request", "reservationName": r.Name, "reservationMode": "CALENDAR",
			"timeWindow": map[string]any{"startTime": f.at(r.From.Duration), "endTime": f.at(r.Until.Duration)},
			"status":     map[string]any{"procurementStatus": "APPROVED"},
		})
	}
	return map[string]any{"kind": "compute#futureReservationsListResponse", "items": items}, nil
}
