package worth

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/kwok/pool"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")
	// gpusPerMachine is that of all offerings, so that only price and stock differ.
	gpusPerMachine = 8
	zones          = 3
	// maxNodes of each group is more than the pool ever holds: what is scarce is the
	// stock, not what an admin allows.
	maxNodes = 200
)

// The stock of a spot pool goes up and down between plenty, for so long on average, in
// which it holds up to twice as many machines as the largest gang has, and droughts, in
// which it holds a few or none. That of an on-demand pool stays: just enough for the
// largest gang.
const (
	plentyLasts, droughtLasts = 50 * time.Minute, 25 * time.Minute
	plentyHolds, droughtHolds = largest, 20
	onDemandHolds             = largest
)

// Prices of a machine an hour, in USD. Those of a capacity type differ a little by zone.
const (
	spotPrice, onDemandPrice = 32, 98
)

// offering is a group with its pool, and what has been learned of it.
type offering struct {
	object *v1alpha1.NodeGroup
	pool   pool.Pool
	state  pool.State
	status v1alpha1.NodeGroupStatus
}

// newOfferings returns a group of each capacity type in each zone, in the order of their names.
func newOfferings(random *rand.Rand, began time.Time) (out []*offering) {
	for _, kind := range []struct {
		name         string
		capacityType v1alpha1.CapacityType
		price        int
		script       func() v1alpha1.KwokPool
	}{
		{"on-demand", v1alpha1.OnDemand, onDemandPrice, func() v1alpha1.KwokPool { return v1alpha1.KwokPool{Holds: new(int32(onDemandHolds))} }},
		{"spot", v1alpha1.Spot, spotPrice, func() v1alpha1.KwokPool { return v1alpha1.KwokPool{Faults: droughts(random)} }},
	} {
		for zone := range zones {
			g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", kind.name, zone)}}
			g.Spec.CapacityType = kind.capacityType
			g.Spec.Zone = fmt.Sprintf("zone-%d", zone)
			g.Spec.MaxNodes = maxNodes
			g.Spec.PricePerHour = resource.NewMilliQuantity(int64(kind.price*1000+random.IntN(3000)), resource.DecimalSI)
			g.Spec.Template.Capacity = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"),
				gpu: *resource.NewQuantity(gpusPerMachine, resource.DecimalSI),
			}
			script := kind.script()
			script.Seed, script.BootDelay.Duration, script.BootJitter.Duration = random.Int64(), 3*time.Minute, 2*time.Minute
			out = append(out, &offering{object: g, pool: pool.Pool{Created: began, MaxMachines: maxNodes, Script: script}})
		}
	}
	return out
}

// droughts are those of a week. The times of plenty between them are scripted alike:
// what the pool holds has an end then, too.
func droughts(random *rand.Rand) (out []v1alpha1.KwokFault) {
	dry := random.IntN(3) == 0
	for at := time.Duration(0); at < 7*24*time.Hour; dry = !dry {
		least, below, mean := plentyHolds, plentyHolds, plentyLasts
		if dry {
			least, below, mean = 0, droughtHolds, droughtLasts
		}
		holds := least + random.IntN(below)
		until := at + time.Duration(random.ExpFloat64()*float64(mean))
		out = append(out, v1alpha1.KwokFault{Type: v1alpha1.FaultDry, Holds: int32(holds),
			From: &metav1.Duration{Duration: at}, Until: &metav1.Duration{Duration: until}})
		at = until
	}
	return out
}

// launch launches machines from the pool in its present state.
func (o *offering) launch(count int, now time.Time) ([]pool.Machine, *v1alpha1.KwokError) {
	got, refusal := o.pool.Launch(o.state, count, now)
	o.state.Live += len(got)
	o.state.Next += int64(len(got))
	return got, refusal
}

func (o *offering) price() int64 { return nodegroups.MicroUSD(o.object.Spec.PricePerHour) }
