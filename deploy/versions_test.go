package deploy

import (
	"fmt"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	crdcel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	policycel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// expressions are those that a kube-apiserver of the oldest supported version takes in objects
// that are written: it takes none that its predecessor could not read.
func expressions() *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MajorMinor(1, OldestMinor-1))
}

// expression of a policy, with the types that it may have.
type expression struct {
	name, text string
	types      []*celgo.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return e.types }

// TestTheOldestVersionKnowsTheExpressionsOfPolicies: one that it does not know would have it
// refuse the policy, or all that the policy guards.
func TestTheOldestVersionKnowsTheExpressionsOfPolicies(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
			t.Fatal(err)
		}
		compiler, err := policycel.NewCompositedCompiler(expressions())
		if err != nil {
			t.Fatal(err)
		}
		options := policycel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
		check := func(where string, result policycel.CompilationResult) {
			compiled++
			if result.Error != nil {
				t.Errorf("%s: %s: %v", policy.Name, where, result.Error)
			}
		}
		compile := func(where, text string, types ...*celgo.Type) {
			if text != "" {
				check(where, compiler.CompileCELExpression(expression{text: text, types: types}, options, environment.NewExpressions))
			}
		}
		for _, v := range policy.Spec.Variables {
			e := expression{name: v.Name, text: v.Expression, types: []*celgo.Type{celgo.AnyType, celgo.DynType}}
			check("variable "+v.Name, compiler.CompileAndStoreVariable(e, options, environment.NewExpressions))
		}
		for _, c := range policy.Spec.MatchConditions {
			compile("condition "+c.Name, c.Expression, celgo.BoolType)
		}
		for i, v := range policy.Spec.Validations {
			compile(fmt.Sprintf("validations[%d]", i), v.Expression, celgo.BoolType)
			compile(fmt.Sprintf("message of validations[%d]", i), v.MessageExpression, celgo.StringType)
		}
	}
	if compiled < 100 {
		t.Errorf("only %d expressions were compiled", compiled)
	}
}

// TestGangsAreKnownAsKubernetesKnowsThem: another version of the API has another condition for what has been bound.
func TestGangsAreKnownAsKubernetesKnowsThem(t *testing.T) {
	text, err := files.ReadFile(policies + "/gangs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"    apiVersion: " + schedulingv1beta1.SchemeGroupVersion.String() + "\n    kind: PodGroup",
		"c.type == '" + schedulingv1beta1.PodGroupInitiallyScheduled + "'",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the policies lack %q", want)
		}
	}
}

// TestColumnsAreReadable: of what Muster writes they show no quantity, since 6.53 is stored as 6530m, and no parts per thousand.
func TestColumnsAreReadable(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	file, err := files.ReadFile(crds + "/muster.dev_nodegroups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(file, &crd); err != nil {
		t.Fatal(err)
	}
	for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
		if strings.ContainsRune(c.JSONPath, '[') {
			continue // of a condition
		}
		field := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for name := range strings.SplitSeq(strings.TrimPrefix(c.JSONPath, "."), ".") {
			field = field.Properties[name]
		}
		if field.XIntOrString || field.Type == "" && !strings.HasPrefix(c.JSONPath, ".metadata.") {
			t.Errorf("column %s shows %s, of type %q: want a string or a number", c.Name, c.JSONPath, field.Type)
		}
		if strings.Contains(field.Description, "parts per thousand") {
			t.Errorf("column %s shows %s, which is in parts per thousand", c.Name, c.JSONPath)
		}
	}
}

// TestTheOldestVersionKnowsTheExpressionsOfCRDs for the same reason.
func TestTheOldestVersionKnowsTheExpressionsOfCRDs(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			var internal apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema,
				&internal, nil); err != nil {
				t.Fatal(err)
			}
			root, err := schema.NewStructural(&internal)
			if err != nil {
				t.Fatal(err)
			}
			compiled += compileRules(t, crd.Name, root, true)
		}
	}
	if compiled < 30 {
		t.Errorf("only %d rules were compiled", compiled)
	}
}

// compileRules compiles the rules of a schema and of all below it, and returns how many there are.
func compileRules(t *testing.T, path string, s *schema.Structural, root bool) (compiled int) {
	t.Helper()
	results, err := crdcel.Compile(s, model.SchemaDeclType(s, root), celconfig.PerCallLimit, expressions(), crdcel.NewExpressionsEnvLoader())
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	for i, r := range results {
		compiled++
		if r.Error != nil {
			t.Errorf("%s: rule %d: %v", path, i, strings.TrimSpace(r.Error.Detail))
		}
	}
	for name, property := range s.Properties {
		compiled += compileRules(t, path+"."+name, &property, false)
	}
	if s.Items != nil {
		compiled += compileRules(t, path+"[]", s.Items, false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		compiled += compileRules(t, path+"{}", s.AdditionalProperties.Structural, false)
	}
	return compiled
}

func TestVersionsAreReadAsCloudsWriteThem(t *testing.T) {
	for text, want := range map[string]struct {
		policies bool
		refused  string
	}{
		"1.33": {}, "v1.33.4": {}, "1.34+": {}, "v1.35.2-eks-113cf36": {}, "1.35.1-gke.1396002": {},
		"1.36": {policies: true}, "v1.36.0-alpha.1": {policies: true}, "v1.37.1": {policies: true},
		"1.32":     {refused: `"1.32" is older than 1.33`},
		"v1.32.99": {refused: "upgrade the cluster"},
		"0.9":      {refused: "older than 1.33"},
		"2.0":      {refused: "not known yet"},
		"latest":   {refused: `"latest" is no version of Kubernetes; give one such as 1.33 or v1.36.1`},
		"36":       {refused: "no version of Kubernetes"},
	} {
		policies, err := MutatingPolicies(text)
		if refused := err != nil; refused != (want.refused != "") || refused && !strings.Contains(err.Error(), want.refused) {
			t.Errorf("%s: error %v, want one that says %q", text, err, want.refused)
		} else if policies != want.policies {
			t.Errorf("%s has mutating policies: %t, want %t", text, policies, want.policies)
		}
	}
}
