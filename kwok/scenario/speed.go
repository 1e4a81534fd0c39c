package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Faster is the same group with all its times divided.
func Faster(g *v1alpha1.NodeGroup, speed int) *v1alpha1.NodeGroup {
	g = g.DeepCopy()
	// What is unset is set: a default is scenario time as well.
	settings := nodegroups.GroupFrom(g, g.Status, 0)
	join, idle := metav1.Duration{Duration: settings.JoinTimeout}, metav1.Duration{Duration: settings.IdleTimeout}
	g.Spec.JoinTimeout, g.Spec.IdleTimeout = &join, &idle
	times := []*metav1.Duration{&join, &idle, &g.Spec.Kwok.BootDelay, &g.Spec.Kwok.BootJitter, &g.Spec.Kwok.DeviceDelay}
	for i := range g.Spec.Kwok.Faults {
		f := &g.Spec.Kwok.Faults[i]
		times = append(times, f.From, f.Until, f.After, f.For)
	}
	for _, t := range times {
		if t != nil {
			t.Duration /= time.Duration(speed)
		}
	}
	return g
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

// FasterObject divides the times of the objects that are known to have some: those of
// CapacityPolicies, and of the parameters of ProvisioningRequests and their configs. It
// changes the object.
func FasterObject(o *unstructured.Unstructured, speed int) {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if spec == nil {
		return
	}
	switch o.GroupVersionKind().GroupKind() {
	case v1alpha1.GroupVersion.WithKind("CapacityPolicy").GroupKind():
		fasterPolicy(spec, speed)
	case kueue.SchemeGroupVersion.WithKind("ProvisioningRequestConfig").GroupKind(),
		autoscaling.SchemeGroupVersion.WithKind("ProvisioningRequest").GroupKind():
		if parameters, ok := spec["parameters"].(map[string]any); ok {
			for name, value := range parameters {
				if text, ok := value.(string); ok {
					parameters[name] = fasterParameter(name, text, speed)
				}
			}
		}
	default:
		return
	}
	o.Object["spec"] = spec
}

func fasterPolicy(spec map[string]any, speed int) {
	overrides, _ := spec["overrides"].(map[string]any)
	for _, times := range []map[string]any{spec, overrides} {
		for _, name := range []string{"startWithin", "bookingTimeout"} {
			divide(times, name, speed)
		}
		if fallback, ok := times["fallbackAfter"].(map[string]any); ok {
			for capacityType := range fallback {
				divide(fallback, capacityType, speed)
			}
		}
	}
	budgets, _ := spec["budgets"].([]any)
	for _, each := range budgets {
		budget, ok := each.(map[string]any)
		if !ok {
			continue
		}
		// What is unset is set: a default is scenario time as well.
		if _, ok := budget["reserve"]; !ok {
			budget["reserve"] = "24h"
		}
		divide(budget, "reserve", speed)
		// Machines are there for less of the wall's time, and cost that much less.
		lessUSD(budget, "usd", speed)
		if vain, ok := budget["vainLaunches"].(map[string]any); ok {
			lessUSD(vain, "minimumUSD", speed)
		}
	}
}

// lessUSD divides an amount of money, if there is one.
func lessUSD(in map[string]any, name string, speed int) {
	if usd, err := resource.ParseQuantity(fmt.Sprint(in[name])); err == nil {
		in[name] = resource.NewScaledQuantity(usd.ScaledValue(resource.Micro)/int64(speed), resource.Micro).String()
	}
}

// parameterPrefix begins the annotations of a Job that are parameters of its
// ProvisioningRequest, in the words of Kueue's API.
const parameterPrefix = "provreq.kueue.x-k8s.io/"

// fasterAnnotations are a Job's, with the times among them divided.
func fasterAnnotations(annotations map[string]string, speed int) map[string]string {
	out := maps.Clone(annotations)
	for key, value := range out {
		if name, ok := strings.CutPrefix(key, parameterPrefix); ok {
			out[key] = fasterParameter(name, value, speed)
		}
	}
	return out
}

// fasterParameter divides a parameter that is a time. Whatever cannot be read is left
// alone: Muster says so.
func fasterParameter(name, value string, speed int) string {
	switch name {
	case v1alpha1.ParamStartWithin, v1alpha1.ParamBookingTimeout:
		return fasterText(value, speed)
	case v1alpha1.ParamFallbackAfter:
		parts := strings.Split(value, ",")
		for i, part := range parts {
			if capacityType, after, ok := strings.Cut(part, "="); ok {
				parts[i] = capacityType + "=" + fasterText(after, speed)
			}
		}
		return strings.Join(parts, ",")
	case "ValidUntilSeconds":
		if n, err := strconv.ParseInt(value, 10, 32); err == nil {
			return strconv.FormatInt(seconds(time.Duration(n)*time.Second, speed), 10)
		}
	}
	return value
}

// divide leaves alone what is no text.
func divide(fields map[string]any, name string, speed int) {
	if text, ok := fields[name].(string); ok {
		fields[name] = fasterText(text, speed)
	}
}

// fasterText leaves alone what is no duration: the API server says so.
func fasterText(text string, speed int) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return (d / time.Duration(speed)).String()
}

// Uncompressed are the times that --speed does not divide, for comparisons of runs at
// different speeds.
var Uncompressed = []string{
	"the backoffs of a NodeGroup after failed launches (30 s or more) and the half-life of its ledger (30 min), which are fixed",
	"the minimum duration of a booking, by the number of its pods",
	"the days, weeks and months of budgets: their USD and reserve are divided instead",
	"bookingTimeout (10 min) and ValidUntilSeconds (7 days), unless the scenario sets them",
	"times of day, such as the parameter startBy, and times in objects other than CapacityPolicies, ProvisioningRequests and their configs",
	"backoffs of Workloads after an eviction, and those of ProvisioningRequestConfigs",
	"Kubernetes' own times: scheduling backoffs, garbage collection, and deadlines, which are rounded up to seconds",
}
