package checks

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// CapacityClass is the provisioning class of the requests of a capacity check.
	CapacityClass = "atomic-scale-up.muster.dev"
	// PolicyParameter of a request names its CapacityPolicy.
	PolicyParameter = "capacityPolicy"
	// processorParameter of a request names the provisioner that must serve it.
	processorParameter = "processorInstance"

	// maxObjectName is where Kueue truncates the names of requests and templates.
	maxObjectName = 247
	// maxParameter is the maximum length of a parameter, in bytes.
	maxParameter = 255
	// maxParameters is the maximum number of parameters of a request.
	maxParameters = 100
)

// Request is a ProvisioningRequest to create, after its PodTemplates.
type Request struct {
	Templates []*corev1.PodTemplate
	Object    *autoscaling.ProvisioningRequest
	// Superseded names the templates of the last attempt, which can be deleted once its request is gone.
	Superseded []string
	// Adopts: once created, the request owns its templates, so that they are deleted with it.
	Adopts bool
}

// RequestName is the name of the ProvisioningRequest of the n-th attempt, from 1.
func RequestName(workload string, check kueue.AdmissionCheckReference, attempt int32) string {
	return shortName(fmt.Sprintf("%s-%s-%d", workload, check, attempt))
}

// TemplateName is the name of the PodTemplate of a podSet of a request.
func TemplateName(request string, podSet kueue.PodSetReference) string {
	return shortName(fmt.Sprintf("ppt-%s-%s", request, podSet))
}

// shortName truncates a name that is too long and adds a hash.
func shortName(name string) string {
	if len(name) <= maxObjectName {
		return name
	}
	sum := sha1.Sum([]byte(name))
	return name[:maxObjectName] + "-" + hex.EncodeToString(sum[:])[:5]
}

// podRequest is a number of equal pods to request: those of one podSet, or of several that are merged into the first.
type podRequest struct {
	podSets    []kueue.PodSetReference
	assignment *kueue.PodSetAssignment
	count      int32
}

// missing returns how many pods of a podSet have no machines: all of them, unless the job runs with another slice,
// whose pods have some.
func missing(runsBy *cache.Workload, a *kueue.PodSetAssignment) int32 {
	n := workload.CountOf(a)
	if runsBy != nil {
		n = max(0, n-workload.PodsLeft(runsBy.Object, workload.FindAssignment(runsBy.Object, a.Name)))
	}
	return n
}

// missingPods returns the pods of a Workload that have no machines, by podSet.
func (s Evaluator) missingPods(w *cache.Workload) []podRequest {
	var out []podRequest
	runsBy := s.cache.Slices.RunsBy(w)
	for i := range w.Object.Status.Admission.PodSetAssignments {
		a := &w.Object.Status.Admission.PodSetAssignments[i]
		if n := missing(runsBy, a); n > 0 {
			out = append(out, podRequest{podSets: []kueue.PodSetReference{a.Name}, assignment: a, count: n})
		}
	}
	return out
}

// NewRequest returns a request for pods of the Workload on their flavors.
func (s Evaluator) NewRequest(w *cache.Workload, name, class string,
	parameters map[string]autoscaling.Parameter, pods []podRequest) *Request {
	owner := *metav1.NewControllerRef(w.Object, kueue.SchemeGroupVersion.WithKind("Workload"))
	meta := func(n string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: n, Namespace: w.Object.Namespace,
			Labels:          map[string]string{workload.ManagedLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{owner},
		}
	}
	out := &Request{Object: &autoscaling.ProvisioningRequest{
		ObjectMeta: meta(name),
		Spec:       autoscaling.ProvisioningRequestSpec{ProvisioningClassName: class, Parameters: parameters},
	}}
	// The name of a queue may be no valid label value. No budget refers to such a queue.
	if queue := w.Tenant().Queue; len(validation.IsValidLabelValue(queue)) == 0 {
		out.Object.Labels[state.QueueLabel] = queue
	}
	for _, a := range pods {
		templateName := TemplateName(name, a.podSets[0])
		template := s.templateOf(w, a.assignment)
		template.Spec = *fit.WithRequests(&template.Spec)
		dropForeignMounts(&template.Spec)
		s.recordPlacement(w, a.assignment, template)
		out.Templates = append(out.Templates, &corev1.PodTemplate{ObjectMeta: meta(templateName), Template: *template})
		out.Object.Spec.PodSets = append(out.Object.Spec.PodSets, autoscaling.PodSet{
			PodTemplateRef: autoscaling.Reference{Name: templateName}, Count: a.count,
		})
	}
	return out
}

