package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Annotation of the manager's Workload has its Record.
const Annotation = "muster.dev/dispatch"

const (
	// OriginAnnotation of a copy is the UID of the Workload that it is of.
	OriginAnnotation = "muster.dev/origin-uid"
	// ManagerAnnotation of a copy is the UID of the namespace kube-system of its manager.
	ManagerAnnotation = "muster.dev/origin-manager"
	// Gate holds a copy back until it is awarded.
	Gate = "muster.dev/award"
)

// ClusterUIDAnnotation of a MultiKueueCluster is the UID of the namespace kube-system of the cluster that its kubeconfig led to at first. A
// kubeconfig that leads elsewhere later is not used: jobs may run in the first.
const ClusterUIDAnnotation = "muster.dev/cluster-uid"

// HedgeAnnotation of a job, and of its Workload, is how many clusters may be asked for it at once. Each of them may launch machines for
// it, and the first that has them runs it. It is for a manager that Muster is itself: a stock Kueue that loses sight of the cluster that
// runs a job has the job run in another one that has admitted it as well.
const HedgeAnnotation = "muster.dev/hedge"

// mostHedged bounds what a typing error can cost.
const mostHedged = 5

// ParseHedge reads how many clusters may be asked at once.
func ParseHedge(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostHedged {
		return 1, fmt.Errorf("annotation %s is %q: give a number of clusters from 1 to %d, each of which may launch machines for the job, or "+
			"remove it", HedgeAnnotation, text, mostHedged)
	}
	return n, nil
}

// Name is that of the dispatcher in Kueue's configuration.
const Name = "muster.dev/dispatcher"

// Record is what a Workload says of where it has been.
type Record struct {
	// In are the clusters where a copy may be.
	In []string `json:"in,omitempty"`
	// Prices of the machines that clusters would have launched for the job when they were asked, in millionths of a USD per hour, as far as
	// they were known. They are of the clusters alone that were named last.
	Prices map[string]int64 `json:"prices,omitempty"`
	// Hedge is how many clusters might be asked at once when the last was named; zero for one.
	Hedge int `json:"hedge,omitempty"`
	// Fence of the copy in the cluster that was named last; nil where it has none.
	Fence *Fence `json:"fence,omitempty"`
	// At is when the last cluster was named or withdrawn.
	At time.Time `json:"at,omitzero"`
	// Waits is why the job waits for longer than a moment; empty if it does not.
	Waits string `json:"waits,omitempty"`
	// Refusals are the last of each cluster.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is the end of a try.
type Refusal struct {
	Cluster string    `json:"cluster"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
	// Times counts the refusals of the cluster.
	Times int `json:"times"`
	// Copy is the one that was refused: a step that is repeated counts once.
	Copy types.UID `json:"copy,omitempty"`
}

// Encode renders the record.
func (r *Record) Encode() string {
	out, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("a record of clusters cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// DecodeRecord reads what Encode has rendered; an empty text is a job that has been nowhere.
func DecodeRecord(text string) (r Record, err error) {
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("annotation %s: %w; remove it once no cluster has a copy of the Workload", Annotation, err)
	}
	return r, nil
}

// priced is the record with the price by a prospect of a cluster, and those of the others that were named.
func (r Record) priced(cluster string, p *Prospect, others []string) Record {
	prices := map[string]int64{}
	for _, name := range others {
		if price, known := r.Prices[name]; known {
			prices[name] = price
		}
	}
	if p != nil && p.MicroUSDPerHour > 0 && !p.Unpriced {
		prices[cluster] = p.MicroUSDPerHour
	}
	if r.Prices = nil; len(prices) > 0 {
		r.Prices = prices
	}
	return r
}

// refusal is the last of the cluster; its Times is zero without.
func (r *Record) refusal(cluster string) (out Refusal) {
	if i := slices.IndexFunc(r.Refusals, func(f Refusal) bool { return f.Cluster == cluster }); i >= 0 {
		out = r.Refusals[i]
	}
	return out
}

// with is the record with the clusters among those that may have a copy.
func (r Record) with(clusters ...string) Record {
	r.In = slices.Clone(r.In)
	for _, c := range clusters {
		if !slices.Contains(r.In, c) {
			r.In = append(r.In, c)
		}
	}
	return r
}

// Refused is the record with one more refusal.
func (r Record) Refused(f Refusal) Record {
	last := r.refusal(f.Cluster)
	if last.Times > 0 && f.Copy != "" && last.Copy == f.Copy {
		return r
	}
	f.Times = last.Times + 1
	r.Refusals = append(slices.DeleteFunc(slices.Clone(r.Refusals), func(o Refusal) bool { return o.Cluster == f.Cluster }), f)
	return r
}
