package view

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/provisioning/transaction"
)

func TestSettingsAreThoseThatMusterRunsWith(t *testing.T) {
	file := filepath.Join(t.TempDir(), "muster.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte("apiVersion: config.muster.dev/v1alpha1\nkind: Configuration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("provisioning:\n  processorInstance: blue\nqueueing:\n  fairSharing: {}\n  namespaceQuota: true\n")
	s, err := LoadSettings(file)
	if err != nil || s.queues.FairSharing == nil || !s.queues.NamespaceQuota {
		t.Fatalf("%+v: %v", s, err)
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train", UID: "train"}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamProcessor: "blue"}
	for _, c := range []struct {
		file, want string
	}{
		{file, "cannot be served as specified"},
		{"", "is not served by this Muster"},
	} {
		s, err := LoadSettings(c.file)
		if err != nil {
			t.Fatal(err)
		}
		p := New(clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), s, &Reading{Objects: []client.Object{r}})
		if got := p.ExplainRequest(r).Summary; !strings.Contains(got, c.want) {
			t.Errorf("with the settings of %q it %s; want that it %s", c.file, got, c.want)
		}
	}
	write("provisoning: {}\n")
	if _, err := LoadSettings(file); err == nil || !strings.Contains(err.Error(), "--config: ") ||
		!strings.Contains(err.Error(), "provisoning") {
		t.Errorf("of a misspelt field: %v", err)
	}
}
