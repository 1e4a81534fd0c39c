package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/history"
)

// FOCUSVersion is the version of the FinOps Open Cost and Usage Specification that FOCUS follows.
const FOCUSVersion = "1.2"

// focusColumns are the columns of the export, by their IDs in the specification
// (https://focus.finops.org/focus-specification/v1-2/). Those that begin with x_ are our own, as it provides for.
var focusColumns = []string{
	"AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
	"ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity",
	"ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingCategory", "PricingQuantity", "PricingUnit",
	"ProviderName", "PublisherName", "RegionId", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "SkuId",
	"SubAccountId", "SubAccountName", "Tags", "x_Job", "x_Namespace", "x_Purpose", "x_Queue", "x_User",
}

// pricing are the categories of FOCUS by capacity type. What is reserved is paid for by another charge, which Muster does not see.
var pricing = map[string]string{
	string(v1alpha1.Spot): "Dynamic", string(v1alpha1.OnDemand): "Standard", string(v1alpha1.Reserved): "Committed",
}

// FOCUS has the costs of a month, such as 2026-11, or of all days if that is empty: a row for each day, payer, group and purpose. The
// cluster is the billing account. Costs are to the millionth of a USD, so their sums are those of the record.
func (p *Past) FOCUS(cluster, month string) (columns []string, rows [][]string, err error) {
	names := map[[2]string]string{}
	for i := range p.Jobs {
		names[[2]string{p.Jobs[i].Namespace, p.Jobs[i].Workload}] = p.Jobs[i].Name
	}
	for i := range p.Costs {
		c := &p.Costs[i]
		if !strings.HasPrefix(c.Day, month) {
			continue
		}
		job := c.Workload
		if job != "" && !strings.Contains(job, "/") {
			job = cmp.Or(names[[2]string{c.Namespace, c.Workload}], "workload/"+c.Workload)
		}
		row, err := focusRow(c, p.Groups[c.Group], cluster, job)
		if err != nil {
			return nil, nil, err
		}
		out := make([]string, len(focusColumns))
		for i, column := range focusColumns {
			out[i] = row[column]
		}
		rows = append(rows, out)
	}
	return focusColumns, rows, nil
}

func focusRow(c *history.Cost, of history.Offering, cluster, job string) (map[string]string, error) {
	day, err := time.Parse(time.DateOnly, c.Day)
	if err != nil {
		return nil, fmt.Errorf("the record has a cost of the day %q: %w", c.Day, err)
	}
	month := time.Date(day.Year(), day.Month(), 1, 0, 0, 0, 0, time.UTC)
	tags, err := json.Marshal(map[string]string{"muster.dev/node-group": c.Group, "muster.dev/capacity-type": of.CapacityType})
	if err != nil {
		return nil, err
	}
	hours, usd := Decimal(c.Milliseconds*1000/3600), Decimal(c.MicroUSD)
	provider := strings.ToUpper(cmp.Or(of.Provider, "unknown"))
	row := map[string]string{
		"AvailabilityZone": of.Zone, "RegionId": of.Region, "SkuId": of.MachineType, "Tags": string(tags),
		"BilledCost": usd, "ContractedCost": usd, "EffectiveCost": usd, "ListCost": Decimal(c.ListMicroUSD),
		"BillingAccountId": cluster, "BillingAccountName": "Kubernetes cluster " + cluster, "BillingCurrency": "USD",
		"BillingPeriodStart": focusTime(month), "BillingPeriodEnd": focusTime(month.AddDate(0, 1, 0)),
		"ChargePeriodStart": focusTime(day), "ChargePeriodEnd": focusTime(day.AddDate(0, 0, 1)),
		"ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based",
		"ChargeDescription": fmt.Sprintf("Machines of NodeGroup %s, %s", c.Group, c.Purpose),
		"ConsumedQuantity":  hours, "ConsumedUnit": "Hours", "PricingQuantity": hours, "PricingUnit": "Hours",
		"PricingCategory":   cmp.Or(pricing[of.CapacityType], "Other"),
		"InvoiceIssuerName": provider, "ProviderName": provider, "PublisherName": provider,
		"ResourceId": c.Group, "ResourceName": c.Group, "ResourceType": "NodeGroup",
		"ServiceCategory": "Compute", "ServiceName": "Virtual machines",
		"SubAccountId": c.Namespace, "SubAccountName": c.Namespace,
		"x_Job": job, "x_Namespace": c.Namespace, "x_Purpose": c.Purpose, "x_Queue": c.Queue, "x_User": c.User,
	}
	return row, nil
}

func focusTime(t time.Time) string { return t.Format(time.RFC3339) }

// Decimal writes millionths as an amount without an exponent.
func Decimal(millionths int64) string { return fmt.Sprintf("%d.%06d", millionths/1e6, millionths%1e6) }
