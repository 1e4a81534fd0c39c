package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/jobs/bindings"
)

// installed returns the registration as installed.
func installed(t *testing.T) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		t.Fatal(err)
	}
	if objects, err = deploy.ByWebhook.By(objects); err != nil {
		t.Fatal(err)
	}
	out := &admissionv1.MutatingWebhookConfiguration{}
	for _, o := range objects {
		if o.GetKind() == "MutatingWebhookConfiguration" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func process(t *testing.T, c client.Client) *registration {
	t.Helper()
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := deploy.DefaultNames.Policies(objects)
	if err != nil {
		t.Fatal(err)
	}
	blue := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	return &registration{Config: Config{Policies: policies, Client: c, Clock: clock.RealClock{},
		Namespaces: bindings.Namespaces(config.Config{ManagedJobsNamespaceSelector: blue})}}
}

// everywhere are the webhooks for machines, their pods and quotas. The others act in managed namespaces alone.
var everywhere = []string{"born-cordoned.webhook.muster.dev", "born-in-place.webhook.muster.dev", "consuming-pods.webhook.muster.dev",
	"queues-finalizer.webhook.muster.dev", "strangers.webhook.muster.dev"}

// trusts returns an error where kube-apiserver would not trust the process when it calls one of
// the webhooks by the host.
func trusts(t *testing.T, c client.Client, r *registration, host string) error {
	t.Helper()
	served, err := r.certificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	current := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: deploy.WebhookConfiguration}, current); err != nil {
		t.Fatal(err)
	}
	for _, w := range current.Webhooks {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(w.ClientConfig.CABundle)
		if _, err := served.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, CurrentTime: time.Now()}); err != nil {
			return err
		}
		off := []string{"jobs-unnamed.webhook.muster.dev", "jobs-record-users.webhook.muster.dev"}
		want := "blue"
		if slices.Contains(everywhere, w.Name) || slices.Contains(off, w.Name) { // as the settings have it
			want = ""
		}
		if got := w.NamespaceSelector.MatchLabels["team"]; got != want {
			t.Errorf("%s selects the namespaces of team %q, want %q", w.Name, got, want)
		}
		selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		if selector.Matches(labels.Set{corev1.LabelMetadataName: metav1.NamespaceSystem, "team": "blue"}) {
			t.Errorf("%s is called in %s", w.Name, metav1.NamespaceSystem)
		}
	}
	return nil
}

// TestEachProcessIsTrusted beside the others, however often one starts again, for years.
func TestEachProcessIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "muster-webhook.muster-system.svc"
		c := params(t, installed(t))
		leader, standby := process(t, c), process(t, c)
		if leader.ready(nil) == nil {
			t.Error("a process is ready before kube-apiserver trusts it")
		}
		ctx, cancel := context.WithCancel(t.Context())
		start := func() {
			for _, r := range []*registration{leader, standby} {
				go func() { _ = r.Start(ctx) }()
			}
		}
		start()
		check := func(when string) {
			t.Helper()
			for range 3 {
				<-time.After(interval + retry)
				synctest.Wait()
			}
			for name, r := range map[string]*registration{"leader": leader, "standby": standby} {
				if err := trusts(t, c, r, host); err != nil {
					t.Errorf("%s: the %s is not trusted: %v", when, name, err)
				}
			}
		}
		check("at the start")
		for range 20 {
			if err := process(t, c).write(ctx); err != nil {
				t.Fatal(err)
			}
		}
		check("after a third started 20 times")
		current := &admissionv1.MutatingWebhookConfiguration{}
		if err := c.Get(ctx, client.ObjectKey{Name: deploy.WebhookConfiguration}, current); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(current.Webhooks[0].ClientConfig.CABundle, []byte("BEGIN")); n > bundled {
			t.Errorf("%d certificates are trusted", n)
		}
		version := current.ResourceVersion
		<-time.After(time.Hour)
		if err := c.Get(ctx, client.ObjectKey{Name: deploy.WebhookConfiguration}, current); err != nil || current.ResourceVersion != version {
			t.Errorf("it is written without need: %v", err)
		}
		// Two years, without the check of every minute.
		cancel()
		<-time.After(2 * validity)
		ctx, cancel = context.WithCancel(t.Context())
		start()
		check("after two years")
		// Applied again by a tool that takes the certificates out.
		bare := installed(t)
		if err := c.Get(ctx, client.ObjectKey{Name: deploy.WebhookConfiguration}, current); err != nil {
			t.Fatal(err)
		}
		bare.ResourceVersion = current.ResourceVersion
		if err := c.Update(ctx, bare); err != nil {
			t.Fatal(err)
		}
		check("after it was installed again")
		cancel()
		synctest.Wait()
	})
}

// TestTheCertificateIsForTheHostOfTheRegistration, which is an address where muster runs outside
// of the cluster.
func TestTheCertificateIsForTheHostOfTheRegistration(t *testing.T) {
	configuration := installed(t)
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig = admissionv1.WebhookClientConfig{URL: new("https://192.0.2.1:9443/mutate")}
	}
	c := params(t, configuration)
	r := process(t, c)
	if err := r.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := trusts(t, c, r, "192.0.2.1"); err != nil {
		t.Error(err)
	}
	if err := trusts(t, c, r, "192.0.2.2"); err == nil {
		t.Error("it is for another host, too")
	}
}

func TestWithoutARegistrationTheProcessEnds(t *testing.T) {
	err := process(t, params(t)).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "`muster manifests --webhook`") {
		t.Errorf("error %v", err)
	}
}

// TestWhatIsNoCertificateIsLeftOut of the bundle.
func TestWhatIsNoCertificateIsLeftOut(t *testing.T) {
	now := time.Now()
	own, err := certify([]string{"a"}, now)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := certify([]string{"a"}, now.Add(-2*validity))
	if err != nil {
		t.Fatal(err)
	}
	old := pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: ended.Leaf.Raw})
	for _, trusted := range [][]byte{nil, []byte("\n"), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), old} {
		if want, got := pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: own.Leaf.Raw}),
			bundle(trusted, own.Leaf, now); !bytes.Equal(want, got) {
			t.Errorf("with %q the bundle is %q", trusted, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for address, good := range map[string]bool{":9443": true, "127.0.0.1:1": true, "[::1]:9443": true, "": false, "9443": false, ":0": false,
		":http": false, ":70000": false} {
		if err := Validate(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
