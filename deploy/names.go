package deploy

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Names are those that an installation may choose. All others are fixed: a cluster has one
// Muster, which finds its policies, roles and lease by name.
type Names struct {
	Namespace string
	// ServiceAccount is that of muster, and Dashboard that of the page.
	ServiceAccount, Dashboard string
}

// DefaultNames are those in the files.
var DefaultNames = Names{Namespace: Namespace, ServiceAccount: ServiceAccount, Dashboard: ServiceAccount + "-dashboard"}

// User is the name by which the API server knows muster.
func (n Names) User() string { return "system:serviceaccount:" + n.Namespace + ":" + n.ServiceAccount }

// quoted is muster's in expressions.
var quoted = "'" + DefaultNames.User() + "'"

// In returns copies of the objects that bear the names.
func (n Names) In(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, o := range objects {
		o = o.DeepCopy()
		n.rename(o.Object)
		if o.GetKind() == "ServiceAccount" {
			o.SetName(n.account(o.GetName()))
		}
		out[i] = o
	}
	return out
}

// rename replaces the names in a value, and returns it.
func (n Names) rename(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if name, ok := value["name"].(string); ok && value["kind"] == "ServiceAccount" {
			value["name"] = n.account(name)
		}
		for field := range value {
			value[field] = n.rename(value[field])
		}
	case []any:
		for i := range value {
			value[i] = n.rename(value[i])
		}
	case string:
		if value == Namespace {
			return n.Namespace
		}
		return strings.ReplaceAll(value, quoted, "'"+n.User()+"'")
	}
	return value
}

func (n Names) account(name string) string {
	switch name {
	case DefaultNames.ServiceAccount:
		return n.ServiceAccount
	case DefaultNames.Dashboard:
		return n.Dashboard
	}
	return name
}

// ForSimulation reports whether an object is only for the simulated machines of NodeGroups of
// provider kwok.
func ForSimulation(o *unstructured.Unstructured) bool {
	return o.GetName() == "machines.kwok.muster.dev" || o.GetName() == "muster-kwok"
}
