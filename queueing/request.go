package queueing

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
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

// newRequest asks for the Workload's pods as they will be on their flavors.
func (s *State) newRequest(w *Workload, state *kueue.AdmissionCheckState, name string) *Request {
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
		Spec:       autoscaling.ProvisioningRequestSpec{ProvisioningClassName: CapacityClass, Parameters: s.parameters(w, state.Name)},
	}}
	for i := range w.Object.Status.Admission.PodSetAssignments {
		assignment := &w.Object.Status.Admission.PodSetAssignments[i]
		if countOf(assignment) == 0 {
			continue
		}
		templateName := TemplateName(name, assignment.Name)
		out.Templates = append(out.Templates, &corev1.PodTemplate{ObjectMeta: meta(templateName), Template: *s.templateOf(w, assignment)})
		out.Object.Spec.PodSets = append(out.Object.Spec.PodSets, autoscaling.PodSet{
			PodTemplateRef: autoscaling.Reference{Name: templateName}, Count: countOf(assignment),
		})
		if tried := retries(state); tried > 0 {
			out.Superseded = append(out.Superseded, TemplateName(RequestName(w.Object.Name, state.Name, tried), assignment.Name))
		}
	}
	return out
}

// parameters are the policy's name and what the job's annotations add. The map
// is never nil, since the API takes no null.
func (s *State) parameters(w *Workload, check kueue.AdmissionCheckReference) map[string]autoscaling.Parameter {
	out := map[string]autoscaling.Parameter{}
	if ref := s.checks[check].Spec.Parameters; ref != nil {
		out[PolicyParameter] = autoscaling.Parameter(ref.Name)
	}
	for k, v := range w.Object.Annotations {
		if name, ok := strings.CutPrefix(k, ParameterPrefix); ok {
			out[name] = autoscaling.Parameter(v)
		}
	}
	return out
}

func findPodSet(w *kueue.Workload, name kueue.PodSetReference) *kueue.PodSet {
	for i := range w.Spec.PodSets {
		if w.Spec.PodSets[i].Name == name {
			return &w.Spec.PodSets[i]
		}
	}
	return &kueue.PodSet{}
}
