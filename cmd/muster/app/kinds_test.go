package app

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/muster-dev/muster/deploy"
)

func TestAHalfNeedsItsOwnKindsAlone(t *testing.T) {
	for _, tc := range []struct {
		name  string
		there []deploy.Half
		runs  []deploy.Half
		want  string
	}{
		{"both, in a cluster of both", deploy.Halves, deploy.Halves, ""},
		{"the admitter, in a cluster of Kueue's kinds", []deploy.Half{deploy.Queueing}, []deploy.Half{deploy.Queueing}, ""},
		{"the provisioner, in a cluster without them", []deploy.Half{deploy.Provisioning}, []deploy.Half{deploy.Provisioning}, ""},
		{"both, without Kueue's kinds", []deploy.Half{deploy.Provisioning}, deploy.Halves,
			"no kind ClusterQueue of kueue.x-k8s.io/v1beta2, which --queueing needs; install what `muster manifests` prints, or start muster " +
				"with --queueing=false"},
		{"both, without NodeGroups", []deploy.Half{deploy.Queueing}, deploy.Halves, "no kind ProvisioningRequest of autoscaling.x-k8s.io/v1, which --provisioning needs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, half := range tc.there {
				for _, kind := range kinds[half] {
					mapper.Add(kind, meta.RESTScopeRoot)
				}
			}
			switch err := checkKinds(mapper, tc.runs); {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v; want an error that says %q", err, tc.want)
			}
		})
	}
}
