package nodegroups

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// configuration is the part of a NodeGroup that decides whether its machines can be launched and become ready. It excludes prices, limits
// and end times: discovery writes them as often as the cloud changes them, and they do not repair a broken group.
type configuration struct {
	Zone                      string                   `json:",omitempty"`
	Template                  v1alpha1.NodeTemplate    `json:",omitempty"`
	Topology                  []v1alpha1.TopologyLevel `json:",omitempty"`
	JoinTimeout, QueueTimeout *metav1.Duration         `json:",omitempty"`
	Kwok                      *v1alpha1.KwokPool       `json:",omitempty"`
	AWS                       *v1alpha1.AWSGroup       `json:",omitempty"`
	GCP                       *v1alpha1.GCPGroup       `json:",omitempty"`
	Repaired                  string                   `json:",omitempty"`
}

// ConfigurationHash identifies a configuration of a group.
func ConfigurationHash(ng *v1alpha1.NodeGroup) string {
	s := &ng.Spec
	return hashOf(configuration{
		Zone: s.Zone, Template: s.Template, Topology: s.Topology, JoinTimeout: s.JoinTimeout, QueueTimeout: s.QueueTimeout,
		Kwok: s.Kwok, AWS: s.AWS, GCP: s.GCP, Repaired: ng.Annotations[v1alpha1.RepairedAnnotation],
	})
}

// hashOf returns a hash of a value of an API type.
func hashOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a value of the API cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	h := fnv.New64a()
	h.Write(text)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Amended returns the status for the current configuration of the group. If it differs from that of past launches, it may have corrected
// what made them fail with class Config, and what keeps nodes from becoming ready: those backoffs end, and the taints that its nodes keep
// are dropped.
func Amended(status v1alpha1.NodeGroupStatus, ng *v1alpha1.NodeGroup) v1alpha1.NodeGroupStatus {
	before := status.ConfigurationHash
	status.ConfigurationHash = ConfigurationHash(ng)
	if before == "" || before == status.ConfigurationHash {
		return status
	}
	if status.Shape != nil && len(status.Shape.Taints) > 0 {
		status.Shape = status.Shape.DeepCopy()
		status.Shape.Taints, status.Shape.TaintsSeen = nil, nil
	}
	return withBackoffs(status, slices.DeleteFunc(slices.Clone(status.Backoffs), func(b v1alpha1.Backoff) bool {
		return b.Class == v1alpha1.Config || b.Class == v1alpha1.Timeout && NeedsPerson(&b)
	}))
}
