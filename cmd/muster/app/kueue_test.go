package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-dev/muster/cmd/muster/migration"
)

// lease that a Kueue of namespace holds, renewed at the time.
func lease(namespace, name, holder string, renewed time.Time) *coordinationv1.Lease {
	seconds := int32(15)
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

func TestQueueingBeginsWhereNoKueueLeads(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lease func(now time.Time) *coordinationv1.Lease
		after time.Duration
	}{
		{"there never was one", nil, 0},
		{"it has gone and said so", func(now time.Time) *coordinationv1.Lease { return lease("kueue-system", migration.Lease, "", now) }, 0},
		{"it died long ago", func(now time.Time) *coordinationv1.Lease {
			return lease("kueue-system", migration.Lease, "kueue-1", now.Add(-time.Hour))
		}, 0},
		{"a lease of another", func(now time.Time) *coordinationv1.Lease { return lease("kueue-system", "another", "kueue-1", now) }, 0},
		{"it dies just now", func(now time.Time) *coordinationv1.Lease {
			return lease("kueue-system", migration.Lease, "kueue-1", now)
		}, 15 * time.Second},
		{"one in a namespace of its own dies just now", func(now time.Time) *coordinationv1.Lease {
			return lease("team-queues", migration.Lease, "kueue-1", now)
		}, 15 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newChangeover(t)
				if tc.lease != nil {
					w.put(tc.lease(time.Now()))
				}
				w.start()
				if tc.after > 0 {
					time.Sleep(tc.after - time.Second) //nolint:forbidigo // time is free in the bubble
					if synctest.Wait(); w.begun {
						t.Errorf("queueing has begun before %s", tc.after)
					}
					time.Sleep(time.Second + kueueInterval) //nolint:forbidigo // time is free in the bubble
				}
				if synctest.Wait(); !w.begun {
					t.Errorf("queueing has not begun after %s", tc.after+kueueInterval)
				}
				if err := w.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestQueueingWaitsForAsLongAsKueueRenewsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newChangeover(t)
		w.put(lease("kueue-system", migration.Lease, "kueue-1", time.Now()))
		w.start()
		for range 60 {
			time.Sleep(10 * time.Second) //nolint:forbidigo // time is free in the bubble
			w.put(lease("kueue-system", migration.Lease, "kueue-1", time.Now()))
		}
		if synctest.Wait(); w.begun {
			t.Error("queueing has begun beside a Kueue that leads")
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestMusterEndsWhereKueueBeginsToLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newChangeover(t)
		w.start()
		time.Sleep(time.Minute) //nolint:forbidigo // time is free in the bubble
		w.put(lease("kueue-system", migration.Lease, "kueue-1", time.Now()))
		time.Sleep(kueueInterval) //nolint:forbidigo // time is free in the bubble
		synctest.Wait()
		select {
		case err := <-w.ended:
			if !errors.Is(err, errKueueCame) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("it runs on beside Kueue")
			_ = w.stop()
		}
	})
}

// TestQueueingWaitsUntilNothingOfKueueIsInTheWay: also a Kueue that is down keeps webhooks and CRDs.
func TestQueueingWaitsUntilNothingOfKueueIsInTheWay(t *testing.T) {
	webhook := func(name, path string) admissionregistration.WebhookClientConfig {
		return admissionregistration.WebhookClientConfig{Service: &admissionregistration.ServiceReference{Namespace: "batch",
			Name: name, Path: &path}}
	}
	crd := migration.NewCRD()
	crd.SetName("workloads.kueue.x-k8s.io")
	if err := unstructured.SetNestedField(crd.Object, "Webhook", "spec", "conversion", "strategy"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		object client.Object
		want   string
	}{
		"webhooks for its kinds": {&admissionregistration.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "batch-kueue-validating-webhook-configuration"},
			Webhooks: []admissionregistration.ValidatingWebhook{{ClientConfig: webhook("batch-kueue",
				"/validate-kueue-x-k8s-io-v1beta2-workload")}},
		}, "1 webhooks of Kueue are installed (batch-kueue-validating-webhook-configuration)"},
		"webhooks for jobs, beside those": {&admissionregistration.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "kueue"},
			Webhooks: []admissionregistration.MutatingWebhook{
				{ClientConfig: webhook("kueue", "/mutate--v1-pod")}, {ClientConfig: webhook("kueue", "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue")},
			},
		}, "2 webhooks of Kueue"},
		"webhooks of another project for its kinds": {&admissionregistration.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "policies"},
			Webhooks: []admissionregistration.ValidatingWebhook{{
				ClientConfig: webhook("policies", "/validate"),
				Rules:        []admissionregistration.RuleWithOperations{{Rule: admissionregistration.Rule{APIGroups: []string{"kueue.x-k8s.io"}}}},
			}},
		}, ""},
		"a conversion": {crd, "converts the objects of CRD workloads.kueue.x-k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newChangeover(t)
				if err := w.leases.Create(t.Context(), tc.object); err != nil {
					t.Fatal(err)
				}
				w.start()
				time.Sleep(time.Minute) //nolint:forbidigo // time is free in the bubble
				synctest.Wait()
				if err := w.a.ready(nil); w.begun != (tc.want == "") || (err == nil) != w.begun ||
					err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("begun: %v, ready: %v, want %q", w.begun, err, tc.want)
				}
				if err := w.leases.Delete(t.Context(), tc.object); err != nil {
					t.Fatal(err)
				}
				time.Sleep(kueueInterval) //nolint:forbidigo // time is free in the bubble
				synctest.Wait()
				if err := w.a.ready(nil); !w.begun || err != nil {
					t.Errorf("with it gone, begun: %v, ready: %v", w.begun, err)
				}
				if err := w.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// changeover is a muster that checks for Kueue, in a bubble.
type changeover struct {
	t      *testing.T
	leases client.Client
	begun  bool
	a      *afterKueue
	cancel context.CancelFunc
	ended  chan error
}

func newChangeover(t *testing.T) *changeover {
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	return &changeover{
		t: t, ended: make(chan error, 1),
		leases: fake.NewClientBuilder().WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).Build(),
	}
}

func (w *changeover) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.cancel = cancel
	w.a = &afterKueue{kube: w.leases, clock: clock.RealClock{}, begin: func() error {
		w.begun = true
		return nil
	}}
	go func() { w.ended <- w.a.Start(ctx) }()
	synctest.Wait()
}

func (w *changeover) stop() error {
	w.cancel()
	return <-w.ended
}

// put writes a lease, over the one that there is, as one change.
func (w *changeover) put(l *coordinationv1.Lease) {
	w.t.Helper()
	have := &coordinationv1.Lease{}
	err := w.leases.Get(w.t.Context(), client.ObjectKeyFromObject(l), have)
	if err == nil {
		have.Spec = l.Spec
		err = w.leases.Update(w.t.Context(), have)
	} else {
		err = w.leases.Create(w.t.Context(), l)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
