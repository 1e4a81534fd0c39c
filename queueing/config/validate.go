package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// Validate returns the invalid fields, each with its value and what to write instead. Call SetDefaults before. Path is
// the path of the Config; namespace is the one that Muster runs in.
func (c *Config) Validate(namespace string, path *field.Path) field.ErrorList {
	return slices.Concat(
		validateSelector(c.ManagedJobsNamespaceSelector, namespace, path.Child("managedJobsNamespaceSelector")),
		validateLabelKeys(c.LabelKeysToCopy, path.Child("labelKeysToCopy")),
		validatePodsReady(c.WaitForPodsReady, path.Child("waitForPodsReady")),
		validateFairSharing(c.FairSharing, path.Child("fairSharing", "preemptionStrategies")),
		validateAdmissionFairSharing(c.AdmissionFairSharing, path.Child("admissionFairSharing")),
		validateResources(c.Resources, path.Child("resources")),
		validateLocalQueueMetrics(c.LocalQueueMetrics, path.Child("localQueueMetrics")),
		validateGates(c.FeatureGates, path.Child("featureGates")),
		validateRetention(c.ObjectRetentionPolicies, path.Child("objectRetentionPolicies", "workloads")),
	)
}

// validateSelector ensures that Jobs in kube-system and in Muster's namespace never wait for Muster.
func validateSelector(s *metav1.LabelSelector, namespace string, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) > 0 {
		return errs
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(s), err.Error())}
	}
	for _, name := range []string{metav1.NamespaceSystem, namespace} {
		if selector.Matches(labels.Set{corev1.LabelMetadataName: name}) {
			errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(s), fmt.Sprintf(
				"it matches namespace %s, whose Jobs must never wait for Muster; exclude it with a matchExpression of key %s, operator NotIn and "+
					"value %s",
				name, corev1.LabelMetadataName, name)))
		}
	}
	return errs
}

func validateLabelKeys(keys []string, path *field.Path) (errs field.ErrorList) {
	for i, key := range keys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

func validateLocalQueueMetrics(m *kueueconfig.LocalQueueMetrics, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(m.LocalQueueSelector, metav1validation.LabelSelectorValidationOptions{},
		path.Child("localQueueSelector"))
}

func validateGates(gates map[string]bool, path *field.Path) (errs field.ErrorList) {
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		if gate != TASBalancedPlacement {
			errs = append(errs, field.NotSupported(path.Key(gate), gate, []string{TASBalancedPlacement}))
		}
	}
	return errs
}

func validatePodsReady(w *kueueconfig.WaitForPodsReady, path *field.Path) field.ErrorList {
	if w == nil {
		return nil
	}
	errs := notNegative(&w.Timeout, path.Child("timeout"))
	errs = append(errs, notNegative(w.RecoveryTimeout, path.Child("recoveryTimeout"))...)
	strategy, path := w.RequeuingStrategy, path.Child("requeuingStrategy")
	if known := []kueueconfig.RequeuingTimestamp{kueueconfig.EvictionTimestamp, kueueconfig.CreationTimestamp}; !slices.Contains(known,
		*strategy.Timestamp) {
		errs = append(errs, field.NotSupported(path.Child("timestamp"), *strategy.Timestamp, known))
	}
	for _, n := range []struct {
		name  string
		value *int32
	}{
		{"backoffLimitCount", strategy.BackoffLimitCount},
		{"backoffBaseSeconds", strategy.BackoffBaseSeconds},
		{"backoffMaxSeconds", strategy.BackoffMaxSeconds},
	} {
		if n.value != nil && *n.value < 0 {
			errs = append(errs, field.Invalid(path.Child(n.name), *n.value, "give 0 or more"))
		}
	}
	return errs
}