// capacityRequest requests all pods of the Workload that have no machines.
func (s Evaluator) capacityRequest(w *cache.Workload, state *kueue.AdmissionCheckState, name string) *Request {
	pods := s.missingPods(w)
	out := s.NewRequest(w, name, CapacityClass, s.Parameters(w, state.Name), pods)
	if tried := workload.Retries(state); tried > 0 {
		for _, a := range pods {
			out.Superseded = append(out.Superseded, TemplateName(RequestName(w.Object.Name, state.Name, tried), a.podSets[0]))
		}
	}
	return out
}

// dropForeignMounts removes the mounts of volumes that the template does not have. Its controller adds such volumes to
// the pods, for example for the claims of a StatefulSet, and kube-apiserver rejects a template without them.
func dropForeignMounts(spec *corev1.PodSpec) {
	isForeign := func(volume string) bool {
		return !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
	}
	for _, containers := range []*[]corev1.Container{&spec.InitContainers, &spec.Containers} {
		*containers = slices.Clone(*containers) // may be shared
		for i := range *containers {
			c := &(*containers)[i]
			c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return isForeign(m.Name) })
			c.VolumeDevices = slices.DeleteFunc(slices.Clone(c.VolumeDevices), func(d corev1.VolumeDevice) bool { return isForeign(d.Name) })
		}
	}
}

// recordPlacement adds the unconstrained topology annotation to the template of a podSet that requests no topology but is on
// a flavor with one. Its pods will have the annotation, and lost pods are placed again.
func (s Evaluator) recordPlacement(w *cache.Workload, a *kueue.PodSetAssignment, template *corev1.PodTemplateSpec) {
	if s.cache.HasTopology(a) && !placement.RequestsTopology(workload.FindPodSet(w.Object, a.Name).TopologyRequest) {
		template.Annotations = maps.Clone(template.Annotations)
		if template.Annotations == nil {
			template.Annotations = map[string]string{}
		}
		template.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] = "true"
	}
}

// annotated overrides the parameters with the annotations of the job.
func annotated(w *cache.Workload, parameters map[string]autoscaling.Parameter) {
	for k, v := range w.Object.Annotations {
		if name, ok := strings.CutPrefix(k, workload.ParameterPrefix); ok {
			parameters[name] = autoscaling.Parameter(v)
		}
	}
}

// requestsFor finds the request of a check's current attempt by name; nil if there is none to keep. Others are the
// requests of no current attempt of any check, and those that were created for another assignment. They and their
// machines must be gone before a new request is created.
func (s Evaluator) requestsFor(w *cache.Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) (
	name string, current *autoscaling.ProvisioningRequest, others []*autoscaling.ProvisioningRequest) {
	nameOf := func(c *kueue.AdmissionCheckState) string {
		return RequestName(w.Object.Name, c.Name, workload.Retries(c)+1)
	}
	name = nameOf(state)
	for _, r := range s.cache.Requests[w.Object.UID] {
		switch {
		case r.DeletionTimestamp.IsZero() && r.Name == name && IsFor(r, w.Object.Status.Admission):
			current = r
		case r.Name == name || !slices.ContainsFunc(checks, func(c kueue.AdmissionCheckState) bool { return nameOf(&c) == r.Name }):
			others = append(others, r)
		}
	}
	return name, current, others
}

// consumerAnnotations are the annotations of pods that consume a booking.
func consumerAnnotations(r *autoscaling.ProvisioningRequest) map[string]string {
	return map[string]string{
		autoscaling.ProvisioningRequestPodAnnotationKey: r.Name,
		autoscaling.ProvisioningClassPodAnnotationKey:   r.Spec.ProvisioningClassName,
	}
}
