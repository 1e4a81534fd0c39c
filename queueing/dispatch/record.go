package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Annotation of the manager's Workload holds its Record.
const Annotation = "muster.dev/dispatch"

const (
	// OriginAnnotation of a copy is the UID of the manager's Workload.
	OriginAnnotation = "muster.dev/origin-uid"
	// ManagerAnnotation of a copy is the UID of the namespace kube-system of its manager.
	ManagerAnnotation = "muster.dev/origin-manager"
	// Gate holds a copy back until it is granted.
	Gate = "muster.dev/grant"
)

// ClusterUIDAnnotation of a MultiKueueCluster is the UID of the namespace kube-system in the first cluster that its kubeconfig led to. A
// kubeconfig that leads to another cluster later is not used, since jobs may run in the first one.
const ClusterUIDAnnotation = "muster.dev/cluster-uid"

// HedgeAnnotation of a job, and of its Workload, is how many clusters may be nominated for it at once. Each of them may launch machines
// for it, and the first that has them runs it. It needs a manager that runs Muster: when a stock Kueue loses the connection to the
// cluster that runs a job, it starts the job in another one that has admitted it.
const HedgeAnnotation = "muster.dev/hedge"

// mostHedged bounds the cost of a typing error.
const mostHedged = 5

// ParseHedge parses how many clusters may be nominated at once.
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

// Name is the name of the dispatcher in Kueue's configuration.
const Name = "muster.dev/dispatcher"

// Record is the history of a Workload's nominations.
type Record struct {
	// In are the clusters where a copy may be.
	In []string `json:"in,omitempty"`
	// Prices of the machines that the last nominated clusters would have launched for the job, in millionths of a USD per hour, where
	// there was a price.
	Prices map[string]int64 `json:"prices,omitempty"`
	// Hedge is how many clusters could be nominated at once at the last nomination. Zero means one.
	Hedge int `json:"hedge,omitempty"`
	// Fence of the copy in the cluster that was nominated last; nil without a fence.
	Fence *Fence `json:"fence,omitempty"`
	// At is the time of the last nomination or withdrawal.
	At time.Time `json:"at,omitzero"`
	// Waits is why the job waits for longer than a moment; empty if it does not.
	Waits string `json:"waits,omitempty"`
	// Refusals has the last refusal of each cluster.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is the result of a try.
type Refusal struct {
	Cluster string    `json:"cluster"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
	// Times counts the refusals of the cluster.
	Times int `json:"times"`
	// Copy is the refused copy, so that a repeated step counts once.
	Copy types.UID `json:"copy,omitempty"`
}

// Encode renders the record.
func (r *Record) Encode() string {
	out, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("a record of clusters cannot be marshalled: %v", err)) // plain values always marshal
	}
	return string(out)
}

// DecodeRecord parses what Encode returned. An empty text is a job without nominations.
func DecodeRecord(text string) (r Record, err error) {
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("annotation %s: %w; remove it once no cluster has a copy of the Workload", Annotation, err)
	}
	return r, nil
}

// priced returns the record with the price of the prospect in a cluster, and the prices of the other nominated clusters.
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

// refusal returns the last refusal of the cluster. Its Times is zero if there is none.
func (r *Record) refusal(cluster string) (out Refusal) {
	if i := slices.IndexFunc(r.Refusals, func(f Refusal) bool { return f.Cluster == cluster }); i >= 0 {
		out = r.Refusals[i]
	}
	return out
}

// with returns the record with the clusters added to those that may have a copy.
func (r Record) with(clusters ...string) Record {
	r.In = slices.Clone(r.In)
	for _, c := range clusters {
		if !slices.Contains(r.In, c) {
			r.In = append(r.In, c)
		}
	}
	return r
}

// Refused returns the record with one more refusal.
func (r Record) Refused(f Refusal) Record {
	last := r.refusal(f.Cluster)
	if last.Times > 0 && f.Copy != "" && last.Copy == f.Copy {
		return r
	}
	f.Times = last.Times + 1
	r.Refusals = append(slices.DeleteFunc(slices.Clone(r.Refusals), func(o Refusal) bool { return o.Cluster == f.Cluster }), f)
	return r
}
