package aws

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/aws/discover"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// blocked has a Capacity Block of 4 machines from the second hour to the tenth.
func blocked(t *testing.T, change func(*simaws.Config)) *sim {
	return newSim(t, plenty(func(w *cloudsim.Config) { w.Pools = append(w.Pools, cloudsim.Pool{PoolKey: reservedPool}) }),
		account(func(c *simaws.Config) {
			c.Blocks = []simaws.Block{{ID: "cr-block", Type: kind, Zone: zone, Count: 4,
				From: metav1.Duration{Duration: 2 * time.Hour}, Until: metav1.Duration{Duration: 10 * time.Hour}}}
			c.Templates[0].Reservation, c.Templates[0].MarketType = "cr-block", "capacity-block"
			change(c)
		}))
}

// The machines of a Capacity Block are Reserved, and end half an hour before it, also those of a managed node group, which it launches
// itself.
func TestACapacityBlock(t *testing.T) {
	for name, change := range map[string]func(*simaws.Config){
		"beside its group":             func(*simaws.Config) {},
		"of an EKS managed node group": func(c *simaws.Config) { c.Groups[0].Tags[asg.ManagedTag] = "gpus" },
	} {
		t.Run(name, func(t *testing.T) { testACapacityBlock(t, change) })
	}
}

func testACapacityBlock(t *testing.T, change func(*simaws.Config)) {
	s := blocked(t, change)
	begins, ends := s.clock.Now().Add(2*time.Hour), s.clock.Now().Add(10*time.Hour-30*time.Minute)
	if d := discovery(t, s); len(d.Groups) > 0 || len(d.Refused) != 1 || !strings.Contains(d.Refused[0].Reason, begins.Format(time.RFC3339)) {
		t.Fatalf("before it begins there is %+v, want a refusal that says when", d)
	}
	s.clock.Step(2 * time.Hour)
	d := discovery(t, s)
	if len(d.Groups) != 1 {
		t.Fatalf("found %+v, want one group", d)
	}
	f := d.Groups[0]
	if f.Spec.CapacityType != v1alpha1.Reserved || f.Spec.EndsAt == nil || !f.Spec.EndsAt.Time.Equal(ends) || f.Spec.MaxNodes != 4 {
		t.Errorf("found %+v, want 4 reserved machines that end at %s", f.Spec, ends)
	}
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: f.Name}, Spec: f.Spec}
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	if machines, err := p.Launch(context.Background(), request(g, 4, token)); err != nil || len(machines) != 4 ||
		!machines[0].EndsAt.Equal(ends) {
		t.Fatalf("launched %+v: %v", machines, err)
	}
	s.clock.Step(time.Minute)
	for _, m := range s.listed(p) {
		if !m.EndsAt.Equal(ends) {
			t.Errorf("machine %+v does not end at %s", m, ends)
		}
	}
	s.clock.Step(8 * time.Hour)
	if left := s.alive()[token]; left > 0 {
		t.Errorf("%d machines are left after the end", left)
	}
	if d := discovery(t, s); len(d.Groups) > 0 {
		t.Errorf("after it has ended there is %+v", d.Groups)
	}
}

func TestCapacityBlocksThatCannotBeUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*simaws.Config)
		want   string
	}{
		"a template that names no block":  {func(c *simaws.Config) { c.Templates[0].Reservation = "" }, "name the Capacity Block by its ID"},
		"a block without the market type": {func(c *simaws.Config) { c.Templates[0].MarketType = "" }, "set its market type to capacity-block"},
		"a capacity type without a block": {func(c *simaws.Config) { c.Templates[0].Reservation = "cr-bought" },
			"reservation cr-bought is no Capacity Block: remove the market options"},
		"a type that is sold in blocks only, on demand": {func(c *simaws.Config) {
			c.Templates[0].Reservation, c.Templates[0].MarketType, c.Types[0].Sold = "", "", []string{"capacity-block"}
		}, "AWS does not sell " + kind + " as on-demand, only as capacity-block: change its capacity type, or have its launch template " +
			"target a Capacity Block"},
		"a type that is not sold in blocks": {func(c *simaws.Config) { c.Types[0].Sold = []string{"on-demand", "spot"} },
			"AWS does not sell " + kind + " as capacity-block, only as on-demand or spot"},
		"a group that launches itself": {func(c *simaws.Config) { c.Groups[0].Tags[methodTag] = "LaunchInstances" }, "remove the tag " + methodTag},
	} {
		t.Run(name, func(t *testing.T) {
			s := blocked(t, tc.change)
			if _, refused := s.world.Reserve("cr-bought", cloudsim.Order{Pool: reservedPool, Count: 4}, time.Time{}); refused != nil {
				t.Fatal(refused)
			}
			s.clock.Step(2 * time.Hour)
			if d := discovery(t, s); len(d.Groups) > 0 || len(d.Refused) != 1 || !strings.Contains(d.Refused[0].Reason, tc.want) {
				t.Errorf("got %+v, want a refusal with %q", d, tc.want)
			}
		})
	}
}

