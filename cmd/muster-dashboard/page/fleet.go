package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning"
)

// Prices are in USD an hour here, as floating point numbers: they are drawn, and nothing
// is decided by them.
const microUSD = 1e6

// fleet is what the machines of all groups are for, and who pays for them.
type fleet struct {
	// prices of a machine of each group.
	prices map[string]float64
	// purposes count the machines of each group.
	purposes map[string]map[purpose]int
	teams    []teamSpend
	jobs     []jobSpend
}

// purpose is what a machine is paid for, as people who pay see it.
type purpose string

const (
	purposeUsed       purpose = "used"
	purposeBooked     purpose = "booked"     // held for pods that are not there
	purposeIncomplete purpose = "incomplete" // on its way, or held until its gang is whole
	purposeIdle       purpose = "idle"
)

// everyPurpose in the order in which they are told.
var everyPurpose = []purpose{purposeUsed, purposeBooked, purposeIncomplete, purposeIdle}

func purposeFor(n *provisioning.Node) purpose {
	phase := provisioning.Done
	if n.Cordon == provisioning.Joining && n.InFlight {
		phase = provisioning.Launching
	}
	switch provisioning.PurposeOf(cloudprovider.Machine{State: cloudprovider.Running}, phase, n) {
	case provisioning.PurposeUsed:
		return purposeUsed
	case provisioning.PurposeBooked:
		return purposeBooked
	case provisioning.PurposeIdle:
		return purposeIdle
	case provisioning.PurposeJoining, provisioning.PurposeWasted:
	}
	return purposeIncomplete
}

// teamSpend is what one LocalQueue spends. Without a namespace it is nobody's.
type teamSpend struct {
	Namespace  string  `json:"namespace"`
	Queue      string  `json:"queue"`
	USDPerHour float64 `json:"usdPerHour"`
}

// jobSpend is what one job spends.
type jobSpend struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload"`
	Queue     string `json:"queue"`
	// Machines that it has booked, those that it shares included.
	Machines   int     `json:"machines"`
	USDPerHour float64 `json:"usdPerHour"`
	// Since is when the first of them was booked; USD is what they have cost since they
	// were, at the prices of now.
	Since int64   `json:"since"`
	USD   float64 `json:"usd"`
}

// fleetOf counts machines and shares out what they cost: in equal parts among those who
// have booked one; else to the request that it was launched for; else to nobody.
func fleetOf(p *view.Picture) fleet {
	f := fleet{prices: map[string]float64{}, purposes: map[string]map[purpose]int{}}
	machines := map[string]int{}
	for name, g := range p.Groups {
		f.prices[name] = float64(nodegroups.MicroUSD(g.Spec.PricePerHour)) / microUSD
		f.purposes[name] = map[purpose]int{}
		machines[name] = int(g.Status.Machines)
	}
	payers := payersOf(p)
	teams, jobs := map[teamSpend]float64{}, map[types.UID]*jobSpend{}
	for n := range p.Snapshot.Nodes.All() {
		counts := f.purposes[n.Group]
		if counts == nil {
			continue // a machine that no group has
		}
		counts[purposeFor(n)]++
		machines[n.Group]--
		price := f.prices[n.Group]
		for i := range n.Labelled {
			b := &n.Labelled[i]
			share := price / float64(len(n.Labelled))
			payer, known := payers[b.UID]
			teams[teamSpend{Namespace: b.Namespace, Queue: payer.queue}] += share
			if known {
				payer.charge(jobs, b, share, p.Now)
			}
		}
		if len(n.Labelled) > 0 {
			continue
		}
		team := teamSpend{}
		if payer, known := payers[provisioning.TokenUID(n.Launch)]; known && n.InFlight {
			team = teamSpend{Namespace: payer.namespace, Queue: payer.queue}
		}
		teams[team] += price
	}
	for name, left := range machines {
		if left > 0 {
			// They have not registered, and nobody here knows which request each is for.
			f.purposes[name][purposeIncomplete] += left
			teams[teamSpend{}] += float64(left) * f.prices[name]
		}
	}
	f.teams, f.jobs = []teamSpend{}, []jobSpend{}
	for t, usd := range teams {
		t.USDPerHour = usd
		f.teams = append(f.teams, t)
	}
	slices.SortFunc(f.teams, func(a, b teamSpend) int {
		return cmp.Or(cmp.Compare(b.USDPerHour, a.USDPerHour), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Queue, b.Queue))
	})
	for _, j := range jobs {
		f.jobs = append(f.jobs, *j)
	}
	slices.SortFunc(f.jobs, func(a, b jobSpend) int {
		return cmp.Or(cmp.Compare(b.USDPerHour, a.USDPerHour), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Workload, b.Workload))
	})
	return f
}

// spend is what all machines cost in USD an hour.
func (f *fleet) spend() (sum float64) {
	for group, counts := range f.purposes {
		for _, n := range counts {
			sum += float64(n) * f.prices[group]
		}
	}
	return sum
}

// payer is whom a request was made for.
type payer struct{ namespace, name, workload, queue string }

// charge puts a share of a machine on the bill of the payer's job.
func (p payer) charge(jobs map[types.UID]*jobSpend, b *provisioning.Booking, share float64, now time.Time) {
	j := jobs[b.UID]
	if j == nil {
		j = &jobSpend{Namespace: p.namespace, Name: p.name, Workload: p.workload, Queue: p.queue, Since: millis(now)}
		jobs[b.UID] = j
	}
	j.Machines++
	j.USDPerHour += share
	if !b.Since.IsZero() {
		j.Since = min(j.Since, millis(b.Since))
		j.USD += share * max(0, now.Sub(b.Since).Hours())
	}
}

// payersOf are those of the requests, by UID.
func payersOf(p *view.Picture) map[types.UID]payer {
	workloads := make(map[types.UID]*kueue.Workload, len(p.Workloads))
	for _, w := range p.Workloads {
		workloads[w.UID] = w
	}
	out := make(map[types.UID]payer, len(p.Requests))
	for _, r := range p.Requests {
		out[r.UID] = payerOf(r, workloads)
	}
	return out
}

// payerOf is that of a request: the job of its Workload, or the request itself where it
// came from no queue.
func payerOf(r *provreq.ProvisioningRequest, workloads map[types.UID]*kueue.Workload) payer {
	out := payer{namespace: r.Namespace, name: "provisioningrequest/" + r.Name}
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return out
	}
	w := workloads[owner.UID]
	if w == nil {
		return out
	}
	out.name, out.workload, out.queue = "workload/"+w.Name, w.Name, string(w.Spec.QueueName)
	if job := metav1.GetControllerOf(w); job != nil {
		out.name = strings.ToLower(job.Kind) + "/" + job.Name
	}
	return out
}
