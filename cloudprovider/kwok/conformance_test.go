package kwok

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/conformance"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestConformance(t *testing.T) { conformance.Run(t, conformingCloud) }

// conformingCloud is the simulated cloud over an API server that a fake stands for.
func conformingCloud(t *testing.T) *conformance.Cloud {
	group := gpuGroup("h100")
	group.Spec.MaxNodes = conformance.MaxNodes
	w := newWorld(t, group)
	kube := w.client
	edit := func(change func(*v1alpha1.NodeGroup)) {
		g := &v1alpha1.NodeGroup{}
		if err := kube.Get(t.Context(), client.ObjectKey{Name: group.Name}, g); err != nil {
			t.Fatal(err)
		}
		change(g)
		if err := kube.Update(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	return &conformance.Cloud{
		Group: group,
		Connect: func() cloudprovider.Provider {
			w.mu.Lock()
			w.crashAt, w.crashLoses = -1, false
			w.mu.Unlock()
			source := listWatch{&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					list := &kwokv1alpha1.MachineList{}
					return list, kube.List(ctx, list)
				},
				WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) {
					return kube.Watch(ctx, &kwokv1alpha1.MachineList{})
				},
			}}
			informer := toolscache.NewSharedIndexInformer(source, &kwokv1alpha1.Machine{}, 0, toolscache.Indexers{})
			go informer.Run(t.Context().Done())
			return New(Config{Client: kube, Live: kube, Informers: oneInformer{informer: informer}, Clock: w.clock})
		},
		Hold: func(n int) {
			edit(func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Holds = new(int32(n)) })
		},
		Alive: func() (out []string) {
			for _, m := range w.machines() {
				if m.Status.Phase != kwokv1alpha1.MachineTerminated {
					out = append(out, m.Name)
				}
			}
			return out
		},
		End: func(name string) {
			m := &kwokv1alpha1.Machine{}
			if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, m); err != nil {
				t.Fatal(err)
			}
			m.Status.Phase, m.Status.Reason = kwokv1alpha1.MachineTerminated, kwokv1alpha1.ReasonSpotReclaimed
			if err := kube.Status().Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		},
		LoseReply: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.crashAt = 2
		},
		Pass: func(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) },
		Without: map[string]string{
			"Away":               "its zones are labels of one API server",
			"Delay":              "a write of the API server takes effect before it is answered, or never",
			"Forget":             "a Machine is listed until it is deleted",
			"Gathers":            "its domains follow from the script of the group, and no launch asks for one",
			"Harm":               "its calls are reads and writes of the API server, whose faults test/simulation plays",
			"IgnoreTerminations": "a Machine is terminated by the write that asks for it",
			"RefuseTags":         "a Machine is created with the name of its launch",
			"Slow":               "no other process can see a Machine before the write that creates it is answered",
			"Stop":               "its machines run only as nodes of a cluster, and are never stopped",
		},
	}
}

// listWatch lists before it watches: the fake API server cannot stream a list.
type listWatch struct{ *toolscache.ListWatch }

func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }
