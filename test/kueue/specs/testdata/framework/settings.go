package framework

import (
	"context"
	"fmt"
	"reflect"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	ctrl "sigs.k8s.io/controller-runtime"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/scheduler"
)

// gates are the feature gates of Kueue's that Muster has, too.
var gates = []featuregate.Feature{"DisableWaitForPodsReady", "LocalQueueMetrics", "TASBalancedPlacement"}

// settingsOf is the Configuration of a Kueue whose controllers setup would make. It lets setup have a manager that is never
// started, and reads what Kueue's own constructors were called with: the runner compiles the suites so that they
// record that, in a variable Recorded of their package.
func settingsOf(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, setup ManagerSetup) []byte {
	for _, recorded := range []map[string]any{core.Recorded, jobframework.Recorded, qcache.Recorded, scheduler.Recorded} {
		clear(recorded)
	}
	mgr, err := ctrl.NewManager(cfg, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: crconfig.Controller{SkipNameValidation: new(true)},
	})
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	setup(ctx, mgr)

	out := &config.Configuration{}
	out.APIVersion, out.Kind = config.SchemeGroupVersion.String(), "Configuration"
	if c, ok := core.Recorded["SetupControllers"].(*config.Configuration); ok && c != nil {
		out.WaitForPodsReady, out.FairSharing, out.AdmissionFairSharing = c.WaitForPodsReady, c.FairSharing, c.AdmissionFairSharing
		out.Resources, out.ObjectRetentionPolicies = c.Resources, c.ObjectRetentionPolicies
		out.Metrics.LocalQueueMetrics = c.Metrics.LocalQueueMetrics
		out.Metrics.EnableClusterQueueResources = c.Metrics.EnableClusterQueueResources
		out.ManageJobsWithoutQueueName = c.ManageJobsWithoutQueueName
	}
	addJobOptions(out)
	addCacheOptions(out)
	for _, gate := range gates {
		if on, off := features.Enabled(gate), !defaults[gate]; on == off {
			if out.FeatureGates == nil {
				out.FeatureGates = map[string]bool{}
			}
			out.FeatureGates[string(gate)] = on
		}
	}
	text, err := yaml.Marshal(out)
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	fmt.Fprintf(ginkgo.GinkgoWriter, "muster's settings:\n%s", text)
	return text
}

// defaults are the gates before any spec has changed them.
var defaults = func() map[featuregate.Feature]bool {
	out := map[featuregate.Feature]bool{}
	for _, gate := range gates {
		out[gate] = features.Enabled(gate)
	}
	return out
}()

// addJobOptions adds what the controllers of jobs were given.
func addJobOptions(out *config.Configuration) {
	given, ok := jobframework.Recorded["ProcessOptions"].([]jobframework.Option)
	if !ok {
		return
	}
	options := jobframework.ProcessOptions(given...)
	out.ManageJobsWithoutQueueName = out.ManageJobsWithoutQueueName || options.ManageJobsWithoutQueueName
	if s := options.ManagedJobsNamespaceSelector; s != nil {
		selector, err := metav1.ParseToLabelSelector(s.String())
		gomega.ExpectWithOffset(3, err).NotTo(gomega.HaveOccurred())
		// Muster refuses a selector of its own namespace.
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "muster-system"},
		})
		out.ManagedJobsNamespaceSelector = selector
	}
	if options.WaitForPodsReady && out.WaitForPodsReady == nil {
		out.WaitForPodsReady = &config.WaitForPodsReady{}
	}
	if len(options.LabelKeysToCopy) > 0 {
		out.Integrations = &config.Integrations{LabelKeysToCopy: options.LabelKeysToCopy.UnsortedList()}
	}
}

// addCacheOptions adds what the caches and the scheduler were given beside the Configuration.
func addCacheOptions(out *config.Configuration) {
	resources := config.Resources{}
	if out.Resources != nil {
		resources = *out.Resources
	}
	if t, ok := qcache.Recorded["WithResourceTransformations"].([]config.ResourceTransformation); ok {
		resources.Transformations = t
	}
	if p, ok := qcache.Recorded["WithExcludedResourcePrefixes"].([]string); ok {
		resources.ExcludeResourcePrefixes = p
	}
	if s, ok := scheduler.Recorded["WithQuotaCheckStrategy"].(config.QuotaCheckStrategy); ok && s != "" {
		resources.QuotaCheckStrategy = &s
	}
	if !reflect.DeepEqual(resources, config.Resources{}) {
		out.Resources = &resources
	}
	if s, ok := scheduler.Recorded["WithFairSharing"].(*config.FairSharing); ok && s != nil {
		out.FairSharing = s
	}
	if s, ok := qcache.Recorded["WithAdmissionFairSharing"].(*config.AdmissionFairSharing); ok && s != nil {
		out.AdmissionFairSharing = s
	}
}
