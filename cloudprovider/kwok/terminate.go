package kwok

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

// Terminate implements cloudprovider.Terminator. The nodes are owned by the machines, so the cluster's garbage collector deletes them.
func (p *Provider) Terminate(ctx context.Context, group string, names []string) error {
	stock := p.stockOf(group)
	if err := stock.read(ctx, p.Live, group); err != nil {
		return fmt.Errorf("terminate machines: %w", err)
	}
	if err := stock.remember(ctx, p.Client, group); err != nil {
		return fmt.Errorf("terminate machines: %w", err)
	}
	var calls errgroup.Group
	calls.SetLimit(parallel)
	for _, name := range names {
		calls.Go(func() error {
			m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := client.IgnoreNotFound(p.Client.Delete(ctx, m)); err != nil {
				return fmt.Errorf("delete machine %s of NodeGroup %s: %w", name, group, err)
			}
			stock.forget(name)
			return nil
		})
	}
	return calls.Wait()
}
