package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rights returns a check that this process has all rights that the objects grant to the service
// account. A token of another account, or RBAC of another version, lacks some.
func Rights(kube client.Client, namespace, account string, objects []*unstructured.Unstructured) (func(context.Context) error, error) {
	needed, err := granted(account, objects)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		if err := kube.Create(ctx, review); err != nil {
			return fmt.Errorf("asking for the rights of this process: %w", err)
		}
		var lacking []string
		for _, r := range needed {
			if r.within(review.Status.ResourceRules) {
				continue
			}
			// Authorizers other than RBAC need not list what they grant, so a review is requested.
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &r.ResourceAttributes}}
			if err := kube.Create(ctx, review); err != nil {
				return fmt.Errorf("asking for the right to %s: %w", r, err)
			}
			if !review.Status.Allowed {
				lacking = append(lacking, r.String())
			}
		}
		if len(lacking) == 0 {
			return nil
		}
		more := ""
		if n := len(lacking) - mostNamed; n > 0 {
			lacking, more = lacking[:mostNamed], fmt.Sprintf(" and %d more", n)
		}
		return errors.New("this process may not " + strings.Join(lacking, ", ") + more + ": it has to run as the service account " +
			namespace + "/" + account + " with the roles of this version")
	}, nil
}

// right is to do one thing with one resource, in one namespace if that is named.
type right struct {
	authorizationv1.ResourceAttributes
}

func (r right) String() string {
	out := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		out += "/" + r.Subresource
	}
	if r.Group != "" {
		out += " of " + r.Group
	}
	if r.Name != "" {
		out += " named " + r.Name
	}
	return out
}

// within reports whether one of the rules grants the right.
func (r right) within(rules []authorizationv1.ResourceRule) bool {
	has := func(values []string, value string) bool {
		return slices.Contains(values, value) || slices.Contains(values, "*")
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
		return has(rule.Verbs, r.Verb) && has(rule.APIGroups, r.Group) && has(rule.Resources, resource) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
	})
}

// granted returns the rights that the objects grant to the service account.
func granted(account string, objects []*unstructured.Unstructured) (out []right, err error) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		if o.GetKind() == "ClusterRole" || o.GetKind() == "Role" {
			role := &rbacv1.ClusterRole{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
				return nil, fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			rules[o.GetKind()+"/"+o.GetName()] = role.Rules
		}
	}
	for _, o := range objects {
		if o.GetKind() != "ClusterRoleBinding" && o.GetKind() != "RoleBinding" {
			continue
		}
		binding := &rbacv1.ClusterRoleBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, binding); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == account }) {
			continue
		}
		for _, rule := range rules[binding.RoleRef.Kind+"/"+binding.RoleRef.Name] {
			out = append(out, rightsOf(rule, o.GetNamespace())...)
		}
	}
	return out, nil
}

func rightsOf(rule rbacv1.PolicyRule, namespace string) (out []right) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, path := range rule.Resources {
			resource, subresource, _ := strings.Cut(path, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					out = append(out, right{authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
					}})
				}
			}
		}
	}
	return out
}
