package checks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Defaults of a ProvisioningRequestConfig without a retryStrategy.
const (
	defaultBackoffLimit = 3
	// The first and the longest backoff, in seconds.
	defaultBackoffBase = 60
	defaultBackoffMax  = 1800
)

// Messages of a check, as in Kueue.
const (
	checkInactive   = "the check is not active"
	requestUnneeded = "the provisioning request is not needed"
)

// RequestStep evaluates the request of the current attempt of a check of Kueue's controller. The first matching row
// decides:
//
//	request                      check
//	Failed                       Retry; Rejected if it was the last attempt
//	CapacityRevoked              Rejected, also if the Workload runs
//	BookingExpired, not admitted Retry; Rejected if it was the last attempt
//	Provisioned                  Ready
//	Accepted                     Pending, with the message of Provisioned=False
//
// A check that is Ready gets no other request, because the Workload may be running.
func (s Evaluator) RequestStep(w *cache.Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) step {
	config := s.cache.ConfigOf(state.Name)
	if config == nil {
		return step{State: kueue.CheckStatePending, message: checkInactive}
	}
	asked := s.podRequestsOf(w, config)
	if len(asked) == 0 {
		return step{State: kueue.CheckStateReady, message: requestUnneeded}
	}
	name, current, others := s.requestsFor(w, checks, state)
	switch out := asIs(state); {
	case state.State == kueue.CheckStateReady && (current == nil || !follows(current, w, config)):
		return out
	case current != nil && !follows(current, w, config):
		// A request is immutable.
		out.Delete = []*autoscaling.ProvisioningRequest{current}
		return out
	case current == nil && len(others) > 0:
		out.Delete = cache.Existing(others)
		return out
	case current == nil:
		out.Create = s.NewRequest(w, name, config.ProvisioningClassName, configured(w, config), asked)
		// As in Kueue, the request owns the templates.
		out.Create.Adopts = true
		return out
	}
	return verdictOf(w, state, current, config, asked)
}

// WaitingForProvisioner is the message of a check of Kueue's controller until a provisioner accepts its request. If no
// controller serves the class, nothing else shows it.
func WaitingForProvisioner(request, class string) string {
	return fmt.Sprintf("Waiting for a provisioner to accept ProvisioningRequest %s: no controller has done so yet; if none in this cluster "+
		"serves class %q, install one, or change spec.provisioningClassName of the check's ProvisioningRequestConfig", request, class)
}

// asIs returns the step of a check that does not change.
func asIs(c *kueue.AdmissionCheckState) step {
	return step{State: c.State, message: c.Message, updates: c.PodSetUpdates, requeueAfter: c.RequeueAfterSeconds}
}

// verdictOf turns the conditions of a request into a step.
func verdictOf(w *cache.Workload, state *kueue.AdmissionCheckState, r *autoscaling.ProvisioningRequest,
	config *kueue.ProvisioningRequestConfigSpec, asked []podRequest) step {
	message := func(condition string) string {
		if c := apimeta.FindStatusCondition(r.Status.Conditions, condition); c != nil {
			return c.Message
		}
		return ""
	}
	is := func(condition string) bool { return apimeta.IsStatusConditionTrue(r.Status.Conditions, condition) }
	switch {
	case is(autoscaling.Failed):
		return retry(state, config, "Retrying after failure: ", message(autoscaling.Failed))
	case is(autoscaling.CapacityRevoked):
		return step{State: kueue.CheckStateRejected, message: message(autoscaling.CapacityRevoked)}
	case is(autoscaling.BookingExpired) && workload.IsAdmitted(w.Object):
		return asIs(state)
	case is(autoscaling.BookingExpired):
		return retry(state, config, "Retrying after booking expired: ", message(autoscaling.BookingExpired))
	case is(autoscaling.Provisioned) && (workload.IsAdmitted(w.Object) || transaction.IsWhole(r)):
		return step{State: kueue.CheckStateReady, message: message(autoscaling.Provisioned), updates: updatesBy(r, config, asked)}
	case apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.Provisioned) != nil:
	case is(autoscaling.Accepted):
		return step{State: kueue.CheckStatePending, message: message(autoscaling.Accepted)}
	default:
		return step{State: kueue.CheckStatePending, message: WaitingForProvisioner(r.Name, config.ProvisioningClassName)}
	}
	return step{State: kueue.CheckStatePending, message: message(autoscaling.Provisioned)}
}

// retry ends an attempt. The next one follows after an exponential backoff, unless the limit is reached.
func retry(state *kueue.AdmissionCheckState, config *kueue.ProvisioningRequestConfigSpec, what, why string) step {
	strategy := config.RetryStrategy
	if strategy == nil {
		strategy = &kueue.ProvisioningRequestRetryStrategy{}
	}
	tried := workload.Retries(state)
	if tried >= ptr.Deref(strategy.BackoffLimitCount, defaultBackoffLimit) {
		return step{State: kueue.CheckStateRejected, message: why}
	}
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	// A maximum of 0 is no limit.
	longest := cmp.Or(ptr.Deref(strategy.BackoffMaxSeconds, defaultBackoffMax), math.MaxInt32)
	pause := workload.Backoff(seconds(ptr.Deref(strategy.BackoffBaseSeconds, defaultBackoffBase)), tried, seconds(longest))
	return step{State: kueue.CheckStateRetry, message: what + why, requeueAfter: new(int32(pause / time.Second))}
}

// follows reports whether a request matches the current config of the check. Annotations of the job override the config
// and do not change.
func follows(r *autoscaling.ProvisioningRequest, w *cache.Workload, config *kueue.ProvisioningRequestConfigSpec) bool {
	if r.Spec.ProvisioningClassName != config.ProvisioningClassName {
		return false
	}
	for name, want := range config.Parameters {
		_, overridden := w.Object.Annotations[workload.ParameterPrefix+name]
		if have, ok := r.Spec.Parameters[name]; !overridden && (!ok || string(have) != string(want)) {
			return false
		}
	}
	return true
}

// configured returns the parameters of the config, overridden by the annotations of the job.
func configured(w *cache.Workload, config *kueue.ProvisioningRequestConfigSpec) map[string]autoscaling.Parameter {
	out := make(map[string]autoscaling.Parameter, len(config.Parameters))
	for name, v := range config.Parameters {
		out[name] = autoscaling.Parameter(v)
	}
	annotated(w, out)
	return out
}

// podRequestsOf returns the pods to request by the config of a check: those of the podSets that use a managed resource,
// merged if the config says so.
func (s Evaluator) podRequestsOf(w *cache.Workload, config *kueue.ProvisioningRequestConfigSpec) []podRequest {
	var out []podRequest
	for _, a := range s.missingPods(w) {
		template := &workload.FindPodSet(w.Object, a.podSets[0]).Template
		if len(config.ManagedResources) > 0 && !uses(&template.Spec, config.ManagedResources) {
			continue
		}
		i := slices.IndexFunc(out, func(b podRequest) bool {
			return mergeable(config.PodSetMergePolicy, &workload.FindPodSet(w.Object, b.podSets[0]).Template, template)
		})
		if i < 0 {
			out = append(out, a)
			continue
		}
		out[i].podSets = append(out[i].podSets, a.podSets...)
		out[i].count += a.count
	}
	return out
}

// uses reports whether a container requests one of the resources.
func uses(spec *corev1.PodSpec, managed []corev1.ResourceName) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(managed, func(name corev1.ResourceName) bool {
			_, requested := c.Resources.Requests[name]
			_, limited := c.Resources.Limits[name]
			return requested || limited
		})
	})
}

// mergeable reports whether pods of two templates may share one podSet of a request.
func mergeable(policy *kueue.ProvisioningRequestConfigPodSetMergePolicy, a, b *corev1.PodTemplateSpec) bool {
	switch {
	case policy == nil:
		return false
	case *policy == kueue.IdenticalPodTemplates:
		return equality.Semantic.DeepEqual(a, b)
	}
	return equality.Semantic.DeepEqual(needsOf(&a.Spec), needsOf(&b.Spec))
}

// needsOf returns the fields of a spec that decide where its pods can run.
func needsOf(spec *corev1.PodSpec) *corev1.PodSpec {
	requests := func(containers []corev1.Container) []corev1.Container {
		out := make([]corev1.Container, len(containers))
		for i := range containers {
			out[i].Resources.Requests = containers[i].Resources.Requests
		}
		return out
	}
	return &corev1.PodSpec{
		Containers: requests(spec.Containers), InitContainers: requests(spec.InitContainers), Resources: spec.Resources,
		NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, Affinity: spec.Affinity, ResourceClaims: spec.ResourceClaims,
	}
}

// updatesBy makes the pods of all podSets of the request consume it, including merged ones, and adds the node selector
// of the config with values from provisioningClassDetails. A missing detail selects nothing.
func updatesBy(r *autoscaling.ProvisioningRequest, config *kueue.ProvisioningRequestConfigSpec, asked []podRequest) []kueue.PodSetUpdate {
	var selector map[string]string
	if config.PodSetUpdates != nil {
		selector = map[string]string{}
		for _, u := range config.PodSetUpdates.NodeSelector {
			if v, ok := r.Status.ProvisioningClassDetails[u.ValueFromProvisioningClassDetail]; ok {
				selector[u.Key] = string(v)
			}
		}
	}
	var out []kueue.PodSetUpdate
	for _, a := range asked {
		for _, name := range a.podSets {
			out = append(out, kueue.PodSetUpdate{Name: name, Annotations: consumerAnnotations(r), NodeSelector: selector})
		}
	}
	return out
}
