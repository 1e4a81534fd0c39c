package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/migration"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// The Leases of other provisioners, in whichever namespace they run.
const (
	autoscalerLease = "cluster-autoscaler"
	karpenterLease  = "karpenter-leader-election"
)

// neighbours reports at the start which other provisioners lead in the cluster, and what each of them should leave to the other.
type neighbours struct {
	leases client.Reader
	clock  clock.PassiveClock
	// classes are the classes that Muster serves.
	classes []string
	log     func(message string, keysAndValues ...any)
}

// Start implements manager.Runnable.
func (n *neighbours) Start(ctx context.Context) error {
	for lease, advice := range map[string]string{autoscalerLease: n.besideAutoscaler(), karpenterLease: besideKarpenter} {
		switch leader, err := migration.Leader(ctx, n.leases, n.clock.Now(), lease); {
		case err != nil:
			n.log("Cannot tell whether another provisioner leads", "lease", lease, "error", err.Error())
		case leader != "":
			n.log("Another provisioner leads beside Muster", "lease", leader, "advice", advice)
		}
	}
	return nil
}

// besideAutoscaler is the advice beside a cluster-autoscaler, whose lease does not show whether it serves ProvisioningRequests.
func (n *neighbours) besideAutoscaler() string {
	const groups = "give each node group to one of the two"
	shared := slices.DeleteFunc(slices.Clone(n.classes), func(class string) bool {
		return class != transaction.ClassCheckCapacityStock && class != transaction.ClassAtomicScaleUpStock
	})
	if len(shared) == 0 {
		return groups
	}
	return fmt.Sprintf("Muster serves %s; if cluster-autoscaler runs with --enable-provisioning-requests, it does, too: then start Muster "+
		"with --provisioning-classes=%s,%s; and %s", strings.Join(shared, " and "), transaction.ClassCheckCapacity,
		transaction.ClassAtomicScaleUp, groups)
}

const besideKarpenter = "Karpenter launches nodes for pods that are pending, also of jobs in no queue; keep its NodePools apart from " +
	"Muster's node groups by a taint, and let only one of the two have a flavor's labels"
