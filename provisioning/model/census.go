package model

import (
	"k8s.io/apimachinery/pkg/api/meta"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
)

// Standing is where requests of a class are in their course.
type Standing struct {
	Class string
	// Condition is the last in their course that is true, or None.
	Condition string
}

// course is the order of conditions, the last first.
var course = []string{provreq.Failed, provreq.CapacityRevoked, provreq.BookingExpired, provreq.Provisioned, provreq.Accepted}

// Census counts the requests.
func (m *Model) Census() map[Standing]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[Standing]int{}
	for _, e := range m.requests.byUID {
		s := Standing{Class: e.object.Spec.ProvisioningClassName, Condition: "None"}
		for _, c := range course {
			if meta.IsStatusConditionTrue(e.object.Status.Conditions, c) {
				s.Condition = c
				break
			}
		}
		out[s]++
	}
	return out
}
