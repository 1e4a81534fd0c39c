package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/loop"
)

// TestWhichKindsAreWatched: the kinds that every installation has, and those of the others whose CRD is installed.
func TestWhichKindsAreWatched(t *testing.T) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme, autoscaling.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	const always = "Namespace LimitRange RuntimeClass ClusterQueue LocalQueue ResourceFlavor Workload WorkloadPriorityClass"
	kueues := []schema.GroupVersionKind{
		kueue.SchemeGroupVersion.WithKind("Cohort"), kueue.SchemeGroupVersion.WithKind("Topology"), kueue.SchemeGroupVersion.WithKind("AdmissionCheck"),
		kueue.SchemeGroupVersion.WithKind("ProvisioningRequestConfig"),
	}
	ofDevices := []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind("NodeGroup")}
	for _, kind := range []string{"DeviceClass", "ResourceClaimTemplate", "ResourceSlice"} {
		ofDevices = append(ofDevices, resourcev1.SchemeGroupVersion.WithKind(kind))
	}
	mapping := func(sources []kueueconfig.DeviceClassSourceConfig) config.Config {
		return config.Config{Resources: &kueueconfig.Resources{DeviceClassMappings: []kueueconfig.DeviceClassMapping{{Sources: sources}}}}
	}
	for name, tt := range map[string]struct {
		installed []schema.GroupVersionKind
		settings  config.Config
		want      string
	}{
		"no CRD that one can do without": {want: always},
		"the queues alone":               {installed: kueues, want: always + " Cohort Topology AdmissionCheck ProvisioningRequestConfig"},
		"all": {
			installed: append(slices.Clone(kueues), v1alpha1.GroupVersion.WithKind("CapacityPolicy"),
				autoscaling.SchemeGroupVersion.WithKind("ProvisioningRequest")),
			want: always + " Cohort Topology AdmissionCheck ProvisioningRequestConfig CapacityPolicy ProvisioningRequest",
		},
		"devices by number": {
			installed: ofDevices, settings: mapping(nil), want: always + " DeviceClass ResourceClaimTemplate",
		},
		"devices by what they take of a machine": {
			installed: ofDevices, settings: mapping([]kueueconfig.DeviceClassSourceConfig{{}}),
			want: always + " DeviceClass ResourceClaimTemplate ResourceSlice NodeGroup",
		},
		"with the quotas of namespaces": {settings: config.Config{NamespaceQuota: true}, want: always + " ResourceQuota"},
		"another version of a kind is not that kind": {
			installed: []schema.GroupVersionKind{{Group: kueue.SchemeGroupVersion.Group, Version: "v1beta1", Kind: "Cohort"}}, want: always,
		},
	} {
		t.Run(name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
			for _, gvk := range tt.installed {
				mapper.Add(gvk, meta.RESTScopeRoot)
			}
			kinds, err := kindsOf(known, mapper, tt.settings)
			if err != nil {
				t.Fatal(err)
			}
			claims := len(kindsOnNodes(kinds)) == 3
			if claims != strings.Contains(tt.want, "DeviceClass") {
				t.Errorf("slices of nodes are watched: %t", claims)
			}
			var got []string
			for _, k := range kinds {
				parts := strings.Split(fmt.Sprintf("%T", k), ".")
				got = append(got, parts[len(parts)-1])
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("watched are %s, want %s", text, tt.want)
			}
		})
	}
}

// TestKindsThatComeLater are watched once the cluster serves them, and the ResourceSlices of nodes with the DeviceClasses, by the watch of
// nodes that there is and by later ones.
func TestKindsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme, autoscaling.AddToScheme, v1alpha1.AddToScheme} {
			if err := add(known); err != nil {
				t.Fatal(err)
			}
		}
		informers := &informertest.FakeInformers{Scheme: known}
		answers := [][]client.Object{
			needed, slices.Concat(needed, []client.Object{&autoscaling.ProvisioningRequest{}}), slices.Concat(needed, optional),
		}
		onNodes := &nodes{ctx: t.Context(), informers: &informertest.FakeInformers{Scheme: known}, kinds: kindsOnNodes(needed)}
		var seen []string
		handler := toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) { seen = append(seen, o.(client.Object).GetName()) }}
		read, stop, err := onNodes.Watch(handler)
		if err != nil || !read() {
			t.Fatalf("nodes are read: %v", err)
		}
		r := &runner{loop: loop.New(nil, nil, loop.Config{}), informers: informers, nodes: onNodes, kinds: needed}
		r.served = func() (kinds []client.Object, err error) {
			if len(answers) == 2 && len(informers.InformersByGVK) > 0 {
				t.Errorf("watched are %v, and none has come", informers.InformersByGVK)
			}
			kinds, answers = answers[0], answers[1:]
			return kinds, nil
		}
		r.watchNew(t.Context())
		if len(answers) > 0 || len(informers.InformersByGVK) != len(optional) {
			t.Errorf("watched are %v", informers.InformersByGVK)
		}
		of, err := onNodes.informers.(*informertest.FakeInformers).FakeInformerFor(t.Context(), &resourcev1.ResourceSlice{})
		if err != nil {
			t.Fatal(err)
		}
		publish := func(name string) { of.Add(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}) }
		publish("first")
		stop()
		seen = append(seen, "stopped")
		if _, _, err := onNodes.Watch(handler); err != nil {
			t.Fatal(err)
		}
		publish("second")
		// The fake informer removes no handler: both have the second.
		if want := []string{"first", "stopped", "second", "second"}; !slices.Equal(seen, want) {
			t.Errorf("slices of nodes are %v, want %v", seen, want)
		}
	})
}

// TestAnUnservedKindOfNodesIsTriedAgain, and is not delivered twice.
func TestAnUnservedKindOfNodesIsTriedAgain(t *testing.T) {
	informers := &informertest.FakeInformers{Scheme: scheme.Scheme}
	n := &nodes{ctx: t.Context(), informers: informers, kinds: kindsOnNodes(nil)}
	adds := 0
	if _, _, err := n.Watch(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { adds++ }}); err != nil {
		t.Fatal(err)
	}
	informers.Error = errors.New("not served yet")
	if err := n.add(&resourcev1.ResourceSlice{}); err == nil {
		t.Fatal("an informer that fails is no error")
	}
	informers.Error = nil
	for range 2 {
		if err := n.add(&resourcev1.ResourceSlice{}); err != nil {
			t.Fatal(err)
		}
	}
	of, err := informers.FakeInformerFor(t.Context(), &resourcev1.ResourceSlice{})
	if err != nil {
		t.Fatal(err)
	}
	if of.Add(&resourcev1.ResourceSlice{}); adds != 1 {
		t.Errorf("a slice is delivered %d times, want once", adds)
	}
}
