package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// ClaimableAnnotation holds a Claimable as JSON: the devices that DRA drivers publish for the node.
const ClaimableAnnotation = "kwok.muster.dev/claimable"

// Claimable is what DRA drivers publish for a node, and when.
type Claimable struct {
	Pools []v1alpha1.DevicePool `json:"pools"`
	// Delay is the time from the node's Ready condition until the drivers publish.
	Delay metav1.Duration `json:"delay"`
	// Vanish is a period in which the drivers publish nothing; nil for none.
	Vanish *DeviceGap `json:"vanish,omitempty"`
}

// Annotation returns the value of ClaimableAnnotation.
func (c Claimable) Annotation() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic("a Claimable cannot be marshalled: " + err.Error()) // plain values: cannot happen
	}
	return string(text)
}