// What consumes a reservation goes on after it, and is paid for from then on: no longer for nothing,
// and no machine of it is launched.
func TestAReservationThatIsOver(t *testing.T) {
	s := newSim(t, plenty(func(w *cloudsim.Config) { w.Pools = append(w.Pools, cloudsim.Pool{PoolKey: reservedPool}) }),
		account(func(c *simaws.Config) { c.Templates[0].Reservation, c.Groups[0].Min = "cr-bought", 1 }))
	if _, refused := s.world.Reserve("cr-bought", cloudsim.Order{Pool: reservedPool, Count: 4}, s.clock.Now().Add(time.Hour)); refused != nil {
		t.Fatal(refused)
	}
	only := func() cloudprovider.Found {
		t.Helper()
		d := discovery(t, s)
		if len(d.Groups) != 1 {
			t.Fatalf("found %+v, want one group", d)
		}
		return d.Groups[0]
	}
	if f := only(); f.Spec.MaxNodes != 4 || f.Spec.PricePerHour.Value() != 0 || f.Spec.EndsAt != nil {
		t.Errorf("found %+v, want 4 machines for nothing, which do not end", f.Spec)
	}
	s.clock.Step(2 * time.Hour)
	f := only()
	if f.Spec.CapacityType != v1alpha1.Reserved || f.Spec.MaxNodes != 0 || f.Spec.MinNodes != 0 || f.Spec.PricePerHour.String() != "55040m" {
		t.Errorf("found %+v, want no machines, at the on-demand price", f.Spec)
	}
	var told bool
	for _, w := range f.Warnings {
		told = told || w.Reason == discover.ReservationOver
	}
	if !told {
		t.Errorf("warnings %+v, want that the reservation is over", f.Warnings)
	}
}

// Machines that end while they boot, by the documented codes of the reason. No class is that of
// a machine that is replaced.
func TestWhyMachinesEnd(t *testing.T) {
	for code, want := range map[string]v1alpha1.ErrorClass{
		"Client.InternalError":                v1alpha1.Config,
		"Client.InvalidSnapshot.NotFound":     v1alpha1.Config,
		"Client.VolumeLimitExceeded":          v1alpha1.Quota,
		"Server.InsufficientInstanceCapacity": v1alpha1.Stockout,
		"Server.InternalError":                "",
		"Server.SpotInstanceTermination":      "",
		"Server.SpotInstanceShutdown":         "",
		"Server.ScheduledStop":                "",
		"Client.InstanceInitiatedShutdown":    "",
		"Client.InstanceTerminated":           "",
		"Client.UserInitiatedShutdown":        "",
	} {
		t.Run(code, func(t *testing.T) {
			s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Templates[0].Ends = code }))
			g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand)
			s.groups = []*v1alpha1.NodeGroup{g}
			p := s.provider()
			if _, err := p.Launch(context.Background(), request(g, 2, token)); err != nil {
				t.Fatal(err)
			}
			for _, m := range s.listed(p) {
				if m.State != cloudprovider.Terminated || m.Class != want || !strings.HasPrefix(m.Reason, code) {
					t.Errorf("got %+v, want the class %s and the cloud's words", m, want)
				}
			}
		})
	}
}
