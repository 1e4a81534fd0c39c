package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// elsewhere are CRDs that other projects install, too: only their versions must exist.
var elsewhere = map[string]bool{"provisioningrequests.autoscaling.x-k8s.io": true}

// mostNamed bounds how many differences an error names.
const mostNamed = 3

// Installed returns a check that the CRDs and admission policies among the objects are in the cluster with their content. Additions in the
// cluster, such as defaults and fields of a newer version, are no difference.
func Installed(kube client.Reader, objects []*unstructured.Unstructured) func(context.Context) error {
	return func(ctx context.Context) error {
		var wrong []string
		for _, want := range objects {
			if !isChecked(want) {
				continue
			}
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(want.GroupVersionKind())
			what := want.GetKind() + " " + want.GetName()
			switch err := kube.Get(ctx, client.ObjectKeyFromObject(want), live); {
			case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
				wrong = append(wrong, what+" is missing")
			case err != nil:
				return fmt.Errorf("reading %s: %w", what, err)
			default:
				if at := difference(want, live); at != "" {
					wrong = append(wrong, fmt.Sprintf("%s differs at %s", what, at))
				}
			}
		}
		if len(wrong) == 0 {
			return nil
		}
		more := ""
		if n := len(wrong) - mostNamed; n > 0 {
			wrong, more = wrong[:mostNamed], fmt.Sprintf(" and %d more", n)
		}
		return errors.New(strings.Join(wrong, ", ") + more +
			": what is installed is not of this version; upgrade the chart, or apply what `muster manifests` of this version prints")
	}
}

// isChecked reports whether the object is a CRD or an admission policy. Of bindings Muster
// writes the namespaces, by its configuration.
func isChecked(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return true
	}
	return false
}

// difference returns the first field of the spec that the live object lacks or has otherwise.
func difference(want, live *unstructured.Unstructured) string {
	switch {
	case elsewhere[want.GetName()]:
		return missingVersion(want, live)
	case strings.HasSuffix(want.GetKind(), "Binding"):
		return lacks(pick(want, "policyName"), pick(live, "policyName"), "spec")
	}
	return lacks(want.Object["spec"], live.Object["spec"], "spec")
}

func pick(o *unstructured.Unstructured, field string) map[string]any {
	value, _, _ := unstructured.NestedString(o.Object, "spec", field)
	return map[string]any{field: value}
}

func missingVersion(want, live *unstructured.Unstructured) string {
	served := map[string]bool{}
	for _, o := range []*unstructured.Unstructured{live, want} {
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, v := range versions {
			v, _ := v.(map[string]any)
			name, _ := v["name"].(string)
			switch {
			case o == live:
				served[name] = v["served"] == true
			case v["storage"] == true && !served[name]:
				return "spec.versions, which does not serve " + name
			}
		}
	}
	return ""
}

// lacks returns the path of the first value in want that live does not have; empty if it has
// all. Lists have the same length.
func lacks(want, live any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		has, _ := live.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if at := lacks(want[name], has[name], path+"."+name); at != "" {
				return at
			}
		}
		return ""
	case []any:
		has, _ := live.([]any)
		if len(has) != len(want) {
			return path
		}
		for i := range want {
			if at := lacks(want[i], has[i], fmt.Sprintf("%s[%d]", path, i)); at != "" {
				return at
			}
		}
		return ""
	}
	if want, live := number(want), number(live); want == live || live == nil && isZero(want) {
		return ""
	}
	return path
}

// number returns whole numbers as the type that YAML has for all; other values as they are.
func number(value any) any {
	if n, ok := value.(int64); ok {
		return float64(n)
	}
	return value
}

// isZero reports whether a value is one that the API server leaves out.
func isZero(value any) bool {
	return value == nil || value == false || value == "" || value == float64(0)
}
