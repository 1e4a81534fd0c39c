// Package webhook serves the changes that the mutating admission policies of the chart
// make, for clusters without such policies. kube-apiserver itself evaluates what a policy
// matches: `muster manifests --webhook` puts the policy's rules, selectors and conditions into a
// MutatingWebhookConfiguration. The mutations are evaluated here, by the same code and from the
// same text as in kube-apiserver, so the two cannot differ.
package webhook

import (
	"context"
	"errors"
	"fmt"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	policyv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	policycel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-dev/muster/deploy"
)

// mutation makes the changes of one policy.
type mutation struct {
	policy   *deploy.Policy
	compiler *policycel.CompositedCompiler
	patchers []patch.Patcher
	// params has the objects that policies have as their parameters.
	params client.Reader
}

// register compiles the policies, and has the server serve each at its path.
func register(server webhook.Server, policies []*deploy.Policy, params client.Reader) error {
	for _, p := range policies {
		m, err := newMutation(p, params)
		if err != nil {
			return fmt.Errorf("compiling policy %s: %w", p.Name, err)
		}
		server.Register(p.WebhookPath(), &ctrladmission.Webhook{Handler: m})
	}
	return nil
}

func newMutation(p *deploy.Policy, params client.Reader) (*mutation, error) {
	compiler, err := policycel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, deploy.MutatingMinor)))
	if err != nil {
		return nil, err
	}
	m := &mutation{policy: p, compiler: compiler, params: params}
	options := policycel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	for _, v := range p.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(variable(v), options, environment.StoredExpressions); result.Error != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, result.Error)
		}
	}
	options.HasPatchTypes = true
	for i, c := range p.Spec.Mutations {
		var expression policycel.ExpressionAccessor
		patcher := patch.NewJSONPatcher
		if c.JSONPatch != nil {
			expression = &patch.JSONPatchCondition{Expression: c.JSONPatch.Expression}
		} else {
			expression, patcher = &patch.ApplyConfigurationCondition{Expression: c.ApplyConfiguration.Expression}, patch.NewApplyConfigurationPatcher
		}
		compiled := compiler.CompileMutatingEvaluator(expression, options, environment.StoredExpressions)
		if err := errors.Join(compiled.CompilationErrors()...); err != nil {
			return nil, fmt.Errorf("mutations[%d]: %w", i, err)
		}
		m.patchers = append(m.patchers, patcher(compiled))
	}
	return m, nil
}

// variable of a policy, as the compiler wants it.
type variable policyv1.Variable

func (v variable) GetName() string            { return v.Name }
func (v variable) GetExpression() string      { return v.Expression }
func (v variable) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType, celgo.DynType} }

// Handle implements admission.Handler. It denies nothing: an object that cannot be changed passes
// as it is, with a warning to the user that made the request.
func (m *mutation) Handle(ctx context.Context, r ctrladmission.Request) ctrladmission.Response {
	changed, err := m.apply(ctx, &r.AdmissionRequest)
	if err != nil {
		log.FromContext(ctx).Error(err, "A mutation failed, the object passes as it is", "policy", m.policy.Name, "namespace", r.Namespace,
			"name", r.Name)
		return ctrladmission.Allowed("").WithWarnings(fmt.Sprintf("muster could not apply its policy %s: %v", m.policy.Name, err))
	}
	return ctrladmission.PatchResponseFromRaw(r.Object.Raw, changed)
}

// interfaces of objects without a schema: what a request has is in the version that is requested.
var interfaces = admission.NewObjectInterfacesFromScheme(runtime.NewScheme())

// apply returns the object of a request as the policy changes it.
func (m *mutation) apply(ctx context.Context, r *admissionv1.AdmissionRequest) ([]byte, error) {
	params, err := m.paramsFor(ctx, r.Namespace)
	if err != nil || len(params) == 0 {
		return r.Object.Raw, err
	}
	object, err := decode(r.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	old, err := decode(r.OldObject.Raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object as it was: %w", err)
	}
	kind, resource := schema.GroupVersionKind(r.Kind), schema.GroupVersionResource(r.Resource)
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, kind, r.Namespace, r.Name, resource, r.SubResource,
			admission.Operation(r.Operation), nil, ptr.Deref(r.DryRun, false),
			&user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups}),
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old), VersionedKind: kind,
	}
	ctx = m.compiler.CreateContext(ctx)
	for _, param := range params {
		for i, p := range m.patchers {
			object, err = p.Patch(ctx, patch.Request{
				MatchedResource: resource, VersionedAttributes: attributes, ObjectInterfaces: interfaces,
				OptionalVariables: policycel.OptionalVariableBindings{VersionedParams: param},
				// Lists are atomic to it. The policies apply none, see TestAppliedConfigurationsHaveNoLists.
				TypeConverter: managedfields.NewDeducedTypeConverter(),
			}, celconfig.RuntimeCELCostBudget)
			if err != nil {
				return nil, fmt.Errorf("mutations[%d]: %w", i, err)
			}
			attributes.UpdateObject(object)
		}
	}
	return runtime.Encode(unstructured.UnstructuredJSONScheme, object)
}

// decode reads an object; nil where there is none.
func decode(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(raw)
}

// paramsFor returns the objects that the binding of the policy names or selects, in its namespace
// or that of the request; the policy acts once for each. A policy without parameters acts once.
func (m *mutation) paramsFor(ctx context.Context, namespace string) ([]runtime.Object, error) {
	kind, ref := m.policy.Spec.ParamKind, m.policy.Binding.Spec.ParamRef
	if kind == nil {
		return []runtime.Object{nil}, nil
	}
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	if ref.Namespace != "" {
		key.Namespace = ref.Namespace
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if ref.Selector != nil {
		return m.selected(ctx, gvk, key.Namespace, ref.Selector)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	switch err := m.params.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s, the parameter: %w", kind.Kind, key, err)
	}
	return []runtime.Object{object}, nil
}

func (m *mutation) selected(ctx context.Context, gvk schema.GroupVersionKind, namespace string,
	by *metav1.LabelSelector) (out []runtime.Object, err error) {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := m.params.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("reading the objects of kind %s in namespace %s, the parameters: %w", gvk.Kind, namespace, err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}
