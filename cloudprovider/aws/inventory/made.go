package inventory

import (
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/poll"
)

// Made is a machine or a reservation that a call has returned a short while ago.
type Made struct {
	cloudprovider.Machine
	// AutoScalingGroup that it counts against.
	AutoScalingGroup string
	// Places of a reservation that no list knows.
	Places int

	at time.Time
}

// Note remembers machines that a call has returned.
func (v *Inventory) Note(autoScalingGroup string, machines []cloudprovider.Machine) {
	for _, m := range machines {
		v.note(Made{Machine: m, AutoScalingGroup: autoScalingGroup})
	}
	v.config.Watch.Note(machines...)
}

// NoteReservation remembers a reservation that a call has returned: its places count against MaxSize
// before lists know of it.
func (v *Inventory) NoteReservation(autoScalingGroup string, hold cloudprovider.Machine, places int) {
	v.note(Made{Machine: hold, AutoScalingGroup: autoScalingGroup, Places: places})
}

func (v *Inventory) note(m Made) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m.at = v.config.Clock.Now()
	v.made[m.Name] = m
}

// Forget ends the memory of a reservation that is over.
func (v *Inventory) Forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.made, id)
}

// Fresh are the machines and reservations that a call has returned a short while ago, by ID.
func (v *Inventory) Fresh() map[string]Made {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]Made{}
	for id, m := range v.made {
		if v.config.Clock.Since(m.at) > poll.Grace {
			delete(v.made, id)
		} else {
			out[id] = m
		}
	}
	return out
}
