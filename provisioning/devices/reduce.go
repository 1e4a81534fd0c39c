package devices

import (
	"encoding/json"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/muster-dev/muster/provisioning/fit"
)

// Reducer removes unused fields from ResourceSlices and shares equal lists of devices between them: a slice takes up to 20 kB, and
// a cluster has at least one for each node with devices.
type Reducer struct {
	mu    sync.Mutex
	known map[string][]resourcev1.Device
}

// mostKept limits the shared lists of devices. Beyond it the cache starts again, and later slices no longer share earlier lists.
const mostKept = 1024

// Reduce modifies the slice in place.
func (r *Reducer) Reduce(s *resourcev1.ResourceSlice) {
	values := map[string]int{}
	countIdentities(values, s.Spec.Devices)
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		for key, a := range d.Attributes {
			if isOwn(key, a, values) {
				delete(d.Attributes, key)
			}
		}
	}
	text, err := json.Marshal(s.Spec.Devices)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known[string(text)]; ok {
		s.Spec.Devices = known
		return
	}
	if r.known == nil || len(r.known) >= mostKept {
		r.known = map[string][]resourcev1.Device{}
	}
	r.known[string(text)] = s.Spec.Devices
}

// isOwn reports whether an attribute identifies the device by a value that occurs once. Attributes in the domain of Kubernetes are
// kept, because constraints compare them between drivers.
func isOwn(key resourcev1.QualifiedName, a resourcev1.DeviceAttribute, values map[string]int) bool {
	value, ok := identityOf(key, a)
	return ok && values[value] < 2 && !strings.HasPrefix(string(key), "resource.kubernetes.io/")
}

// countIdentities adds the number of occurrences of each identifying value to values.
func countIdentities(values map[string]int, devices []resourcev1.Device) {
	for i := range devices {
		for key, a := range devices[i].Attributes {
			if value, ok := identityOf(key, a); ok {
				values[value]++
			}
		}
	}
}

// identityOf returns the value of an attribute that identifies a device or a machine; ok is false for any other attribute.
func identityOf(key resourcev1.QualifiedName, a resourcev1.DeviceAttribute) (value string, ok bool) {
	if a.StringValue == nil || !fit.IsIdentity(key) {
		return "", false
	}
	return *a.StringValue, true
}
