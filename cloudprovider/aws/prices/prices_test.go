package prices

import (
	"testing"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestTheTableOfPrices(t *testing.T) {
	const zone = "us-east-1a"
	none := New(nil, "us-east-1", nil)
	for kind, floor := range floors {
		for _, capacityType := range []v1alpha1.CapacityType{v1alpha1.OnDemand, v1alpha1.Spot, v1alpha1.Reserved} {
			micro, ok := none.Of(kind, zone, capacityType)
			switch {
			case capacityType == v1alpha1.Reserved && (micro != 0 || !ok):
				t.Errorf("%s reserved costs %d", kind, micro)
			case capacityType == v1alpha1.OnDemand && ok != (floor.onDemand > 0):
				t.Errorf("%s on demand: known %v", kind, ok)
			case capacityType == v1alpha1.Spot && (!ok || floor.onDemand > 0 && micro > floor.onDemand*1000):
				t.Errorf("%s on Spot costs %d, on demand %d", kind, micro, floor.onDemand*1000)
			}
		}
	}
	if _, ok := none.Of("x1.novel", zone, v1alpha1.OnDemand); ok {
		t.Error("a type in no table has a price")
	}
}
