package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var monday = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

func TestWeeksBeginOnMonday(t *testing.T) {
	slots := map[int]bool{}
	for i := range Slots {
		slots[WeekOf(monday.AddDate(0, 0, 7*i)).Slot()] = true
	}
	if len(slots) != Slots {
		t.Errorf("%d weeks in a row have the slots %v", Slots, slots)
	}
	for _, tc := range []struct{ at, want string }{
		{"2026-11-23T00:00:00Z", "2026-11-23"}, {"2026-11-29T23:59:59Z", "2026-11-23"}, {"2026-11-30T00:30:00+01:00", "2026-11-23"},
		{"2027-01-01T12:00:00Z", "2026-12-28"},
	} {
		at, err := time.Parse(time.RFC3339, tc.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := WeekOf(at).String(); got != tc.want {
			t.Errorf("%s is in the week of %s, want %s", tc.at, got, tc.want)
		}
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	r := NewRecord(WeekOf(monday))
	r.Jobs = []Job{{Namespace: "ns", Name: "job/a", Workload: "job-a", Outcome: Finished, Created: monday, Ended: monday.Add(time.Hour)}}
	r.Charge(Cost{Day: "2026-11-24", Namespace: "ns", Group: "g", Purpose: "used", MicroUSD: 2})
	r.Charge(Cost{Day: "2026-11-23", Namespace: "ns", Group: "g", Purpose: "used", MicroUSD: 1})
	r.Charge(Cost{Day: "2026-11-24", Namespace: "ns", Group: "g", Purpose: "used", MicroUSD: 3, Milliseconds: 7})
	r.Groups["g"] = Offering{Provider: "aws", CapacityType: "Spot"}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text)
	if diff := cmp.Diff(r, got); diff != "" || err != nil {
		t.Errorf("(-written +read) %v\n%s", err, diff)
	}
	if len(r.Costs) != 2 || r.Costs[1].MicroUSD != 5 || r.Costs[0].Day != "2026-11-23" {
		t.Errorf("the lines are %+v", r.Costs)
	}
	r.Version++
	if text, err = r.Encode(); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(text); err == nil || !strings.Contains(err.Error(), "of version 2, and not 1") {
		t.Errorf("a record of another version: %v", err)
	}
}

// TestARecordIsBounded: the jobs that ended first are dropped, and what was spent stays.
func TestARecordIsBounded(t *testing.T) {
	const jobs = 30_000
	r := NewRecord(WeekOf(monday))
	for i := range jobs {
		name := fmt.Sprintf("job-train-%d-%05x", i, i*7919%1048576)
		r.Jobs = append(r.Jobs, Job{Namespace: fmt.Sprintf("team-%d", i%20), Name: "job/" + name, Workload: name, Outcome: Finished,
			Queue:        "main",
			ClusterQueue: "research", Pods: int32(i % 64), Devices: map[string]int64{"nvidia.com/gpu": int64(i % 512)},
			Created: monday.Add(time.Duration(i*i%604_800) * time.Second), Started: monday.Add(time.Duration(i*31%604_800) * time.Second),
			Ended: monday.Add(time.Duration(i) * 20 * time.Second)})
		// As Charge keeps them, which is not called here for the sake of time: in their order.
		r.Costs = append(r.Costs, Cost{Day: "2026-11-23", Namespace: fmt.Sprintf("team-%d", i%20), Queue: "main", Workload: name, Group: "h100",
			Purpose: "used", Milliseconds: int64(i) * 977, MicroUSD: int64(i) * 7919, ListMicroUSD: int64(i) * 7919})
	}
	text, err := r.Encode()
	if err != nil || len(text) > MaxBytes {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	got, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, c := range got.Costs {
		sum += c.MicroUSD
	}
	last := got.Jobs[len(got.Jobs)-1].Name
	if sum != 7919*jobs*(jobs-1)/2 || len(got.Jobs)+got.LeftOut != jobs || last != r.Jobs[len(r.Jobs)-1].Name || len(got.Jobs) < 4000 {
		t.Errorf("%d jobs up to %s, %d left out, %d spent", len(got.Jobs), last, got.LeftOut, sum)
	}
	t.Logf("%d jobs take %d bytes", len(got.Jobs), len(text))
}

func TestListPrices(t *testing.T) {
	group := func(name, zone, price string, capacityType v1alpha1.CapacityType, machine string) *v1alpha1.NodeGroup {
		out := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
		out.Spec.Provider, out.Spec.Zone, out.Spec.CapacityType = v1alpha1.ProviderAWS, zone, capacityType
		out.Spec.AWS = &v1alpha1.AWSGroup{InstanceType: machine}
		if price != "" {
			out.Spec.PricePerHour = new(resource.MustParse(price))
		}
		return out
	}
	c := Catalog{
		group("spot-a", "a", "10", v1alpha1.Spot, "p5"), group("spot-c", "c", "10", v1alpha1.Spot, "p5"),
		group("other", "a", "1", v1alpha1.Spot, "p4"),
		group("cheap-b", "b", "20", v1alpha1.OnDemand, "p5"), group("in-a", "a", "30", v1alpha1.OnDemand, "p5"),
		group("unpriced", "a", "", v1alpha1.OnDemand, "p5"),
	}
	for _, tc := range []struct {
		name, group string
		want        int64
	}{
		{"that of the same zone", "spot-a", 30e6}, {"else the lowest", "spot-c", 20e6}, {"of no other type", "other", 0},
		{"on demand it is its own", "in-a", 0}, {"unknown for a group that is gone", "gone", 0},
	} {
		if got, known := c.ListPrice(tc.group); got != tc.want || known != (tc.want > 0) {
			t.Errorf("%s: %d, %t, want %d", tc.name, got, known, tc.want)
		}
	}
}
