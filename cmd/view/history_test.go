package view

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/muster-dev/muster/queueing/history"
)

// pastWeek is a record of two jobs of two queues, and of what they and idle machines cost.
func pastWeek() *history.Record {
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	r := history.NewRecord(history.WeekOf(monday))
	ended := func(namespace, name string, outcome history.Outcome, ran time.Duration) history.Job {
		return history.Job{Namespace: namespace, Name: "job/" + name, Workload: "job-" + name, Outcome: outcome, Queue: "gpus", Created: monday,
			Started: monday.Add(time.Hour), Ended: monday.Add(time.Hour + ran), Devices: map[string]int64{"nvidia.com/gpu": 8}}
	}
	r.Jobs = []history.Job{ended("a", "train", history.Finished, 2*time.Hour), ended("b", "eval", history.Failed, time.Hour)}
	r.Jobs[0].User = "alice"
	r.Groups["h100"] = history.Offering{Provider: "aws", Zone: "us-east-1a", Region: "us-east-1", CapacityType: "Spot",
		MachineType: "p5.48xlarge"}
	for _, c := range []history.Cost{
		{Day: "2026-11-23", Namespace: "a", Queue: "gpus", Workload: "job-train", User: "alice", Purpose: "used", Milliseconds: 7_200_000, MicroUSD: 20_009_999,
			ListMicroUSD: 40_000_000},
		{Day: "2026-11-23", Namespace: "a", Queue: "gpus", Purpose: "idle", Milliseconds: 360_000, MicroUSD: 1_000_000, ListMicroUSD: 2_000_000},
		{Day: "2026-11-24", Namespace: "b", Queue: "gpus", Workload: "job-eval", Purpose: "wasted", MicroUSD: 5_000_000, ListMicroUSD: 5_000_000},
		{Day: "2026-11-24", Purpose: "idle", MicroUSD: 500_000, ListMicroUSD: 500_000},
	} {
		c.Group = "h100"
		r.Charge(c)
	}
	return r
}

func TestThePastByJobAndQueue(t *testing.T) {
	p := pastOf([]*history.Record{pastWeek()}, "", time.Time{})
	if len(p.Jobs) != 2 || p.Jobs[0].Name != "job/train" || p.Jobs[0].USD != "20.00" || p.Jobs[0].WaitedSeconds != 3600 ||
		p.Jobs[0].RanSeconds != 7200 {
		t.Errorf("the jobs are %+v", p.Jobs)
	}
	want := []PastSum{
		{Of: "a/gpus", Jobs: 1, WaitedSeconds: 3600, RanSeconds: 7200, DeviceHours: 16, USD: "21.00", Unused: "1.00"},
		{Of: "b/gpus", Jobs: 1, Failed: 1, WaitedSeconds: 3600, RanSeconds: 3600, DeviceHours: 8, USD: "5.00", Unused: "5.00"},
		{Of: "", USD: "0.50", Unused: "0.50"},
	}
	ignored := []cmp.Option{cmpopts.IgnoreUnexported(PastSum{}), cmpopts.IgnoreFields(PastSum{}, "WaitedText", "RanText")}
	if diff := cmp.Diff(want, p.Sums("queue"), ignored...); diff != "" {
		t.Errorf("by queue (-want +got)\n%s", diff)
	}
	byUser := []PastSum{
		{Of: "alice", Jobs: 1, WaitedSeconds: 3600, RanSeconds: 7200, DeviceHours: 16, USD: "20.00", Unused: "0.00"},
		{Of: "", Jobs: 1, Failed: 1, WaitedSeconds: 3600, RanSeconds: 3600, DeviceHours: 8, USD: "6.50", Unused: "6.50"},
	}
	if diff := cmp.Diff(byUser, p.Sums("user"), ignored...); diff != "" {
		t.Errorf("by user (-want +got)\n%s", diff)
	}
	if by := p.Sums("week"); len(by) != 1 || by[0].Of != "2026-11-23" || by[0].USD != "26.50" {
		t.Errorf("by week: %+v", by)
	}
	later := pastOf([]*history.Record{pastWeek()}, "a", time.Date(2026, 11, 23, 2, 30, 0, 0, time.UTC))
	if len(later.Jobs) != 1 || len(later.Costs) != 2 {
		t.Errorf("of namespace a since half past two: %+v", later)
	}
}

