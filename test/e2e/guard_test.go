package e2e

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/deploy"
)

// TestOnlyThoseWithTheRightSeeThePageAndTheMetrics: the page and the metrics review access in the real cluster, with the permissions that
// deploy/ gives their service accounts.
func TestOnlyThoseWithTheRightSeeThePageAndTheMetrics(t *testing.T) {
	s := newSite(t)
	for _, tc := range []struct{ account, prefix, path, role string }{
		{"muster-dashboard", "/muster-dashboard", "/api/queue", "muster-dashboard-viewer"},
		{deploy.ServiceAccount, "", "/metrics", "muster-metrics-reader"},
	} {
		t.Run(tc.account, func(t *testing.T) {
			config := rest.CopyConfig(s.RESTConfig())
			config.Impersonate = rest.ImpersonationConfig{
				UserName: "system:serviceaccount:" + deploy.Namespace + ":" + tc.account,
				Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + deploy.Namespace, "system:authenticated"},
			}
			h, err := guard.Authenticated(config, logr.Discard(), tc.prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.URL.Path)
			}))
			if err != nil {
				t.Fatal(err)
			}
			ask := func(token string) (int, string) {
				r := httptest.NewRequest(http.MethodGet, tc.path, nil)
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code, w.Body.String()
			}
			if code, text := ask(""); code != http.StatusUnauthorized {
				t.Errorf("without a token: %d %s", code, text)
			}
			if code, text := ask("forged"); code == http.StatusOK {
				t.Errorf("with a forged token: %d %s", code, text)
			}
			tenant := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tenant-" + tc.account, Namespace: s.Name}}
			viewer := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer-" + tc.account, Namespace: s.Name}}
			s.Create(tenant, viewer, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: tenant.Name, Namespace: s.Name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: tenant.Name, Namespace: s.Name}},
			})
			binding := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + tc.account},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tc.role},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: viewer.Name, Namespace: s.Name}},
			}
			s.Create(binding)
			t.Cleanup(func() { _ = s.Kube.Delete(context.Background(), binding) })
			token := func(account *corev1.ServiceAccount) string {
				r := &authenticationv1.TokenRequest{}
				if err := s.Kube.SubResource("token").Create(t.Context(), account, r); err != nil {
					t.Fatal(err)
				}
				return r.Status.Token
			}
			if code, text := ask(token(tenant)); code != http.StatusForbidden {
				t.Errorf("the admin of a namespace is answered with %d %s", code, text)
			}
			// The API server learns of a binding by a watch, and a no is remembered for a while.
			s.Eventually("the binding counts", func() bool {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User:                  "system:serviceaccount:" + s.Name + ":" + viewer.Name,
					NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: tc.prefix + tc.path, Verb: "get"},
				}}
				return s.Kube.Create(t.Context(), review) == nil && review.Status.Allowed
			}, func() string { return binding.Name })
			if code, text := ask(token(viewer)); code != http.StatusOK || text != tc.path {
				t.Errorf("one with the right is answered with %d %s", code, text)
			}
		})
	}
}