// validateFairSharing allows the same lists as Kueue: the strategies are tried in turn, the laxer one after the
// stricter one.
func validateFairSharing(f *kueueconfig.FairSharing, path *field.Path) field.ErrorList {
	if f == nil {
		return nil
	}
	final, initial := kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare
	for _, known := range [][]kueueconfig.PreemptionStrategy{{final}, {initial}, {final, initial}} {
		if slices.Equal(f.PreemptionStrategies, known) {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(path, f.PreemptionStrategies, fmt.Sprintf("give [%s], [%s] or both in this order", final, initial))}
}

func validateAdmissionFairSharing(a *kueueconfig.AdmissionFairSharing, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	errs := notNegative(&a.UsageHalfLifeTime, path.Child("usageHalfLifeTime"))
	errs = append(errs, notNegative(&a.UsageSamplingInterval, path.Child("usageSamplingInterval"))...)
	for _, name := range slices.Sorted(maps.Keys(a.ResourceWeights)) {
		if w := a.ResourceWeights[name]; w < 0 {
			errs = append(errs, field.Invalid(path.Child("resourceWeights").Key(string(name)), w, "give 0 or more"))
		}
	}
	return errs
}

func validateResources(r *kueueconfig.Resources, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	block, ignore := kueueconfig.QuotaCheckBlockUndeclared, kueueconfig.QuotaCheckIgnoreUndeclared
	switch strategy := *r.QuotaCheckStrategy; {
	case strategy != block && strategy != ignore:
		errs = append(errs, field.NotSupported(path.Child("quotaCheckStrategy"), strategy, []kueueconfig.QuotaCheckStrategy{block, ignore}))
	case strategy == ignore && len(r.ExcludeResourcePrefixes) > 0:
		errs = append(errs, field.Invalid(path.Child("quotaCheckStrategy"), strategy,
			"it ignores every resource that queues do not cover, so excludeResourcePrefixes has no effect; keep one of the two"))
	}
	seen := map[corev1.ResourceName]bool{}
	for i, t := range r.Transformations {
		path := path.Child("transformations").Index(i)
		if t.Input == "" {
			errs = append(errs, field.Required(path.Child("input"), "name the resource to transform"))
		} else if seen[t.Input] {
			errs = append(errs, field.Invalid(path.Child("input"), t.Input,
				"a transformation before has the same input; give one for each, with all outputs"))
		}
		seen[t.Input] = true
		if known := []kueueconfig.ResourceTransformationStrategy{kueueconfig.Retain, kueueconfig.Replace}; !slices.Contains(known, *t.Strategy) {
			errs = append(errs, field.NotSupported(path.Child("strategy"), *t.Strategy, known))
		}
		errs = append(errs, validateOutputs(t.Outputs, path.Child("outputs"))...)
	}
	return append(errs, validateDeviceClasses(r.DeviceClassMappings, path.Child("deviceClassMappings"))...)
}

// Limits of resources.deviceClassMappings, as in Kueue.
const (
	mostMappings      = 16
	mostDeviceClasses = 8
)

func validateDeviceClasses(mappings []kueueconfig.DeviceClassMapping, path *field.Path) (errs field.ErrorList) {
	if len(mappings) > mostMappings {
		errs = append(errs, field.TooMany(path, len(mappings), mostMappings))
	}
	names, classes := map[corev1.ResourceName]bool{}, map[corev1.ResourceName]corev1.ResourceName{}
	for i := range mappings {
		m, path := &mappings[i], path.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(string(m.Name), path.Child("name"))...)
		switch {
		case m.Name == corev1.ResourcePods:
			errs = append(errs, field.Invalid(path.Child("name"), m.Name, "pods are counted by themselves; give the devices another name"))
		case names[m.Name]:
			errs = append(errs, field.Duplicate(path.Child("name"), m.Name))
		}
		names[m.Name] = true
		if len(m.Sources) > 0 {
			errs = append(errs, field.Forbidden(path.Child("sources"), "Muster counts devices, not yet their counters and capacities; remove it"))
		}
		path = path.Child("deviceClassNames")
		switch n := len(m.DeviceClassNames); {
		case n == 0:
			errs = append(errs, field.Required(path, "name the DeviceClasses that count as this resource"))
		case n > mostDeviceClasses:
			errs = append(errs, field.TooMany(path, n, mostDeviceClasses))
		}
		for k, class := range m.DeviceClassNames {
			errs = append(errs, metav1validation.ValidateLabelName(string(class), path.Index(k))...)
			if of, known := classes[class]; known {
				errs = append(errs, field.Invalid(path.Index(k), class, fmt.Sprintf("it counts as %s already; name each class once", of)))
			}
			classes[class] = m.Name
		}
	}
	return errs
}

func validateOutputs(outputs corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		if name == corev1.ResourcePods {
			// Its quota counts pods; the output would be added to that or ignored.
			errs = append(errs, field.Invalid(path.Key(string(name)), name, "pods are counted by themselves; give the output another name, and the "+
				"quota of ClusterQueues the same"))
		}
		if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Key(string(name)), name, strings.Join(problems, "; ")))
		}
	}
	return errs
}

func validateRetention(o *kueueconfig.ObjectRetentionPolicies, path *field.Path) field.ErrorList {
	if o == nil || o.Workloads == nil {
		return nil
	}
	return append(notNegative(o.Workloads.AfterFinished, path.Child("afterFinished")),
		notNegative(o.Workloads.AfterDeactivatedByKueue, path.Child("afterDeactivatedByKueue"))...)
}

func notNegative(d *metav1.Duration, path *field.Path) field.ErrorList {
	if d == nil || d.Duration >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "give a duration of 0s or more, such as 5m")}
}
