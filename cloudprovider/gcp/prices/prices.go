// Package prices has the prices of machines on Google Cloud: from the billing catalog of Compute Engine, or where that lacks them, a table.
package prices

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/cloudbilling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
)

const (
	// hold is how long prices count before they are requested again: the cloud
	// changes those of Spot VMs once a day at most. After a failure they are requested
	// sooner.
	hold  = 12 * time.Hour
	retry = 5 * time.Minute
	// timeout is how long the catalog may take: discovery goes on without it where a private
	// network does not let the call through.
	timeout = 5 * time.Second
)

// Provisioning models that have prices.
var (
	modelStandard = computepb.Scheduling_STANDARD.String()
	modelSpot     = computepb.Scheduling_SPOT.String()
)

// Offering is what has a price: one consumption model of a machine type.
type Offering struct {
	Region string
	Shape  *computepb.MachineType
	// Model is the provisioning model, such as SPOT.
	Model string
	// Reserved machines are paid for whether or not there are any.
	Reserved bool
}

// floor are prices in USD per hour that the catalog lacks: on demand and on
// Spot, of us-central1 unless the comment says else. As of 20 November 2026.
var floor = map[string]struct{ onDemand, spot string }{
	"a2-highgpu-1g":  {"3.673", ""},
	"a2-highgpu-8g":  {"29.387", "15.3"},
	"a2-ultragpu-1g": {"5.069", ""},
	"a2-ultragpu-8g": {"40.550", "21.7"},
	"a3-highgpu-8g":  {"87.83", "47.87"}, // on demand: us-east4
	"a3-megagpu-8g":  {"92.21", "50.20"},
	"a3-ultragpu-8g": {"86.76", "47.66"},
	"a4-highgpu-8g":  {"", "37.75"},
	"g2-standard-4":  {"0.707", ""},
	"g2-standard-12": {"1.000", ""},
	"g2-standard-24": {"2.001", ""},
	"g2-standard-48": {"4.002", ""},
	"g2-standard-96": {"8.003", ""},
}

// parts is what the catalog calls the parts of a machine family that are paid for: each by the first of its names that has a price, since
// the catalog has been seen to use several. One without names is paid for with the others.
type parts struct {
	family         string // of machine types that begin so
	core, ram, gpu []string
}

// families by machine type, the longer prefixes first.
var families = []parts{
	{"a2-ultragpu-", []string{"A2 Instance Core"}, []string{"A2 Instance Ram"}, []string{"Nvidia Tesla A100 80GB GPU"}},
	{"a2-", []string{"A2 Instance Core"}, []string{"A2 Instance Ram"}, []string{"Nvidia Tesla A100 GPU"}},
	{"a3-ultragpu-", []string{"A3Ultra Instance Core", "A3 Ultra Instance Core"}, []string{"A3Ultra Instance Ram", "A3 Ultra Instance Ram"},
		[]string{"H200 141GB GPU", "Nvidia H200 141GB GPU"}},
	{"a3-megagpu-", []string{"A3Plus Instance Core"}, []string{"A3Plus Instance Ram"},
		[]string{"Nvidia H100 80GB Mega GPU", "Nvidia H100 Mega 80GB GPU"}},
	{"a3-highgpu-", []string{"A3 Instance Core"}, []string{"A3 Instance Ram"}, []string{"Nvidia H100 80GB GPU"}},
	// A slice is a GPU with its share of the machine.
	{"a4x-", nil, nil, []string{"A4X Nvidia GB200 (1 gpu slice)"}}, // named as that of A4 is; not seen in a catalog yet
	{"a4-", nil, nil, []string{"A4 Nvidia B200 (1 gpu slice)"}},
	{"g2-", []string{"G2 Instance Core"}, []string{"G2 Instance Ram"}, []string{"Nvidia L4 GPU"}},
	{"g4-", []string{"G4 Instance Core"}, []string{"G4 Instance Ram"}, []string{"RTX 6000 96GB"}},
	{"h4d-", []string{"H4D Instance Core"}, []string{"H4D Instance Ram"}, nil},
}

// Book has the prices. It is safe for concurrent use.
type Book struct {
	cloud *api.Client
	clock clock.WithTicker

	mu sync.Mutex
	// next is when the catalog is read again.
	next time.Time
	// microUSD per hour of a unit, by region, model and description.
	microUSD map[string]int64
}

// New returns a Book that has not read the catalog yet.
func New(cloud *api.Client, clock clock.WithTicker) *Book { return &Book{cloud: cloud, clock: clock} }

