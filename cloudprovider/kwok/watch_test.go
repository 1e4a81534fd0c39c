package kwok

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

func TestWatchReportsTheFirstListAndEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := fcache.NewFakeControllerSource()
		defer source.Shutdown()
		informer := toolscache.NewSharedIndexInformer(source, &kwokv1alpha1.Machine{}, 0, toolscache.Indexers{})
		source.Add(machine("old", kwokv1alpha1.MachineRunning, ""))
		go informer.Run(ctx.Done())

		var told []any
		provider := New(Config{Informers: oneInformer{informer: informer}})
		ended := make(chan error)
		go func() {
			ended <- provider.Watch(ctx, func(m cloudprovider.Machine) { told = append(told, m) }, func() { told = append(told, "synced") })
		}()
		expect := func(want ...any) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			told = nil
		}

		expect(seen("old", cloudprovider.Running, ""), "synced")
		source.Add(machine("new", "", ""))
		expect(seen("new", cloudprovider.Booting, ""))
		source.Modify(machine("new", kwokv1alpha1.MachineTerminated, kwokv1alpha1.ReasonBootFailed))
		expect(seen("new", cloudprovider.Terminated, kwokv1alpha1.ReasonBootFailed))
		source.Delete(machine("old", kwokv1alpha1.MachineRunning, ""))
		expect(seen("old", cloudprovider.Gone, ""))

		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch ended with %v", err)
		}
	})
}

func machine(name string, phase kwokv1alpha1.MachinePhase, reason string) *kwokv1alpha1.Machine {
	return &kwokv1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kwokv1alpha1.MachineSpec{Group: "h100", Launch: "uid/1"},
		Status:     kwokv1alpha1.MachineStatus{Phase: phase, Reason: reason},
	}
}

func seen(name string, state cloudprovider.State, reason string) cloudprovider.Machine {
	return cloudprovider.Machine{Name: name, Group: "h100", Launch: "uid/1", ProviderID: "kwok://h100/" + name, State: state, Reason: reason}
}

// oneInformer is a cache of machines alone.
type oneInformer struct {
	cache.Informers
	informer toolscache.SharedIndexInformer
}

func (o oneInformer) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return o.informer, nil
}