func TestEndedJobsHaveTheirCosts(t *testing.T) {
	lines := []JobLine{
		{Namespace: "a", Workload: "job-train", State: Finished}, {Namespace: "b", Workload: "job-eval", State: Failed},
		{Namespace: "a", Workload: "job-eval", State: Finished}, {Namespace: "a", Workload: "job-train", State: Running, USDSoFar: "1.00"},
	}
	pastOf([]*history.Record{pastWeek()}, "", time.Time{}).AddCosts(lines)
	for i, want := range []string{"20.00", "5.00", "", "1.00"} {
		if lines[i].USDSoFar != want {
			t.Errorf("line %d: %q, want %q", i, lines[i].USDSoFar, want)
		}
	}
}

// TestTheExportAddsUpToTheRecord, to the millionth of a USD, with the columns that FOCUS calls mandatory, and with idle machines apart.
func TestTheExportAddsUpToTheRecord(t *testing.T) {
	p := pastOf([]*history.Record{pastWeek()}, "", time.Time{})
	columns, rows, err := p.FOCUS("cluster-uid", "")
	if err != nil || len(rows) != len(pastWeek().Costs) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	// https://focus.finops.org/focus-specification/v1-2/, feature level Mandatory.
	for _, name := range []string{"BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
		"BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
		"EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory",
		"ServiceName"} {
		i := slices.Index(columns, name)
		if i < 0 || rows[0][i] == "" && name != "ChargeClass" { // which is null but for corrections
			t.Errorf("column %s is %d", name, i)
		}
	}
	sums := map[string]*big.Rat{}
	var used map[string]string
	for _, row := range rows {
		of := map[string]string{}
		for i, column := range columns {
			of[column] = row[i]
		}
		for _, column := range []string{"EffectiveCost", "ListCost"} {
			v, ok := new(big.Rat).SetString(of[column])
			if !ok {
				t.Fatalf("%s is %q", column, of[column])
			}
			if sums[column] == nil {
				sums[column] = new(big.Rat)
			}
			sums[column].Add(sums[column], v)
		}
		if of["x_Purpose"] == "used" {
			used = of
		}
	}
	if got := sums["EffectiveCost"].FloatString(6); got != "26.509999" {
		t.Errorf("the rows sum up to %s USD", got)
	}
	if got := sums["ListCost"].FloatString(6); got != "47.500000" {
		t.Errorf("the rows sum up to %s USD at list prices", got)
	}
	for column, want := range map[string]string{"x_Job": "job/train", "x_User": "alice", "x_Queue": "gpus", "SubAccountId": "a",
		"EffectiveCost": "20.009999",
		"ListCost":      "40.000000", "PricingQuantity": "2.000000", "PricingCategory": "Dynamic", "ProviderName": "AWS", "SkuId": "p5.48xlarge",
		"ChargePeriodStart": "2026-11-23T00:00:00Z", "ChargePeriodEnd": "2026-11-24T00:00:00Z", "BillingPeriodEnd": "2026-12-01T00:00:00Z",
		"Tags": `{"muster.dev/capacity-type":"Spot","muster.dev/node-group":"h100"}`} {
		if used[column] != want {
			t.Errorf("%s is %q, want %q", column, used[column], want)
		}
	}
	if _, rows, _ := p.FOCUS("cluster-uid", "2026-12"); len(rows) > 0 {
		t.Errorf("of another month there are %d rows", len(rows))
	}
}