func priceKey(region, model, description string) string {
	return region + "|" + model + "|" + description
}

// Of is the price of an hour of one machine: the catalog's where it has all parts, else the
// floor's; nil where neither has one.
func (b *Book) Of(o Offering) *resource.Quantity {
	if o.Reserved {
		return &resource.Quantity{}
	}
	if micro, ok := b.catalog(o); ok {
		return resource.NewScaledQuantity(micro, resource.Micro)
	}
	usd := floor[o.Shape.GetName()].onDemand
	if o.Model == modelSpot {
		usd = floor[o.Shape.GetName()].spot
	}
	if usd == "" {
		return nil
	}
	q := resource.MustParse(usd)
	return &q
}

// catalog adds up the parts of a machine, all of one model. What the catalog says of
// flex-start cannot be distinguished with certainty, so there is none of it.
func (b *Book) catalog(o Offering) (int64, bool) {
	i := slices.IndexFunc(families, func(f parts) bool { return strings.HasPrefix(o.Shape.GetName(), f.family) })
	if i < 0 || o.Model != modelStandard && o.Model != modelSpot {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var gpus, sum int64
	for _, a := range o.Shape.GetAccelerators() {
		gpus += int64(a.GetGuestAcceleratorCount())
	}
	for _, part := range []struct {
		names  []string
		amount int64
	}{
		{families[i].core, int64(o.Shape.GetGuestCpus())}, {families[i].ram, int64(o.Shape.GetMemoryMb()) / 1024}, {families[i].gpu, gpus},
	} {
		var unit int64
		for _, name := range part.names {
			unit = cmp.Or(unit, b.microUSD[priceKey(o.Region, o.Model, name)])
		}
		if len(part.names) > 0 && unit == 0 {
			return 0, false
		}
		sum += unit * part.amount
	}
	return sum, true
}

// Refresh reads the catalog where it is time to. Without it things go on with
// the prices that are known.
func (b *Book) Refresh(ctx context.Context) {
	b.mu.Lock()
	due := !b.clock.Now().Before(b.next)
	b.mu.Unlock()
	if !due {
		return
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := b.clock.NewTimer(timeout)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-wait.Done():
		}
	}()
	found := map[string]int64{}
	lines, err := b.cloud.SKUs(wait)
	for _, sku := range lines {
		note(found, sku)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		log.FromContext(ctx).Error(fmt.Errorf("reading the billing catalog: %w", err), "Prices stay as they are known")
		b.next = b.clock.Now().Add(retry)
		return
	}
	b.microUSD, b.next = found, b.clock.Now().Add(hold)
}

// note takes a line of the catalog if it is a part of a family, under exactly one
// consumption model: lines of commitments, reservations, flex-start and the like
// bear the same words and more.
func note(into map[string]int64, sku *cloudbilling.Sku) {
	part, model, ok := partOf(sku)
	if !ok || len(sku.PricingInfo) == 0 || sku.PricingInfo[0].PricingExpression == nil {
		return
	}
	rates := sku.PricingInfo[0].PricingExpression.TieredRates
	if len(rates) == 0 || rates[len(rates)-1].UnitPrice == nil {
		return
	}
	price := rates[len(rates)-1].UnitPrice
	for _, region := range sku.ServiceRegions {
		into[priceKey(region, model, part)] = price.Units*1_000_000 + price.Nanos/1000
	}
}

const (
	spotPrefix = "Spot Preemptible "
	spotSuffix = " attached to Spot Preemptible VMs"
)

// partOf is the part that a line is about, and its consumption model.
func partOf(sku *cloudbilling.Sku) (part, model string, ok bool) {
	part, _, _ = strings.Cut(sku.Description, " running in ")
	if sku.Category == nil || sku.Category.UsageType != "OnDemand" && sku.Category.UsageType != "Preemptible" {
		return "", "", false
	}
	// The description decides: some lines of Spot have the usage type OnDemand.
	model = modelStandard
	if spot := strings.TrimSuffix(strings.TrimPrefix(part, spotPrefix), spotSuffix); spot != part {
		part, model = spot, modelSpot
	} else if sku.Category.UsageType == "Preemptible" {
		return "", "", false
	}
	return part, model, slices.ContainsFunc(families, func(f parts) bool {
		return slices.Contains(f.core, part) || slices.Contains(f.ram, part) || slices.Contains(f.gpu, part)
	})
}
