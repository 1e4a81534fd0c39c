package scenario

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Faster is the same group with all its times divided.
func Faster(g *v1alpha1.NodeGroup, speed int) *v1alpha1.NodeGroup {
	g = g.DeepCopy()
	// What is unset is set: a default is scenario time as well.
	join, idle := orDefault(g.Spec.JoinTimeout, 15*time.Minute), orDefault(g.Spec.IdleTimeout, 10*time.Minute)
	g.Spec.JoinTimeout, g.Spec.IdleTimeout = &join, &idle
	times := []*metav1.Duration{&join, &idle, &g.Spec.Kwok.BootDelay, &g.Spec.Kwok.BootJitter, &g.Spec.Kwok.DeviceDelay}
	for i := range g.Spec.Kwok.Faults {
		f := &g.Spec.Kwok.Faults[i]
		times = append(times, f.From, f.Until, f.After)
	}
	for _, t := range times {
		if t != nil {
			t.Duration /= time.Duration(speed)
		}
	}
	return g
}

func orDefault(d *metav1.Duration, otherwise time.Duration) metav1.Duration {
	if d == nil {
		return metav1.Duration{Duration: otherwise}
	}
	return *d
}

// FasterFaults is the same plan with all its times divided.
func FasterFaults(p *faults.Plan, speed int) *faults.Plan {
	out := &faults.Plan{Seed: p.Seed, Faults: slices.Clone(p.Faults)}
	for i := range out.Faults {
		f := &out.Faults[i]
		for _, t := range []*metav1.Duration{&f.At, &f.Every, &f.Jitter, &f.For, &f.Delay, &f.RetryAfter} {
			t.Duration /= time.Duration(speed)
		}
	}
	return out
}

// policyTimes are the fields of a CapacityPolicy's spec that are times.
var policyTimes = []string{"startWithin", "bookingTimeout"}

// FasterObject divides the times of the objects that are known to have some: those of
// a CapacityPolicy. It changes the object.
func FasterObject(o *unstructured.Unstructured, speed int) {
	if o.GroupVersionKind().GroupKind() != v1alpha1.GroupVersion.WithKind("CapacityPolicy").GroupKind() {
		return
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if spec == nil {
		return
	}
	for _, name := range policyTimes {
		divide(spec, name, speed)
	}
	if fallback, ok := spec["fallbackAfter"].(map[string]any); ok {
		for market := range fallback {
			divide(fallback, market, speed)
		}
	}
	o.Object["spec"] = spec
}

// divide leaves alone what is no duration: the API server says so.
func divide(fields map[string]any, name string, speed int) {
	if text, ok := fields[name].(string); ok {
		if d, err := time.ParseDuration(text); err == nil {
			fields[name] = (d / time.Duration(speed)).String()
		}
	}
}

// Uncompressed are the times that --speed leaves as they are, for whoever compares runs
// of different speeds.
var Uncompressed = []string{
	"the backoffs of a NodeGroup after failed launches (30 s and more) and the half-life of its ledger (30 min), which are no settings",
	"the least time that a booking is kept for its pods, by their number",
	"backoffs of Workloads after an eviction, and those of ProvisioningRequestConfigs",
	"whatever Kubernetes takes for itself: scheduling backoffs, garbage collection, and seconds, to which deadlines are rounded up",
}
