package scenario

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/faults"
)

// Components of the sandbox that a scenario runs on, in start order.
var Components = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok, cluster.Muster}

// reach is what the faults of a scenario can come to.
func reach() faults.Reach { return faults.Reach{Components: Components, Resources: accessible()} }

// accessible returns the resources that Muster's roles allow it to access.
func accessible() (out []string) {
	manifests, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, o := range manifests {
		if kind := o.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, rule := range rules {
			resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
			out = append(out, resources...)
		}
	}
	// A right to set finalizers stands for no request.
	out = slices.DeleteFunc(out, func(r string) bool { return strings.HasSuffix(r, "/finalizers") })
	slices.Sort(out)
	return slices.Compact(out)
}
