package app

import (
	"bytes"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestMigrationWaitsUntilNothingLeads(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name  string
		lease client.Object
		want  string
	}{
		{"nothing leads", nil, ""},
		{"Kueue has gone", lease("kueue-system", kueueLease, "kueue-1", now.Add(-time.Minute)), ""},
		{"Kueue leads", lease("kueue-system", kueueLease, "kueue-1", now), "Kueue leads by lease kueue-system/" + kueueLease},
		{"Muster leads", lease("muster-system", leaseName, "muster-1", now), "Muster leads by lease muster-system/muster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithIndex(lease("", "", "", now), "metadata.name", func(o client.Object) []string { return []string{o.GetName()} })
			if tc.lease != nil {
				b.WithObjects(tc.lease)
			}
			err := refuseBesideLeaders(t.Context(), b.Build(), now)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestMigrationTellsWhatKueueHasLeft(t *testing.T) {
	rules := func(group string) []admissionregistration.RuleWithOperations {
		return []admissionregistration.RuleWithOperations{{Rule: admissionregistration.Rule{APIGroups: []string{group}}}}
	}
	c := fake.NewClientBuilder().WithObjects(
		&admissionregistration.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "kueue-validating"},
			Webhooks:   []admissionregistration.ValidatingWebhook{{Name: "a", Rules: rules("kueue.x-k8s.io")}},
		},
		&admissionregistration.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "kueue-mutating"},
			Webhooks:   []admissionregistration.MutatingWebhook{{Name: "a", Rules: rules("batch")}, {Name: "b", Rules: rules("kueue.x-k8s.io")}},
		},
		&admissionregistration.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Webhooks:   []admissionregistration.MutatingWebhook{{Name: "a", Rules: rules("apps")}},
		},
	).Build()
	var out bytes.Buffer
	if err := tellWebhooks(t.Context(), c, &out); err != nil {
		t.Fatal(err)
	}
	const want = "kubectl delete mutatingwebhookconfiguration/kueue-mutating validatingwebhookconfiguration/kueue-validating\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want an end of %q", out.String(), want)
	}
}
