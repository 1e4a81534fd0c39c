package gcp_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/discover"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// boundTo has a reservation of a calendar-mode request, from the second hour to the tenth.
func boundTo(t *testing.T, template gcpsim.Template, denied ...string) *lab {
	t.Helper()
	sim := single(template, gcpsim.Group{ActionOnFailure: "DO_NOTHING"})
	sim.Project, sim.MachineTypes, sim.Denied = project, simulated().MachineTypes, denied
	sim.Reservations = []gcpsim.Reservation{{Name: "calendar", Zone: zoneA, Count: 4,
		From: metav1.Duration{Duration: 2 * time.Hour}, Until: metav1.Duration{Duration: 10 * time.Hour}}}
	return newLab(t, cloudsim.Config{Pools: append(every(8), pool(zoneA, v1alpha1.Reserved, 8))}, sim)
}

// Machines that are bound to a reservation end with it.
func TestAReservationThatEnds(t *testing.T) {
	l := boundTo(t, gcpsim.Template{ProvisioningModel: "RESERVATION_BOUND", Reservation: "calendar"})
	p := l.provider()
	find := func() cloudprovider.Discovery {
		t.Helper()
		d, err := p.Discover(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	begins, ends := began.Add(2*time.Hour), began.Add(10*time.Hour)
	if d := find(); len(d.Groups) > 0 || len(d.Refused) != 1 || !strings.Contains(d.Refused[0].Reason, begins.Format(time.RFC3339)) {
		t.Fatalf("before it begins there is %+v, want a refusal that says when", d)
	}
	l.clock.Step(2 * time.Hour)
	d := find()
	if len(d.Groups) != 1 || d.Groups[0].Spec.EndsAt == nil || !d.Groups[0].Spec.EndsAt.Time.Equal(ends) {
		t.Fatalf("found %+v, want a group that ends at %s", d, ends)
	}
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: d.Groups[0].Name}, Spec: d.Groups[0].Spec}
	l.groups = []*v1alpha1.NodeGroup{g}
	var machines []cloudprovider.Machine
	for range 10 {
		var err error
		if machines, err = p.Launch(context.Background(), launchOf(g, 4)); err == nil {
			break
		}
		l.clock.Step(10 * time.Second)
	}
	if len(machines) != 4 || !machines[0].EndsAt.Equal(ends) {
		t.Fatalf("launched %+v, want 4 machines that end at %s", machines, ends)
	}
	for _, m := range l.list(p) {
		if !m.EndsAt.Equal(ends) {
			t.Errorf("machine %+v does not end at %s", m, ends)
		}
	}
	l.clock.Step(9 * time.Hour)
	if left := l.open(); len(left) > 0 {
		t.Errorf("after the end there are %+v", left)
	}
	if d := find(); len(d.Groups) > 0 || len(d.Refused) != 1 || !strings.Contains(d.Refused[0].Reason, "no reservation calendar") {
		t.Errorf("after the end there is %+v", d)
	}
}

// Machines that have consumed a reservation that is over go on at the on-demand price: their group
// stays, so that idle ones are terminated, and nothing is launched there.
func TestAReservationThatIsOver(t *testing.T) {
	l := boundTo(t, gcpsim.Template{Reservation: "calendar"})
	p := l.provider()
	find := func() cloudprovider.Discovery {
		t.Helper()
		d, err := p.Discover(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := find(); len(d.Groups) > 0 || len(d.Refused) != 1 {
		t.Fatalf("before it begins there is %+v, want a refusal", d)
	}
	l.clock.Step(2 * time.Hour)
	before := find()
	if len(before.Groups) != 1 || before.Groups[0].Spec.MaxNodes == 0 {
		t.Fatalf("found %+v, want a group", before)
	}
	l.clock.Step(9 * time.Hour)
	after := find()
	if len(after.Groups) != 1 || len(after.Refused) > 0 || after.Groups[0].Name != before.Groups[0].Name {
		t.Fatalf("once it is over there is %+v, want group %s", after, before.Groups[0].Name)
	}
	spec := after.Groups[0].Spec
	if spec.MaxNodes != 0 || spec.MinNodes != 0 || spec.CapacityType != v1alpha1.Reserved {
		t.Errorf("once it is over the group is %+v, want no more machines of the same capacity type", spec)
	}
	if free := before.Groups[0].Spec.PricePerHour; spec.PricePerHour == nil || free != nil && spec.PricePerHour.Cmp(*free) <= 0 {
		t.Errorf("once it is over a machine costs %v, before %v", spec.PricePerHour, free)
	}
	if !slices.ContainsFunc(after.Groups[0].Warnings, func(w cloudprovider.Warning) bool { return w.Reason == discover.ReservationOver }) {
		t.Errorf("warnings are %+v", after.Groups[0].Warnings)
	}
}

// Machines that only consume a reservation go on without it, and so does Muster where the
// reservation is of another project that does not let it be read.
func TestReservationsThatEndNoMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		template gcpsim.Template
		denied   []string
		warned   bool
	}{
		"standard machines": {template: gcpsim.Template{Reservation: "calendar"}},
		"by its link":       {template: gcpsim.Template{Reservation: "projects/" + project + "/reservations/calendar/reservationBlocks/b-1"}},
		"one that may not be read": {template: gcpsim.Template{ProvisioningModel: "RESERVATION_BOUND", Reservation: "calendar"},
			denied: []string{"compute.reservations.get"}, warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := boundTo(t, tc.template, tc.denied...)
			l.clock.Step(2 * time.Hour)
			d, err := l.provider().Discover(context.Background())
			if err != nil || len(d.Groups) != 1 || d.Groups[0].Spec.EndsAt != nil || d.Groups[0].Spec.CapacityType != v1alpha1.Reserved {
				t.Fatalf("found %+v, %v; want a reserved group without an end", d, err)
			}
			warned := slices.ContainsFunc(d.Groups[0].Warnings, func(w cloudprovider.Warning) bool { return w.Reason == discover.ReservationUnread })
			if warned != tc.warned {
				t.Errorf("warnings are %+v", d.Groups[0].Warnings)
			}
		})
	}
}
