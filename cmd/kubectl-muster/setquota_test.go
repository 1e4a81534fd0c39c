package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// TestSetQuota until a time, again, for good, and for what the queue does not have; each command without and with --yes.
func TestSetQuota(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cq := team("team", nil, "h100=64")
	cq.Namespace = ""
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cq).Build()
	o := &options{clock: clocktesting.NewFakeClock(noon)}
	gpus := quota.FlavorResource{Flavor: "h100", Resource: gpu}
	read := func() *kueue.ClusterQueue {
		t.Helper()
		cq := &kueue.ClusterQueue{}
		if err := kube.Get(t.Context(), client.ObjectKey{Name: "team"}, cq); err != nil {
			t.Fatal(err)
		}
		return cq
	}
	// set is the command, and returns what it printed or its error.
	set := func(argument, until string, yes bool) string {
		t.Helper()
		change, err := quotaFrom("", argument)
		if err != nil {
			return err.Error()
		}
		end, err := o.endOf(until)
		if err != nil {
			return err.Error()
		}
		a, err := o.setQuota(t.Context(), kube, change, end)
		if err != nil {
			return err.Error()
		}
		var out bytes.Buffer
		if err := carryOut(t.Context(), &out, kube, a, yes); err != nil {
			return err.Error()
		}
		return out.String()
	}
	for _, tt := range []struct {
		argument, until, says, quota, left string
	}{
		{"team/h100/nvidia.com/gpu=128", "8h", "nominalQuota 128 of nvidia.com/gpu in flavor h100, and not 64, temporary until 2026-11-20T20:00:00Z " +
			"(in 8h), then 64 again", "128", "h100 nvidia.com/gpu 64 128 2026-11-20T20:00:00Z"},
		{"team/h100/nvidia.com/gpu=96", "2026-11-21T00:00:00Z", "nominalQuota 96 of nvidia.com/gpu in flavor h100, and not 128, temporary until " +
			"2026-11-21T00:00:00Z (in 12h), then 64 again", "96", "h100 nvidia.com/gpu 64 96 2026-11-21T00:00:00Z"},
		{"team/h100/nvidia.com/gpu=96", "", "and not 96, for good", "96", ""},
		{"team/h100/nvidia.com/gpu=96", "1h", "ClusterQueue team has nominalQuota 96 of nvidia.com/gpu in flavor h100 already", "96", ""},
		{"team/h100/nvidia.com/gpu=80", "-1h", `--until="-1h" is over: use a later time, or a duration above 0`, "96", ""},
		{"team/h100/nvidia.com/gpu=80", "2026-11-20T11:00:00Z", `--until="2026-11-20T11:00:00Z" is over`, "96", ""},
		{"team/h100/nvidia.com/gpu=80", "tonight", `--until="tonight" is neither a time`, "96", ""},
		{"team/h200/nvidia.com/gpu=80", "", "ClusterQueue team has no nominalQuota of nvidia.com/gpu in flavor h200: use one of h100/nvidia.com/gpu",
			"96", ""},
		{"team/h100/gpu=80", "", "ClusterQueue team has no nominalQuota of gpu in flavor h100: use one of h100/nvidia.com/gpu", "96", ""},
		{"teem/h100/nvidia.com/gpu=80", "", `ClusterQueue "teem" does not exist`, "96", ""},
		{"team/h100/nvidia.com/gpu=many", "", `"team/h100/nvidia.com/gpu=many": "many" is not a quantity; write it as CLUSTERQUEUE/FLAVOR/`, "96", ""},
		{"team/h100/nvidia.com/gpu=-1", "", `a quota must not be negative`, "96", ""},
	} {
		before := read()
		if got := set(tt.argument, tt.until, false); !strings.Contains(got, tt.says) {
			t.Errorf("%s until %q: %s\nwant %s", tt.argument, tt.until, got, tt.says)
		}
		if read().ResourceVersion != before.ResourceVersion {
			t.Errorf("%s until %q changes the queue without --yes", tt.argument, tt.until)
		}
		if got := set(tt.argument, tt.until, true); !strings.Contains(got, tt.says) {
			t.Errorf("%s until %q: %s\nwant %s", tt.argument, tt.until, got, tt.says)
		}
		cq := read()
		if now, err := quota.Nominal(cq, gpus); err != nil || now.Cmp(resource.MustParse(tt.quota)) != 0 ||
			cq.Annotations[quota.TemporaryAnnotation] != tt.left {
			t.Errorf("%s until %q leaves %s and %v (%v)", tt.argument, tt.until, now, cq.Annotations, err)
		}
	}
}

// TestTemporaryQuotasAreShown by explain and queue, until when and what follows.
func TestTemporaryQuotasAreShown(t *testing.T) {
	cq := team("team", nil, "h100=128")
	cq.Annotations = map[string]string{quota.TemporaryAnnotation: "h100 nvidia.com/gpu 64 128 " + noon.Add(8*time.Hour).Format(time.RFC3339)}
	p := pictureOf(nil, flavor("h100"), cq, team("other", nil, "h100=8"))
	const until = "temporary until 2026-11-20T20:00:00Z (in 8h), then 64 again"
	lacks(t, printed(t, explanation{p.ExplainClusterQueue("team")}), "flavor h100: 0 of 128 nvidia.com/gpu, "+until)
	lacks(t, printed(t, queueAnswer{temporary: p.TemporaryQuotas()}), "ClusterQueue team has 128 nvidia.com/gpu of flavor h100, "+until+".")
	if of := p.TemporaryQuotas("other"); len(of) > 0 {
		t.Errorf("another queue has %v", of)
	}
}
