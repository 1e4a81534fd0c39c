package aws

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func (f *Front) describeSpotPriceHistory(p *params) []element {
	kinds, products := p.texts("InstanceType"), p.texts("ProductDescription")
	p.text("StartTime") // only the price in force is simulated
	if len(products) != 1 || products[0] != "Linux/UNIX" {
		panic(invalid("ProductDescription is %v: only Linux/UNIX is simulated", products))
	}
	var found []cloudsim.PoolKey
	for _, pool := range f.world.Pools() {
		if pool.Cloud == v1alpha1.ProviderAWS && pool.CapacityType == v1alpha1.Spot && slices.Contains(kinds, pool.Type) && len(pool.Prices) > 0 {
			found = append(found, pool.PoolKey)
		}
	}
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("spotPriceHistorySet", each("item", found, func(k cloudsim.PoolKey) []element {
		price, _ := f.world.Price(k)
		return []element{el("instanceType", k.Type), el("availabilityZone", k.Zone), el("productDescription", "Linux/UNIX"),
			el("spotPrice", fmt.Sprintf("%d.%06d", price/1e6, price%1e6)), el("timestamp", f.world.Now().Truncate(time.Hour))}
	})), el("nextToken", next)}
}

func (f *Front) getSpotPlacementScores(p *params) []element {
	kinds, regions := p.texts("InstanceType"), p.texts("RegionName")
	target, single := p.number("TargetCapacity"), p.is("SingleAvailabilityZone")
	if target < 1 || !single || len(regions) != 1 || regions[0] != f.config.Region {
		panic(invalid("only scores of single zones of the region are simulated, for at least one machine"))
	}
	found := slices.DeleteFunc(slices.Clone(f.config.Scores), func(s Score) bool { return !slices.Contains(kinds, s.Type) })
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("spotPlacementScoreSet", each("item", found, func(s Score) []element {
		return []element{el("region", f.config.Region), el("availabilityZoneId", zoneID(s.Zone)), el("score", s.Score)}
	})), el("nextToken", next)}
}

// getProducts answers with the products of EC2 in the price list.
func (f *Front) getProducts(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ServiceCode, FormatVersion, NextToken string

		MaxResults int
		Filters    []struct{ Type, Field, Value string }
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil || in.ServiceCode != "AmazonEC2" {
		panic(&cloudsim.Error{Status: http.StatusBadRequest, Code: "InvalidParameterException",
			Message: fmt.Sprintf("ServiceCode is %q: only AmazonEC2 is simulated: %v", in.ServiceCode, err)})
	}
	want := filters{}
	for _, filter := range in.Filters {
		if filter.Type != "TERM_MATCH" {
			panic(&cloudsim.Error{Status: http.StatusBadRequest, Code: "InvalidParameterException",
				Message: "only filters of type TERM_MATCH are simulated"})
		}
		want[filter.Field] = append(want[filter.Field], filter.Value)
	}
	var list []string
	for _, t := range f.config.Types {
		if t.OnDemandUSD == "" {
			continue
		}
		// The price list has a product for each way to use a machine. Only one of them is the price of a machine on demand.
		for _, status := range []string{"Used", "UnusedCapacityReservation", "AllocatedCapacityReservation"} {
			price := t.OnDemandUSD
			if status == "AllocatedCapacityReservation" {
				price = "0.0000000000"
			}
			attributes := map[string]string{
				"instanceType": t.Name, "regionCode": f.config.Region, "operatingSystem": "Linux", "tenancy": "Shared",
				"preInstalledSw": "NA", "capacitystatus": status, "marketoption": "OnDemand",
			}
			if !want.match(attributes, nil) {
				continue
			}
			out, err := json.Marshal(map[string]any{
				"product": map[string]any{"productFamily": "Compute Instance", "attributes": attributes},
				"terms": map[string]any{"OnDemand": map[string]any{"SKU.JRTCKXETXF": map[string]any{"priceDimensions": map[string]any{
					"SKU.JRTCKXETXF.6YS6EN2CT7": map[string]any{"unit": "Hrs", "pricePerUnit": map[string]string{"USD": price}},
				}}}},
			})
			if err != nil {
				panic(err)
			}
			list = append(list, string(out))
		}
	}
	writePage(w, map[string]any{"FormatVersion": "aws_v1"}, "PriceList", list, f.config.PageSize, in.NextToken)
}

// writePage writes a reply with the page of a list that the token names, the first one without a token. A size of zero is that of the list.
func writePage[T any](w http.ResponseWriter, reply map[string]any, field string, list []T, size int, token string) {
	reply[field] = list
	if from := 0; size > 0 {
		_, _ = fmt.Sscanf(token, "from-%d", &from) // no token: from the first
		to := min(from+size, len(list))
		reply[field] = list[from:to]
		if to < len(list) {
			reply["NextToken"] = fmt.Sprintf("from-%d", to)
		}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if err := json.NewEncoder(w).Encode(reply); err != nil {
		panic(http.ErrAbortHandler)
	}
}
