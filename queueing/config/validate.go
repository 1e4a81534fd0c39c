package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/provisioning/fit"
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
	names, classes := map[corev1.ResourceName]bool{}, map[corev1.ResourceName]*kueueconfig.DeviceClassMapping{}
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
		errs = append(errs, validateSources(m.Sources, path.Child("sources"))...)
		path = path.Child("deviceClassNames")
		switch n := len(m.DeviceClassNames); {
		case n == 0:
			errs = append(errs, field.Required(path, "name the DeviceClasses that count as this resource"))
		case n > mostDeviceClasses:
			errs = append(errs, field.TooMany(path, n, mostDeviceClasses))
		}
		for k, class := range m.DeviceClassNames {
			errs = append(errs, metav1validation.ValidateLabelName(string(class), path.Index(k))...)
			if other := classes[class]; other != nil {
				errs = append(errs, validateSecondMapping(m, other, class, path.Index(k))...)
			}
			classes[class] = m
		}
	}
	return errs
}

// validateSecondMapping validates a DeviceClass that another mapping has already. Each of the two may count another counter.
func validateSecondMapping(m, other *kueueconfig.DeviceClassMapping, class corev1.ResourceName, path *field.Path) field.ErrorList {
	theirs := counters(other)
	if m == other || len(theirs) == 0 || len(counters(m)) == 0 {
		return field.ErrorList{field.Invalid(path, class, fmt.Sprintf("it counts as %s already; name each class once, or give both mappings "+
			"sources with different counters", other.Name))}
	}
	for _, name := range counters(m) {
		if slices.Contains(theirs, name) {
			return field.ErrorList{field.Invalid(path, class, fmt.Sprintf("its counter %s counts as %s already; count each counter of a class once",
				name, other.Name))}
		}
	}
	return nil
}

// counters returns the names of the counters that a mapping counts.
func counters(m *kueueconfig.DeviceClassMapping) (out []string) {
	for i := range m.Sources {
		if c := m.Sources[i].Counter; c != nil {
			out = append(out, c.Name)
		}
	}
	return out
}

// Selectors returns the expressions of the sources of resources.deviceClassMappings, with their paths below that of the Config. The
// compiler for them is not part of this package.
func (c *Config) Selectors(path *field.Path) (expressions []string, paths []*field.Path) {
	if c.Resources == nil {
		return nil, nil
	}
	for i := range c.Resources.DeviceClassMappings {
		for k := range c.Resources.DeviceClassMappings[i].Sources {
			source := &c.Resources.DeviceClassMappings[i].Sources[k]
			path := path.Child("resources", "deviceClassMappings").Index(i).Child("sources").Index(k)
			if of := source.Counter; of != nil && of.DeviceSelector.CEL != nil {
				expressions, paths = append(expressions, of.DeviceSelector.CEL.Expression), append(paths, path.Child("counter", selector...))
			}
			if of := source.Capacity; of != nil && of.DeviceSelector.CEL != nil {
				expressions, paths = append(expressions, of.DeviceSelector.CEL.Expression), append(paths, path.Child("capacity", selector...))
			}
		}
	}
	return expressions, paths
}

// selector is the path of the expression in a source.
var selector = []string{"deviceSelector", "cel", "expression"}

func validateSources(sources []kueueconfig.DeviceClassSourceConfig, path *field.Path) (errs field.ErrorList) {
	counter, capacity := false, false
	for i := range sources {
		source, path := &sources[i], path.Index(i)
		counter, capacity = counter || source.Counter != nil, capacity || source.Capacity != nil
		switch {
		case source.Counter == nil && source.Capacity == nil:
			errs = append(errs, field.Required(path, "give either counter or capacity"))
		case source.Counter != nil && source.Capacity != nil:
			errs = append(errs, field.Invalid(path, "counter and capacity", "give one of the two"))
		case source.Counter != nil:
			errs = append(errs, validateSource(source.Counter.Driver, &source.Counter.DeviceSelector, path.Child("counter"))...)
			if problems := validation.IsDNS1123Label(source.Counter.Name); len(problems) > 0 {
				errs = append(errs, field.Invalid(path.Child("counter", "name"), source.Counter.Name, "name a counter as the driver publishes it in "+
					"consumesCounters: "+strings.Join(problems, "; ")))
			}
		default:
			errs = append(errs, validateSource(source.Capacity.Driver, &source.Capacity.DeviceSelector, path.Child("capacity"))...)
			errs = append(errs, validateCapacityName(string(source.Capacity.Name), path.Child("capacity", "name"))...)
		}
	}
	if counter && capacity {
		errs = append(errs, field.Invalid(path, "counter and capacity", "a mapping counts either counters or capacities; give them two mappings"))
	}
	return errs
}

// validateSource validates what counters and capacities have in common.
func validateSource(driver string, of *resourcev1.DeviceSelector, path *field.Path) (errs field.ErrorList) {
	const fix = "name the driver as its ResourceSlices do in spec.driver"
	switch problems := validation.IsDNS1123Subdomain(driver); {
	case driver == "":
		errs = append(errs, field.Required(path.Child("driver"), fix))
	case len(driver) > resourcev1.DriverNameMaxLength:
		errs = append(errs, field.Invalid(path.Child("driver"), driver,
			fmt.Sprintf("it may have at most %d characters", resourcev1.DriverNameMaxLength)))
	case len(problems) > 0:
		errs = append(errs, field.Invalid(path.Child("driver"), driver, fix+": "+strings.Join(problems, "; ")))
	}
	path = path.Child(selector[0], selector[1:]...)
	switch {
	case of.CEL == nil || of.CEL.Expression == "":
		errs = append(errs, field.Required(path, "select the devices that count; true selects all of the driver"))
	case fit.Identifies(of.CEL.Expression):
		errs = append(errs, field.Invalid(path, of.CEL.Expression, "it reads what identifies one device; select by attributes that machines "+
			"have in common, such as productName"))
	}
	return errs
}

// validateCapacityName requires the name of a capacity, with or without the domain of its driver.
func validateCapacityName(name string, path *field.Path) (errs field.ErrorList) {
	const fix = "name a capacity as the driver publishes it, such as gpu.example.com/memory"
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		domain, id = "", name
	}
	problems := content.IsCIdentifier(id)
	if len(id) > resourcev1.DeviceMaxIDLength {
		problems = append(problems, fmt.Sprintf("the name may have at most %d characters", resourcev1.DeviceMaxIDLength))
	}
	if qualified {
		problems = append(problems, validation.IsDNS1123Subdomain(strings.ToLower(domain))...)
		if len(domain) > resourcev1.DeviceMaxDomainLength {
			problems = append(problems, fmt.Sprintf("the domain may have at most %d characters", resourcev1.DeviceMaxDomainLength))
		}
	}
	if len(problems) > 0 {
		errs = append(errs, field.Invalid(path, name, fix+": "+strings.Join(problems, "; ")))
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
