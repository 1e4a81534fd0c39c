package queueing

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/fit"
)

const (
	// CapacityClass is the provisioning class of the requests that a capacity
	// check makes.
	CapacityClass = "atomic-scale-up.muster.dev"
	// PolicyParameter of a request names its CapacityPolicy.
	PolicyParameter = "capacityPolicy"
	// processorParameter of a request names the provisioner that is to serve it, if
	// not all may.
	processorParameter = "processorInstance"
	// ParameterPrefix begins the annotations whose rest is a parameter's name.
	ParameterPrefix = "provreq.kueue.x-k8s.io/"
	// ManagedLabel marks the objects that queueing makes, as Kueue does.
	ManagedLabel = "kueue.x-k8s.io/managed"

	// maxObjectName is where Kueue cuts the names of requests and templates.
	maxObjectName = 247
	// maxParameter is how long the value of a parameter may be, in bytes.
	maxParameter = 255
	// maxParameters is how many parameters a request may have.
	maxParameters = 100
)

// Request is a ProvisioningRequest to make, after the templates that it names.
type Request struct {
	Templates []*corev1.PodTemplate
	Object    *autoscaling.ProvisioningRequest
	// Superseded names the templates of the last attempt, which nobody needs once
	// its request is gone.
	Superseded []string
	// Adopts says that the request owns its templates once it is there, so that they
	// go with it.
	Adopts bool
}

// RequestName is that of the n-th attempt's ProvisioningRequest, from 1 on.
func RequestName(workload string, check kueue.AdmissionCheckReference, attempt int32) string {
	return limited(fmt.Sprintf("%s-%s-%d", workload, check, attempt))
}

// TemplateName is that of the PodTemplate of one podSet of a request.
func TemplateName(request string, podSet kueue.PodSetReference) string {
	return limited(fmt.Sprintf("ppt-%s-%s", request, podSet))
}

// limited cuts a name that is too long and keeps it unique by a piece of its
// hash.
func limited(name string) string {
	if len(name) <= maxObjectName {
		return name
	}
	sum := sha1.Sum([]byte(name))
	return name[:maxObjectName] + "-" + hex.EncodeToString(sum[:])[:5]
}

// ask is a number of like pods to ask for: those of one podSet, or of several that
// are merged into the first.
type ask struct {
	podSets    []kueue.PodSetReference
	assignment *kueue.PodSetAssignment
	count      int32
}

// allOf asks for all of a Workload's pods, each podSet by itself.
func allOf(w *Workload) []ask {
	var out []ask
	for i := range w.Object.Status.Admission.PodSetAssignments {
		a := &w.Object.Status.Admission.PodSetAssignments[i]
		if n := countOf(a); n > 0 {
			out = append(out, ask{podSets: []kueue.PodSetReference{a.Name}, assignment: a, count: n})
		}
	}
	return out
}

// newRequest asks for pods of the Workload as they will be on their flavors.
func (s Evaluator) newRequest(w *Workload, name, class string, parameters map[string]autoscaling.Parameter, asked []ask) *Request {
	owner := *metav1.NewControllerRef(w.Object, kueue.SchemeGroupVersion.WithKind("Workload"))
	meta := func(n string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: n, Namespace: w.Object.Namespace,
			Labels:          map[string]string{ManagedLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{owner},
		}
	}
	out := &Request{Object: &autoscaling.ProvisioningRequest{
		ObjectMeta: meta(name),
		Spec:       autoscaling.ProvisioningRequestSpec{ProvisioningClassName: class, Parameters: parameters},
	}}
	// A queue may have a name that no label can have as its value. No budget names it.
	if queue := w.tenant().Queue; len(validation.IsValidLabelValue(queue)) == 0 {
		out.Object.Labels[provisioning.QueueLabel] = queue
	}
	for _, a := range asked {
		templateName := TemplateName(name, a.podSets[0])
		template := s.templateOf(w, a.assignment)
		template.Spec = *fit.WithRequests(&template.Spec)
		out.Templates = append(out.Templates, &corev1.PodTemplate{ObjectMeta: meta(templateName), Template: *template})
		out.Object.Spec.PodSets = append(out.Object.Spec.PodSets, autoscaling.PodSet{
			PodTemplateRef: autoscaling.Reference{Name: templateName}, Count: a.count,
		})
	}
	return out
}

// capacityRequest asks for all of the Workload's pods at once.
func (s Evaluator) capacityRequest(w *Workload, state *kueue.AdmissionCheckState, name string) *Request {
	asked := allOf(w)
	out := s.newRequest(w, name, CapacityClass, s.parameters(w, state.Name), asked)
	if tried := retries(state); tried > 0 {
		for _, a := range asked {
			out.Superseded = append(out.Superseded, TemplateName(RequestName(w.Object.Name, state.Name, tried), a.podSets[0]))
		}
	}
	return out
}

// annotated puts what the job's annotations say over the parameters.
func annotated(w *Workload, parameters map[string]autoscaling.Parameter) {
	for k, v := range w.Object.Annotations {
		if name, ok := strings.CutPrefix(k, ParameterPrefix); ok {
			parameters[name] = autoscaling.Parameter(v)
		}
	}
}

// requestsFor finds the request of a check's current attempt by its name; nil if
// there is none that stays. Others are those of no current attempt of any check, and
// those that were made ahead for another assignment: they have to be gone, and with
// them their machines, before a new one is made.
func (s Evaluator) requestsFor(w *Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) (
	name string, current *autoscaling.ProvisioningRequest, others []*autoscaling.ProvisioningRequest) {
	nameOf := func(c *kueue.AdmissionCheckState) string { return RequestName(w.Object.Name, c.Name, retries(c)+1) }
	name = nameOf(state)
	for _, r := range s.requests[w.Object.UID] {
		switch {
		case r.DeletionTimestamp.IsZero() && r.Name == name && isFor(r, w.Object.Status.Admission):
			current = r
		case r.Name == name || !slices.ContainsFunc(checks, func(c kueue.AdmissionCheckState) bool { return nameOf(&c) == r.Name }):
			others = append(others, r)
		}
	}
	return name, current, others
}

// living are the requests that nobody has deleted yet.
func living(requests []*autoscaling.ProvisioningRequest) []*autoscaling.ProvisioningRequest {
	var out []*autoscaling.ProvisioningRequest
	for _, r := range requests {
		if r.DeletionTimestamp.IsZero() {
			out = append(out, r)
		}
	}
	return out
}

// consuming are the annotations of pods that use what a request has booked.
func consuming(r *autoscaling.ProvisioningRequest) map[string]string {
	return map[string]string{
		autoscaling.ProvisioningRequestPodAnnotationKey: r.Name,
		autoscaling.ProvisioningClassPodAnnotationKey:   r.Spec.ProvisioningClassName,
	}
}

func findPodSet(w *kueue.Workload, name kueue.PodSetReference) *kueue.PodSet {
	for i := range w.Spec.PodSets {
		if w.Spec.PodSets[i].Name == name {
			return &w.Spec.PodSets[i]
		}
	}
	return &kueue.PodSet{}
}
