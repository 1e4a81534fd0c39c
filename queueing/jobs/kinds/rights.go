package kinds

import (
	"bytes"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// role is the ClusterRole of Muster for the kinds.
const role = "muster-job-kinds"

// Rights returns the ClusterRole and its binding that Muster needs for the kinds, as YAML: to start, suspend and restore the objects, to
// delete deactivated objects according to objectRetentionPolicies, to delete pods of objects that a finalizer keeps, and to own their
// Workloads.
func Rights(kinds []*Kind) ([]byte, error) {
	resources, finalizers, stale := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, k := range kinds {
		resources[k.Group] = append(resources[k.Group], k.Resource)
		finalizers[k.Group] = append(finalizers[k.Group], k.Resource+"/finalizers")
		for _, c := range k.Stale {
			stale[c.Group] = append(stale[c.Group], c.Resource)
		}
	}
	out := &rbacv1.ClusterRole{}
	out.APIVersion, out.Kind = rbacv1.SchemeGroupVersion.String(), "ClusterRole"
	out.Name = role
	for _, r := range []struct {
		resources map[string][]string
		verbs     []string
	}{
		{resources, []string{"get", "list", "watch", "patch", "delete"}}, {finalizers, []string{"update"}}, {stale, []string{"list", "delete"}},
	} {
		for _, group := range slices.Sorted(maps.Keys(r.resources)) {
			all := slices.Compact(slices.Sorted(slices.Values(r.resources[group])))
			out.Rules = append(out.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: all, Verbs: r.verbs})
		}
	}
	binding := &rbacv1.ClusterRoleBinding{}
	binding.APIVersion, binding.Kind = rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding"
	binding.Name = role
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "muster", Namespace: "muster-system"}}
	var text [][]byte
	for _, object := range []any{out, binding} {
		part, err := yaml.Marshal(object)
		if err != nil {
			return nil, err
		}
		text = append(text, part)
	}
	return bytes.Join(text, []byte("---\n")), nil
}
