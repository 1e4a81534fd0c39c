package page

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// Prices are floating point numbers in USD per hour here: they are only drawn, nothing is
// decided by them.
const microUSD = 1e6

// fleet is the purpose and the cost of the machines of all groups, as in `kubectl muster
// cost`.
type fleet struct {
	// prices of a machine of each group.
	prices map[string]float64
	// purposes count the machines of each group.
	purposes map[string]map[purpose]int
	// spend of all machines.
	spend    float64
	teams    []teamSpend
	jobs     []jobSpend
	unpriced []string
	budgets  []view.BudgetCost
}

// purpose is what a machine is paid for.
type purpose string

const (
	purposeUsed       purpose = "used"
	purposeBooked     purpose = "booked"     // held for pods that are not there
	purposeIncomplete purpose = "incomplete" // of a gang that is not whole, or never was
	purposeIdle       purpose = "idle"
)

// everyPurpose in display order.
var everyPurpose = []purpose{purposeUsed, purposeBooked, purposeIncomplete, purposeIdle}

func purposesOf(l *view.CostLine) map[purpose]int {
	return map[purpose]int{purposeUsed: l.Used, purposeBooked: l.Booked, purposeIncomplete: l.Joining + l.Wasted, purposeIdle: l.Idle}
}

// teamSpend is the spend of one LocalQueue; without a namespace, of no team.
type teamSpend struct {
	Namespace  string  `json:"namespace"`
	Queue      string  `json:"queue"`
	USDPerHour float64 `json:"usdPerHour"`
}

// jobSpend is the spend of one job.
type jobSpend struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Workload of the job; empty if there is none to explain.
	Workload   string  `json:"workload,omitempty"`
	Queue      string  `json:"queue"`
	Machines   int     `json:"machines"`
	USDPerHour float64 `json:"usdPerHour"`
	// USD is the cost of its machines so far, at current prices.
	USD float64 `json:"usd"`
}

func fleetOf(p *view.Picture) fleet {
	costs := p.Costs()
	f := fleet{
		prices: map[string]float64{}, purposes: map[string]map[purpose]int{}, spend: usd(costs.Total.USDPerHour),
		teams: []teamSpend{}, jobs: []jobSpend{}, unpriced: costs.Unpriced, budgets: costs.Budgets,
	}
	for name, g := range p.Groups {
		f.prices[name] = float64(nodegroups.MicroUSD(g.Spec.PricePerHour)) / microUSD
	}
	for i := range costs.Groups {
		g := &costs.Groups[i]
		f.purposes[g.Group] = purposesOf(&g.CostLine)
	}
	for i := range costs.Tenants {
		t := &costs.Tenants[i]
		f.teams = append(f.teams, teamSpend{Namespace: t.Namespace, Queue: t.Queue, USDPerHour: usd(t.USDPerHour)})
	}
	names := workloadsByJob(p)
	for i := range costs.Jobs {
		j := &costs.Jobs[i]
		f.jobs = append(f.jobs, jobSpend{
			Namespace: j.Namespace, Name: j.Name, Workload: names[workload{j.Namespace, j.Name}], Queue: j.Queue,
			Machines: j.Machines, USDPerHour: usd(j.USDPerHour), USD: usd(j.SoFar),
		})
	}
	return f
}

// usd parses an amount as written by provisioning.USD.
func usd(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

// workloadsByJob finds the Workload of a job that has quota.
func workloadsByJob(p *view.Picture) map[workload]string {
	out := map[workload]string{}
	for _, w := range p.Workloads {
		if workloads.HasQuota(w) && !workloads.IsFinished(w) {
			name := "workload/" + w.Name
			if owner := metav1.GetControllerOf(w); owner != nil {
				name = strings.ToLower(owner.Kind) + "/" + owner.Name
			}
			out[workload{w.Namespace, name}] = w.Name
		}
	}
	return out
}
