package feed

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestDevicesThatAreServedLater are followed without a restart. ResourceSlices are read when the claims that have their devices are known.
func TestDevicesThatAreServedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := model.New(clock.RealClock{}, transaction.KnownClasses)
		kindOf := resourcev1.SchemeGroupVersion.WithKind
		unread := controllertest.NewFakeInformer()
		informers := &informertest.FakeInformers{Scheme: scheme.Scheme}
		informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{kindOf("ResourceClaim"): unread}
		mapper := meta.NewDefaultRESTMapper(nil)
		failing := true
		served := func() ([]client.Object, error) {
			if failing {
				return nil, errors.New("the API server is being upgraded")
			}
			return Claims(mapper)
		}
		f := &Feed{model: m}
		m.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}})
		over := make(chan error)
		go func() { over <- f.Later(informers, nil, served).Start(t.Context()) }()
		watches := func(kind string, want bool) {
			t.Helper()
			<-time.After(2 * servedAgain)
			if _, is := informers.InformersByGVK[kindOf(kind)]; is != want {
				t.Errorf("%s is watched: %t, want %t", kind, is, want)
			}
		}
		watches("DeviceClass", false)
		failing = false
		watches("DeviceClass", false)
		for _, kind := range []string{"DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate"} {
			mapper.Add(kindOf(kind), meta.RESTScopeRoot)
		}
		watches("DeviceClass", true)
		watches("ResourceSlice", false)
		unread.Synced()
		watches("ResourceSlice", true)
		watches("DeviceTaintRule", false)
		deliver := func(o client.Object, kind string) {
			o.SetResourceVersion("2")
			informers.InformersByGVK[kindOf(kind)].(*controllertest.FakeInformer).Add(o)
		}
		deliver(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, "DeviceClass")
		deliver(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "a"}, {Name: "b"}}}}, "ResourceSlice")
		free := m.Snapshot(time.Now()).Nodes.Find("n").Free["deviceclass.resource.kubernetes.io/gpu"]
		if free != 2 {
			t.Errorf("%d devices are free, want each of the two once", free)
		}
		// DeviceTaintRules come with a later version than the rest.
		mapper.Add(kindOf("DeviceTaintRule"), meta.RESTScopeRoot)
		watches("DeviceTaintRule", true)
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}
