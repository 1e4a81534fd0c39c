package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestOtherProvisionersAreReported by their leases, with what should be separated.
func TestOtherProvisionersAreReported(t *testing.T) {
	own := []string{transaction.ClassCheckCapacity, transaction.ClassAtomicScaleUp}
	for name, tc := range map[string]struct {
		lease   string
		renewed time.Duration
		classes []string
		want    []string
	}{
		"cluster-autoscaler, and the standard classes are served": {
			lease: "cluster-autoscaler", classes: transaction.KnownClasses,
			want: []string{"kube-system/cluster-autoscaler of pod-1", "--enable-provisioning-requests", "give each node group"},
		},
		"cluster-autoscaler, and Muster's own are": {
			lease: "cluster-autoscaler", classes: own, want: []string{"give each node group to one of the two]"},
		},
		"Karpenter":          {lease: "karpenter-leader-election", classes: own, want: []string{"Karpenter launches nodes for pods"}},
		"one that died":      {lease: "cluster-autoscaler", renewed: -time.Hour, classes: own},
		"another controller": {lease: "another", classes: own},
	} {
		t.Run(name, func(t *testing.T) {
			byName := func(o client.Object) []string { return []string{o.GetName()} }
			kube := fake.NewClientBuilder().WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
				WithObjects(lease("kube-system", tc.lease, "pod-1", time.Now().Add(tc.renewed))).Build()
			var told string
			n := &neighbours{leases: kube, clock: clock.RealClock{}, classes: tc.classes, log: func(message string, values ...any) {
				told += message + fmt.Sprintln(values)
			}}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(told, want) {
					t.Errorf("it tells %q, without %q", told, want)
				}
			}
			if (told == "") != (tc.want == nil) {
				t.Errorf("it tells %q", told)
			}
		})
	}
}
