package inventory

import "github.com/muster-dev/muster/cloudprovider"

// Made is a machine or a reservation that a call has returned a short while ago.
type Made struct {
	cloudprovider.Machine
	// AutoScalingGroup that it counts against.
	AutoScalingGroup string
	// Places of a reservation that no list contains.
	Places int
}

// Note remembers machines that a call has returned.
func (v *Inventory) Note(autoScalingGroup string, machines []cloudprovider.Machine) {
	for _, m := range machines {
		v.made.Note(m.Name, Made{Machine: m, AutoScalingGroup: autoScalingGroup})
	}
	v.config.Watch.Note(machines...)
}

// NoteReservation remembers a reservation that a call has returned: its places count against MaxSize
// before lists know of it.
func (v *Inventory) NoteReservation(autoScalingGroup string, hold cloudprovider.Machine, places int) {
	v.made.Note(hold.Name, Made{Machine: hold, AutoScalingGroup: autoScalingGroup, Places: places})
}

// Forget ends the memory of a reservation that is over.
func (v *Inventory) Forget(id string) { v.made.Forget(id) }

// IsFresh reports whether a call has returned the machine or reservation a short while ago.
func (v *Inventory) IsFresh(id string) bool {
	_, fresh := v.made.Of(id)
	return fresh
}

// Fresh are the machines and reservations that a call has returned a short while ago, by ID.
func (v *Inventory) Fresh() map[string]Made { return v.made.All() }
