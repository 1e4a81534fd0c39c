package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/provisioning/model"
)

func TestSettingsAreThoseThatMusterRunsWith(t *testing.T) {
	file := filepath.Join(t.TempDir(), "muster.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte("apiVersion: config.muster.dev/v1alpha1\nkind: Configuration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("provisioning:\n  processorInstance: blue\nqueueing:\n  fairSharing: {}\n  namespaceQuota: true\n")
	s, err := (&options{file: file}).settings()
	if err != nil || s.queues.FairSharing == nil || !s.queues.NamespaceQuota {
		t.Fatalf("%+v: %v", s, err)
	}
	objects := request()
	r := objects[0].(*provreq.ProvisioningRequest)
	r.Spec.Parameters = map[string]provreq.Parameter{model.ParamProcessor: "blue"}
	for _, c := range []struct {
		file, want string
	}{
		{file, "waits for capacity"},
		{"", "is not Muster's"},
	} {
		s, err := (&options{file: c.file}).settings()
		if err != nil {
			t.Fatal(err)
		}
		p := newPicture(clocktesting.NewFakePassiveClock(noon), s, &reading{objects: objects})
		lacks(t, told(t, p.explainRequest(r)), c.want)
	}
	write("provisoning: {}\n")
	if _, err := (&options{file: file}).settings(); err == nil || !strings.Contains(err.Error(), "--config: ") || !strings.Contains(err.Error(), "provisoning") {
		t.Errorf("of a misspelt field: %v", err)
	}
}
