package gcp

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
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// pricesHold is how long prices count before they are asked for again: the cloud
	// changes those of Spot VMs once a day at most. After a failure they are asked for
	// sooner.
	pricesHold  = 12 * time.Hour
	pricesRetry = 5 * time.Minute
	// pricesWait is how long the catalog may take: discovery goes on without it where a private
	// network does not let the call through.
	pricesWait = 5 * time.Second
)

// offering is what has a price: one consumption model of a machine type.
type offering struct {
	region string
	shape  *computepb.MachineType
	model  string
	// reserved machines are paid for whether or not there are any.
	reserved bool
}

// floor are prices in USD per hour where the catalog has told none: on demand and on
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
	{"a4-", nil, nil, []string{"A4 Nvidia B200 (1 gpu slice)"}},
	{"g2-", []string{"G2 Instance Core"}, []string{"G2 Instance Ram"}, []string{"Nvidia L4 GPU"}},
	{"g4-", []string{"G4 Instance Core"}, []string{"G4 Instance Ram"}, []string{"RTX 6000 96GB"}},
	{"h4d-", []string{"H4D Instance Core"}, []string{"H4D Instance Ram"}, nil},
}

// prices are the lines of the catalog that are wanted, as last read.
type prices struct {
	mu   sync.Mutex
	next time.Time
	// microUSD per hour of a unit, by region, model and description.
	microUSD map[string]int64
}

func priceKey(region, model, description string) string {
	return region + "|" + model + "|" + description
}

// price of an hour of one machine: the catalog's where it has all parts, else the
// floor's; nil where neither knows.
func (p *Provider) price(o offering) *resource.Quantity {
	if o.reserved {
		return &resource.Quantity{}
	}
	if micro, ok := p.prices.of(o); ok {
		return resource.NewScaledQuantity(micro, resource.Micro)
	}
	usd := floor[o.shape.GetName()].onDemand
	if o.model == modelSpot {
		usd = floor[o.shape.GetName()].spot
	}
	if usd == "" {
		return nil
	}
	q := resource.MustParse(usd)
	return &q
}

// of adds up the parts of a machine, all of one model. What the catalog says of
// flex-start is not told apart with certainty, so there is none of it.
func (c *prices) of(o offering) (int64, bool) {
	i := slices.IndexFunc(families, func(f parts) bool { return strings.HasPrefix(o.shape.GetName(), f.family) })
	if i < 0 || o.model != modelStandard && o.model != modelSpot {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var gpus, sum int64
	for _, a := range o.shape.GetAccelerators() {
		gpus += int64(a.GetGuestAcceleratorCount())
	}
	for _, part := range []struct {
		names  []string
		amount int64
	}{
		{families[i].core, int64(o.shape.GetGuestCpus())}, {families[i].ram, int64(o.shape.GetMemoryMb()) / 1024}, {families[i].gpu, gpus},
	} {
		var unit int64
		for _, name := range part.names {
			unit = cmp.Or(unit, c.microUSD[priceKey(o.region, o.model, name)])
		}
		if len(part.names) > 0 && unit == 0 {
			return 0, false
		}
		sum += unit * part.amount
	}
	return sum, true
}

// refreshPrices reads the catalog where it is time to. Without it things go on with
// the prices that are known.
func (p *Provider) refreshPrices(ctx context.Context) {
	p.prices.mu.Lock()
	due := !p.Clock.Now().Before(p.prices.next)
	p.prices.mu.Unlock()
	if !due {
		return
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := p.Clock.NewTimer(pricesWait)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-wait.Done():
		}
	}()
	found := map[string]int64{}
	lines, err := p.cloud.SKUs(wait)
	for _, sku := range lines {
		note(found, sku)
	}
	p.prices.mu.Lock()
	defer p.prices.mu.Unlock()
	if err != nil {
		log.FromContext(ctx).Error(fmt.Errorf("reading the billing catalog: %w", err), "Prices stay as they are known")
		p.prices.next = p.Clock.Now().Add(pricesRetry)
		return
	}
	p.prices.microUSD, p.prices.next = found, p.Clock.Now().Add(pricesHold)
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
