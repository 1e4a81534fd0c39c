package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// ClaimableAnnotation of a node holds what DRA drivers publish of its machine, a Claimable as JSON.
const ClaimableAnnotation = "kwok.muster.dev/claimable"

// Claimable is what DRA drivers publish of a node, and when.
type Claimable struct {
	Pools []v1alpha1.DevicePool `json:"pools"`
	// Delay is from when the node is Ready until the drivers publish it.
	Delay metav1.Duration `json:"delay"`
	// Vanish is a time in which they publish nothing; nil for none.
	Vanish *DeviceGap `json:"vanish,omitempty"`
}

// Annotation is the value of ClaimableAnnotation.
func (c Claimable) Annotation() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic("a Claimable cannot be marshalled: " + err.Error()) // plain values: cannot happen
	}
	return string(text)
}
