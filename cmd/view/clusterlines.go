package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// ClusterKinds are the kinds in which a manager has its clusters.
var ClusterKinds = []Kind{
	kindOf[kueue.MultiKueueClusterList](kueue.SchemeGroupVersion.Group, "multikueueclusters"),
	kindOf[kueue.WorkloadList](kueue.SchemeGroupVersion.Group, "workloads"),
}

// ClusterLine is a cluster that jobs are given to.
type ClusterLine struct {
	Cluster string `json:"cluster"`
	// Active: the manager is connected to it.
	Active bool `json:"active"`
	// Message says why it is not.
	Message string `json:"message,omitempty"`
	// Running are the jobs that run there, Uses what they hold of the quota here.
	Running int                 `json:"running"`
	Uses    corev1.ResourceList `json:"uses,omitempty"`
	// USDPerHour is what the machines cost that it was to launch for the jobs that run there or were given to it, as far as that was known
	// when it was asked; empty where it is known of none. Priced is how many jobs it is of.
	USDPerHour string `json:"usdPerHour,omitempty"`
	Priced     int    `json:"priced,omitempty"`
	// Nominated are the jobs that were given to it and do not run yet.
	Nominated int `json:"nominated"`
	// Refused are the jobs that wait and that it has refused.
	Refused int `json:"refused"`
	// LastRefusal is the newest of them.
	LastRefusal *dispatch.Refusal `json:"lastRefusal,omitempty"`

	// Last is LastRefusal as text, Held is Uses, devices first.
	Last string   `json:"-"`
	Held []string `json:"-"`
}

// ClusterLines lists the clusters by their names. The objects are of the ClusterKinds.
func ClusterLines(now time.Time, objects []client.Object) []ClusterLine {
	byName, uses, prices := map[string]*ClusterLine{}, map[string]nodegroups.Resources{}, map[string]int64{}
	line := func(name string) *ClusterLine {
		if byName[name] == nil {
			byName[name] = &ClusterLine{Cluster: name, Message: "it has no MultiKueueCluster, and jobs that were given to it"}
			uses[name] = nodegroups.Resources{}
		}
		return byName[name]
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *kueue.MultiKueueCluster:
			l, active := line(o.Name), apimeta.FindStatusCondition(o.Status.Conditions, kueue.MultiKueueClusterActive)
			switch {
			case active == nil:
				l.Message = "its MultiKueueCluster has no condition Active: is the manager of MultiKueue running?"
			case active.Status == metav1.ConditionTrue:
				l.Active, l.Message = true, ""
			default:
				l.Message = active.Message
			}
		case *kueue.Workload:
			switch {
			case workload.IsFinished(o):
			case o.Status.ClusterName != nil:
				l := line(*o.Status.ClusterName)
				l.Running++
				if price := PriceIn(o, l.Cluster); price > 0 {
					l.Priced, prices[l.Cluster] = l.Priced+1, prices[l.Cluster]+price
				}
				for fr, v := range workload.UsageOf(o) {
					u := uses[l.Cluster]
					u[fr.Resource] = nodegroups.Plus(u[fr.Resource], v)
				}
			default:
				for _, name := range o.Status.NominatedClusterNames {
					if price := PriceIn(o, name); price > 0 {
						line(name).Priced, prices[name] = line(name).Priced+1, prices[name]+price
					}
				}
				waitsFor(o, line)
			}
		}
	}
	out := make([]ClusterLine, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		l := byName[name]
		if r := l.LastRefusal; r != nil {
			l.Last = fmt.Sprintf("%s ago, %s", ago(now, r.At), r.Reason)
		}
		if l.Priced > 0 {
			l.USDPerHour = text.USD(prices[name])
		}
		if len(uses[name]) > 0 {
			l.Uses = uses[name].List()
		}
		for _, resource := range devicesFirst(uses[name]) {
			l.Held = append(l.Held, fmt.Sprintf("%s %s", nodegroups.Quantity(resource, uses[name][resource]), resource))
		}
		out = append(out, *l)
	}
	return out
}

// PriceIn is what the machines cost that a cluster was to launch for a Workload, in millionths of a USD per hour; zero where that was not
// known when it was asked.
func PriceIn(w *kueue.Workload, cluster string) int64 {
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if err != nil {
		return 0 // explain says so
	}
	return record.Prices[cluster]
}

// waitsFor counts a Workload that runs nowhere where it has been given to, and where it was refused.
func waitsFor(w *kueue.Workload, line func(string) *ClusterLine) {
	for _, name := range w.Status.NominatedClusterNames {
		line(name).Nominated++
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if err != nil {
		return // explain says so
	}
	for i := range record.Refusals {
		r := &record.Refusals[i]
		l := line(r.Cluster)
		l.Refused++
		if l.LastRefusal == nil || r.At.After(l.LastRefusal.At) {
			l.LastRefusal = r
		}
	}
}
