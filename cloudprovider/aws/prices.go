package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// onDemandFor and spotFor are how long prices are good for: those on demand
	// change a few times a year, those of Spot in hours.
	onDemandFor = 12 * time.Hour
	spotFor     = time.Hour
	// priceAgain is how soon prices are asked for again that could not be had.
	priceAgain = 5 * time.Minute
	// pricePatience is how long discovery waits for prices, and priceTimeout how long one question
	// may take.
	pricePatience = 5 * time.Second
	priceTimeout  = 30 * time.Second
	// linux is the product, in the price history.
	linux = "Linux/UNIX"
)

// prices of machines, in millionths of a USD per hour.
type prices struct {
	mu       sync.Mutex
	onDemand map[string]int64
	// spot by type and zone.
	spot map[[2]string]int64
	// due is when prices are asked for again: of each type on demand, and of Spot all together.
	due       map[string]time.Time
	spotKinds []string
	spotDue   time.Time
	// asking is closed when the calls under way are over; nil where none are.
	asking chan struct{}
}

// of returns the price of a machine, if known. Without a spot price in the zone it is the
// on-demand price: no discount is assumed.
func (t *prices) of(kind, zone string, market v1alpha1.CapacityType) (micro int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if market == v1alpha1.Reserved {
		return 0, true // paid for already
	}
	floor := floors[kind]
	if market == v1alpha1.Spot {
		if micro, ok := t.spot[[2]string{kind, zone}]; ok {
			return micro, true
		}
		if floor.spot > 0 {
			return floor.spot * 1000, true
		}
	}
	if micro, ok := t.onDemand[kind]; ok {
		return micro, true
	}
	return floor.onDemand * 1000, floor.onDemand > 0
}

// refresh asks for prices that are old or missing, and waits for them for a short while: from a
// private network calls of the price list hang, and discovery does not need it. What cannot be
// had stays as it is, and is asked for again soon.
func (t *prices) refresh(ctx context.Context, p *Provider, kinds []string) {
	timer := p.config.Clock.NewTimer(pricePatience)
	defer timer.Stop()
	select {
	case <-t.ask(ctx, p, kinds):
	case <-timer.C():
		log.FromContext(ctx).Info("The prices of AWS take long; discovery goes on with those that are known")
	case <-ctx.Done():
	}
}

// ask asks for all prices that are due, unless that is under way. The channel is closed when it
// is over.
func (t *prices) ask(ctx context.Context, p *Provider, kinds []string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking != nil {
		return t.asking
	}
	if t.due == nil {
		t.due, t.onDemand = map[string]time.Time{}, map[string]int64{}
	}
	now := p.config.Clock.Now()
	demand := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return now.Before(t.due[kind]) })
	spot := len(kinds) > 0 && (!slices.Equal(kinds, t.spotKinds) || !now.Before(t.spotDue))
	done := make(chan struct{})
	t.asking = done
	go func() {
		defer close(done)
		for _, kind := range demand {
			t.askOnDemand(ctx, p, kind)
		}
		if spot {
			t.askSpot(ctx, p, kinds)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asking = nil
	}()
	return done
}

func (t *prices) askOnDemand(ctx context.Context, p *Provider, kind string) {
	ctx, cancel := context.WithTimeout(ctx, priceTimeout)
	defer cancel()
	micro, err := p.onDemandPrice(ctx, kind)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		log.FromContext(ctx).Error(err, "The price list cannot be read; older prices stay", "type", kind)
		t.due[kind] = p.config.Clock.Now().Add(priceAgain)
		return
	}
	t.due[kind] = p.config.Clock.Now().Add(onDemandFor)
	if micro > 0 {
		t.onDemand[kind] = micro
	}
}

func (t *prices) askSpot(ctx context.Context, p *Provider, kinds []string) {
	ctx, cancel := context.WithTimeout(ctx, priceTimeout)
	defer cancel()
	now := p.config.Clock.Now()
	spot, err := p.spotPrices(ctx, kinds, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spotKinds, t.spotDue = kinds, now.Add(spotFor); err == nil {
		t.spot = spot
		return
	}
	log.FromContext(ctx).Error(err, "The prices of Spot cannot be read; older prices stay")
	t.spotDue = now.Add(priceAgain)
}

func (p *Provider) spotPrices(ctx context.Context, kinds []string, now time.Time) (map[[2]string]int64, error) {
	out := map[[2]string]int64{}
	in := &ec2.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{linux}, StartTime: aws.Time(now)}
	for _, k := range kinds {
		in.InstanceTypes = append(in.InstanceTypes, ec2types.InstanceType(k))
	}
	at := map[[2]string]time.Time{}
	list, err := p.api.DescribeSpotPriceHistory(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		key := [2]string{string(s.InstanceType), deref(s.AvailabilityZone)}
		micro, err := microUSD(deref(s.SpotPrice))
		if when := deref(s.Timestamp); err == nil && !when.Before(at[key]) {
			out[key], at[key] = micro, when
		}
	}
	return out, nil
}

// onDemandPrice asks the price list for what a machine costs on demand, 0 for nothing
// found. The list has a product for each way to use a machine: the filters leave one.
func (p *Provider) onDemandPrice(ctx context.Context, kind string) (micro int64, err error) {
	in := &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), FormatVersion: aws.String("aws_v1")}
	for _, f := range [][2]string{
		{"instanceType", kind}, {"regionCode", p.config.Region}, {"operatingSystem", "Linux"}, {"tenancy", "Shared"},
		{"preInstalledSw", "NA"}, {"capacitystatus", "Used"}, {"marketoption", "OnDemand"},
	} {
		in.Filters = append(in.Filters, pricingtypes.Filter{
			Type: pricingtypes.FilterTypeTermMatch, Field: aws.String(f[0]), Value: aws.String(f[1]),
		})
	}
	list, err := p.api.GetProducts(ctx, in)
	if err != nil {
		return 0, err
	}
	for _, text := range list {
		found, err := hourly(text)
		if err != nil {
			return 0, fmt.Errorf("GetProducts: %w", err)
		}
		micro = max(micro, found)
	}
	return micro, nil
}

// hourly is the price of an hour on demand in a product of the price list.
func hourly(product string) (micro int64, err error) {
	var in struct {
		Terms struct {
			OnDemand map[string]struct {
				PriceDimensions map[string]struct {
					Unit         string            `json:"unit"`
					PricePerUnit map[string]string `json:"pricePerUnit"`
				} `json:"priceDimensions"`
			}
		} `json:"terms"`
	}
	if err := json.Unmarshal([]byte(product), &in); err != nil {
		return 0, fmt.Errorf("a product cannot be read: %w", err)
	}
	for _, term := range in.Terms.OnDemand {
		for _, d := range term.PriceDimensions {
			if usd := d.PricePerUnit["USD"]; d.Unit == "Hrs" && usd != "" {
				found, err := microUSD(usd)
				if err != nil {
					return 0, fmt.Errorf("the price %q cannot be read: %w", usd, err)
				}
				micro = max(micro, found)
			}
		}
	}
	return micro, nil
}

func microUSD(usd string) (int64, error) {
	q, err := resource.ParseQuantity(usd)
	if err != nil {
		return 0, err
	}
	return nodegroups.MicroUSD(&q), nil
}
