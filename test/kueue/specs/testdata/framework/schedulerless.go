package framework

import (
	"context"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	utiltestingapi "sigs.k8s.io/kueue/pkg/util/testing/v1beta2"
)

// Most specs of controllers run without Kueue's scheduler and write its results by hand. Muster's scheduler cannot be left out, so
// a policy refuses its writes that reserve quota: it runs as a user whose userInfo has schedulerless.
const schedulerless = "muster-specs-schedulerless"

// refusal is the error that such a Muster gets.
const refusal = "the spec has no scheduler"

// musterAccount is Muster's service account in the suite's cluster.
const musterAccount = "system:serviceaccount:muster-system:muster"

// impersonation lets an administrator act as Muster without a scheduler.
var impersonation = rest.ImpersonationConfig{
	UserName: musterAccount,
	Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:muster-system", "system:authenticated"},
	Extra:    map[string][]string{schedulerless: {"true"}},
}

// refuseQuota returns when the policy is in effect.
func refuseQuota(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, c client.Client) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: schedulerless},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{kueue.SchemeGroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"workloads/status"},
						},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "schedulerless", Expression: "has(request.userInfo.extra) && '" + schedulerless + "' in request.userInfo.extra",
			}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!has(object.status) || !has(object.status.admission) || has(oldObject.status) && has(oldObject.status.admission)",
				Message:    refusal,
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: schedulerless},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: schedulerless, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	probe := utiltestingapi.MakeWorkload("schedulerless", "default").Queue("none").Request("cpu", "1").Obj()
	for _, object := range []client.Object{policy, binding, probe} {
		gomega.ExpectWithOffset(2, c.Create(ctx, object)).To(gomega.Succeed())
	}
	limited := rest.CopyConfig(cfg)
	limited.Impersonate = impersonation
	muster, err := client.New(limited, client.Options{Scheme: scheme})
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	gomega.EventuallyWithOffset(2, func() error {
		given := probe.DeepCopy()
		given.Status.Admission = utiltestingapi.MakeAdmission("none").Obj()
		return muster.Status().Patch(ctx, given, client.MergeFrom(probe), client.DryRunAll)
	}, patience, 100*time.Millisecond).Should(gomega.MatchError(gomega.ContainSubstring(refusal)))
	gomega.ExpectWithOffset(2, c.Delete(ctx, probe)).To(gomega.Succeed())
}
