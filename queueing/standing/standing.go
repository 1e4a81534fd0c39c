// Package standing is what Muster publishes on a LocalQueue for users that may only read its namespace: the positions and expected starts
// of their own jobs, and the free quota and the prices of the ClusterQueue. It contains nothing about other namespaces.
package standing

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/text"
)

// Annotation of a LocalQueue that has its Standing, as JSON.
const Annotation = "muster.dev/standing"

// MostPlaces are published for a LocalQueue, the first in the line: some 100 bytes each.
const MostPlaces = 200

// Standing is that of a LocalQueue.
type Standing struct {
	// Pending is the number of Workloads that wait in its ClusterQueue.
	Pending int `json:"pending"`
	// Places of its own Workloads by their names.
	Places map[string]Place `json:"places,omitempty"`
	// Flavors of the ClusterQueue, in their order.
	Flavors []Flavor `json:"flavors,omitempty"`
}

// Place of a Workload. Times are rounded to the minute, and zero if they are unknown.
type Place struct {
	Position int       `json:"position"`
	Start    time.Time `json:"start,omitzero"`
	Early    time.Time `json:"early,omitzero"`
	Late     time.Time `json:"late,omitzero"`
}

// Flavor has the quota of a flavor, and its cheapest machine.
type Flavor struct {
	Name string `json:"name"`
	// Nominal and Free are of each resource; more than what is free may be borrowed.
	Nominal corev1.ResourceList `json:"nominal"`
	Free    corev1.ResourceList `json:"free"`
	// USDPerHour of a machine, and the Devices that it has; empty where no NodeGroup with a price has the labels of the flavor.
	USDPerHour string                        `json:"usdPerHour,omitempty"`
	Devices    map[corev1.ResourceName]int64 `json:"devices,omitempty"`
}

// Encode writes it in the same way for the same content.
func (s *Standing) Encode() string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("a standing cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// Of reads the Standing of a LocalQueue; nil if none is published.
func Of(lq *kueue.LocalQueue) *Standing {
	out := &Standing{}
	if json.Unmarshal([]byte(lq.Annotations[Annotation]), out) != nil {
		return nil
	}
	return out
}

// FlavorsOf a ClusterQueue by its status, with the prices of the groups; none of a nil snapshot.
func FlavorsOf(cq *kueue.ClusterQueue, flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor,
	s *planner.Snapshot) (out []Flavor) {
	for _, group := range cq.Spec.ResourceGroups {
		for _, q := range group.Flavors {
			nominal, free := nodegroups.Resources{}, nodegroups.Resources{}
			for _, r := range q.Resources {
				nominal[r.Name] = nodegroups.ResourcesFrom(corev1.ResourceList{r.Name: r.NominalQuota})[r.Name]
				free[r.Name] = max(0, nominal[r.Name]-reserved(cq, q.Name, r.Name))
			}
			f := Flavor{Name: string(q.Name), Nominal: nominal.List(), Free: free.List()}
			if of := flavors[q.Name]; of != nil && s != nil {
				f.price(of, s)
			}
			out = append(out, f)
		}
	}
	return out
}

func reserved(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) int64 {
	for _, f := range cq.Status.FlavorsReservation {
		for _, r := range f.Resources {
			if f.Name == flavor && r.Name == name {
				return nodegroups.ResourcesFrom(corev1.ResourceList{name: r.Total})[name]
			}
		}
	}
	return 0
}

// price takes the cheapest group that has the labels of the flavor.
func (f *Flavor) price(of *kueue.ResourceFlavor, s *planner.Snapshot) {
	best := int64(-1)
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.PriceUnknown || !labels.SelectorFromSet(of.Spec.NodeLabels).Matches(labels.Set(g.Labels)) || best >= 0 && g.MicroUSDPerHour >= best {
			continue
		}
		best, f.USDPerHour, f.Devices = g.MicroUSDPerHour, text.USD(g.MicroUSDPerHour), map[corev1.ResourceName]int64{}
		for _, name := range slices.Sorted(maps.Keys(g.Usable)) {
			if nodegroups.Extended(name) {
				f.Devices[name] = g.Usable[name]
			}
		}
	}
}
