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
// which it gives up to twice as many machines as the largest gang has, and droughts, in
// which it gives a few or none. That of an on-demand pool
// stays: just enough for the largest gang.
const (
	plentyLasts, droughtLasts = 50 * time.Minute, 25 * time.Minute
	plentyHolds, droughtHolds = largest, 20
	onDemandHolds             = largest
)

// Prices of a machine an hour, in USD. Those of a market differ a little by zone.
const (
	spotPrice, onDemandPrice = 32, 98
)

// offering is a group with its pool, and what has been learned of it.
type offering struct {
	object *v1alpha1.NodeGroup
	pool   pool.Pool
	state  pool.State
	// stock by the time from which it is what the pool holds, in order.
	stock  []stock
	status v1alpha1.NodeGroupStatus
}

type stock struct {
	from  time.Time
	holds int32
}

// market is a group of each capacity type in each zone, in the order of their names.
func market(random *rand.Rand, began time.Time) (out []*offering) {
	for _, kind := range []struct {
		name         string
		capacityType v1alpha1.CapacityType
		price        int
		stock        func() []stock
	}{
		{"on-demand", v1alpha1.OnDemand, onDemandPrice, func() []stock { return []stock{{began, onDemandHolds}} }},
		{"spot", v1alpha1.Spot, spotPrice, func() []stock { return droughts(random, began) }},
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
			out = append(out, &offering{
				object: g, stock: kind.stock(),
				pool: pool.Pool{Created: began, MaxMachines: maxNodes, Script: v1alpha1.KwokPool{
					Seed: random.Int64(), BootDelay: metav1.Duration{Duration: 3 * time.Minute}, BootJitter: metav1.Duration{Duration: 2 * time.Minute},
				}},
			})
		}
	}
	return out
}

// droughts are those of a week.
func droughts(random *rand.Rand, began time.Time) (out []stock) {
	lasts := func(mean time.Duration) time.Duration { return time.Duration(random.ExpFloat64() * float64(mean)) }
	dry := random.IntN(3) == 0
	for at := began; at.Before(began.Add(7 * 24 * time.Hour)); dry = !dry {
		if dry {
			out = append(out, stock{at, int32(random.IntN(droughtHolds))})
			at = at.Add(lasts(droughtLasts))
		} else {
			out = append(out, stock{at, int32(plentyHolds + random.IntN(plentyHolds))})
			at = at.Add(lasts(plentyLasts))
		}
	}
	return out
}

// launch asks the pool for machines, as things are.
func (o *offering) launch(count int, now time.Time) ([]pool.Machine, *v1alpha1.KwokError) {
	for _, s := range o.stock {
		if !s.from.After(now) {
			o.pool.Script.Holds = new(s.holds)
		}
	}
	got, refusal := o.pool.Launch(o.state, count, now)
	o.state.Live += len(got)
	o.state.Next += int64(len(got))
	return got, refusal
}

func (o *offering) price() int64 { return nodegroups.MicroUSD(o.object.Spec.PricePerHour) }
