// Package prices has what machines of AWS cost: on demand by the price list, on Spot by the history of prices in each zone, and by a table
// for as long as neither is known.
package prices

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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// onDemandFor and spotFor are how long prices are good for: those on demand
	// change a few times a year, those of Spot in hours.
	onDemandFor = 12 * time.Hour
	spotFor     = time.Hour
	// Again is the delay before prices are requested again after a failure.
	Again = 5 * time.Minute
	// Patience is how long Refresh waits for prices, and timeout how long one question
	// may take.
	Patience = 5 * time.Second
	timeout  = 30 * time.Second
	// linux is the product, in the price history.
	linux = "Linux/UNIX"
)

// Table has prices of machines in a region, in millionths of a USD per hour.
type Table struct {
	api    *api.Client
	region string
	clock  clock.WithTicker

	mu       sync.Mutex
	onDemand map[string]int64
	// spot by type and zone.
	spot map[[2]string]int64
	// due is when prices are requested again: of each type on demand, and of Spot all together.
	due       map[string]time.Time
	spotKinds []string
	spotDue   time.Time
	// asking is closed when the calls under way are over; nil where none are.
	asking chan struct{}
}

// New returns a Table that has only the prices of the package.
func New(client *api.Client, region string, clock clock.WithTicker) *Table {
	return &Table{api: client, region: region, clock: clock, onDemand: map[string]int64{}, due: map[string]time.Time{}}
}

// Of returns the price of a machine, if known. Without a spot price in the zone it is the
// on-demand price: no discount is assumed.
func (t *Table) Of(kind, zone string, capacityType v1alpha1.CapacityType) (micro int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if capacityType == v1alpha1.Reserved {
		return 0, true // paid for already
	}
	floor := floors[kind]
	if capacityType == v1alpha1.Spot {
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

// Refresh requests prices that are old or missing, and waits for them for a short while: from a
// private network calls of the price list hang, and discovery does not need it. What cannot be
// had stays as it is, and is requested again soon.
func (t *Table) Refresh(ctx context.Context, kinds []string) {
	timer := t.clock.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-t.fetch(ctx, kinds):
	case <-timer.C():
		log.FromContext(ctx).Info("The prices of AWS take long; discovery goes on with those that are known")
	case <-ctx.Done():
	}
}

// fetch requests all prices that are due, unless a fetch is in progress. It returns a channel that is closed when the fetch ends.
func (t *Table) fetch(ctx context.Context, kinds []string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking != nil {
		return t.asking
	}
	now := t.clock.Now()
	demand := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return now.Before(t.due[kind]) })
	spot := len(kinds) > 0 && (!slices.Equal(kinds, t.spotKinds) || !now.Before(t.spotDue))
	done := make(chan struct{})
	t.asking = done
	go func() {
		defer close(done)
		for _, kind := range demand {
			t.fetchOnDemand(ctx, kind)
		}
		if spot {
			t.fetchSpot(ctx, kinds)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asking = nil
	}()
	return done
}

func (t *Table) fetchOnDemand(ctx context.Context, kind string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	micro, err := t.OnDemand(ctx, kind)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		log.FromContext(ctx).Error(err, "The price list cannot be read; older prices stay", "type", kind)
		t.due[kind] = t.clock.Now().Add(Again)
		return
	}
	t.due[kind] = t.clock.Now().Add(onDemandFor)
	if micro > 0 {
		t.onDemand[kind] = micro
	}
}

func (t *Table) fetchSpot(ctx context.Context, kinds []string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now := t.clock.Now()
	spot, err := t.spotPrices(ctx, kinds, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spotKinds, t.spotDue = kinds, now.Add(spotFor); err == nil {
		t.spot = spot
		return
	}
	log.FromContext(ctx).Error(err, "The prices of Spot cannot be read; older prices stay")
	t.spotDue = now.Add(Again)
}

func (t *Table) spotPrices(ctx context.Context, kinds []string, now time.Time) (map[[2]string]int64, error) {
	out := map[[2]string]int64{}
	in := &ec2.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{linux}, StartTime: aws.Time(now)}
	for _, k := range kinds {
		in.InstanceTypes = append(in.InstanceTypes, ec2types.InstanceType(k))
	}
	at := map[[2]string]time.Time{}
	list, err := t.api.DescribeSpotPriceHistory(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		key := [2]string{string(s.InstanceType), aws.ToString(s.AvailabilityZone)}
		micro, err := microUSD(aws.ToString(s.SpotPrice))
		if when := aws.ToTime(s.Timestamp); err == nil && !when.Before(at[key]) {
			out[key], at[key] = micro, when
		}
	}
	return out, nil
}

// OnDemand reads from the price list what a machine costs on demand, 0 for nothing
// found. The list has a product for each way to use a machine: the filters leave one.
func (t *Table) OnDemand(ctx context.Context, kind string) (micro int64, err error) {
	in := &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), FormatVersion: aws.String("aws_v1")}
	for _, f := range [][2]string{
		{"instanceType", kind}, {"regionCode", t.region}, {"operatingSystem", "Linux"}, {"tenancy", "Shared"},
		{"preInstalledSw", "NA"}, {"capacitystatus", "Used"}, {"marketoption", "OnDemand"},
	} {
		in.Filters = append(in.Filters, pricingtypes.Filter{
			Type: pricingtypes.FilterTypeTermMatch, Field: aws.String(f[0]), Value: aws.String(f[1]),
		})
	}
	list, err := t.api.GetProducts(ctx, in)
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
