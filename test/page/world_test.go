package page

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster-dashboard/page"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
)

// world is a cluster in memory, in the place of the one that is watched.
type world struct {
	mu      sync.Mutex
	objects map[reflect.Type][]runtime.Object
	changed chan struct{}
	since   time.Time
	hidden  string
	// reads counts the lists that were read.
	reads int
}

func newWorld(objects ...client.Object) *world {
	w := &world{objects: map[reflect.Type][]runtime.Object{}, changed: make(chan struct{}, 1)}
	w.add(objects...)
	return w
}

func (w *world) add(objects ...client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objects {
		kind := reflect.TypeOf(o).Elem()
		w.objects[kind] = append(w.objects[kind], o)
	}
	w.note()
}

// of are the objects of a kind.
func of[T client.Object](w *world) (out []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects[reflect.TypeFor[T]().Elem()] {
		out = append(out, o.(T))
	}
	return out
}

func (w *world) note() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// silence is that of a cluster that does not answer from a time on; zero ends it.
func (w *world) silence(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = since
	w.note()
}

// hide has the page lack the right to a kind.
func (w *world) hide(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hidden = kind
	w.note()
}

// Get is called for the history alone.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range of[*corev1.ConfigMap](w) {
		if client.ObjectKeyFromObject(o) == key {
			o.DeepCopyInto(into.(*corev1.ConfigMap))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	items, err := apimeta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	kind := reflect.TypeOf(items).Elem().Elem()
	if w.hidden != "" && strings.EqualFold(kind.Name()+"s", w.hidden) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: w.hidden}, "", nil)
	}
	return apimeta.SetList(list, w.objects[kind])
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) Stale() (time.Time, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, "connection refused"
}

func (w *world) Missing() []view.Right { return nil }

// serve serves the page of a cluster and returns its address. The past is that of a
// Prometheus, if its address is not empty.
func serve(t *testing.T, c page.Cluster, prometheus string) string {
	t.Helper()
	return "http://" + listen(t, c, prometheus, "127.0.0.1:0").address
}

// served is a page that is served.
type served struct {
	address string
	stop    func()
}

// listen serves the page on an address.
func listen(t *testing.T, c page.Cluster, prometheus, address string) served {
	t.Helper()
	settings, err := view.LoadSettings("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := page.New(page.Config{Cluster: c, Settings: settings, Clock: clock.RealClock{}, Prometheus: prometheus})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: patience}
	var working sync.WaitGroup
	working.Go(func() { s.Run(ctx) })
	working.Go(func() { _ = server.Serve(listener) })
	stop := sync.OnceFunc(func() {
		end()
		_ = server.Close()
		working.Wait()
	})
	t.Cleanup(stop)
	return served{address: listener.Addr().String(), stop: stop}
}

const gpu = "nvidia.com/gpu"

func meta(name string, age time.Duration) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1,
		CreationTimestamp: metav1.NewTime(time.Now().Add(-age).Truncate(time.Second))}
}

func in(namespace string, m metav1.ObjectMeta) metav1.ObjectMeta {
	m.Namespace, m.UID = namespace, types.UID(namespace+"/"+m.Name)
	return m
}

func flavor(name string) *kueue.ResourceFlavor {
	out := &kueue.ResourceFlavor{ObjectMeta: meta(name, 24*time.Hour)}
	out.Spec.NodeLabels = map[string]string{"pool": name}
	return out
}

// team is a namespace with a LocalQueue that feeds a ClusterQueue of the same name, whose
// quota is given as FLAVOR=GPUS.
func team(name, cohort string, quotas ...string) []client.Object {
	cq := &kueue.ClusterQueue{ObjectMeta: meta(name, 24*time.Hour)}
	cq.Spec.NamespaceSelector, cq.Spec.CohortName = &metav1.LabelSelector{}, kueue.CohortReference(cohort)
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{gpu}}
	for _, q := range quotas {
		flavor, amount, _ := strings.Cut(q, "=")
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceQuota{
			{Name: gpu, NominalQuota: resource.MustParse(amount)},
		}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	lq := &kueue.LocalQueue{ObjectMeta: in(name, meta("main", 24*time.Hour))}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(name)
	return []client.Object{&corev1.Namespace{ObjectMeta: meta(name, 24*time.Hour)}, cq, lq}
}

// check is the AdmissionCheck of all teams.
func check() *kueue.AdmissionCheck {
	out := &kueue.AdmissionCheck{ObjectMeta: meta("capacity", 24*time.Hour)}
	out.Spec.ControllerName = cache.CapacityController
	return out
}

// group is a NodeGroup of machines of 8 GPUs in a pool.
func group(name, pool, zone string, capacityType v1alpha1.CapacityType, usd string, most int32,
	change func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	out := &v1alpha1.NodeGroup{ObjectMeta: meta(name, 24*time.Hour)}
	out.Spec = v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: most, CapacityType: capacityType, Zone: zone, PricePerHour: new(resource.MustParse(usd)),
		Template: v1alpha1.NodeTemplate{Labels: map[string]string{"pool": pool, "node.kubernetes.io/instance-type": pool + ".8x"},
			Capacity: corev1.ResourceList{
				"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"), gpu: resource.MustParse("8"),
			}},
	}
	if change != nil {
		change(out)
	}
	return out
}

// launched adds a launch to what a group remembers; an empty class is one that came whole.
func launched(g *v1alpha1.NodeGroup, ago time.Duration, asked, got int32, class v1alpha1.ErrorClass) {
	at := metav1.NewTime(time.Now().Add(-ago))
	g.Status.Attempts = append(g.Status.Attempts, v1alpha1.LaunchAttempt{Time: at, Request: "default/train", Requested: asked,
		Got: got, Class: class})
	l := g.Status.Ledger
	if l == nil {
		l = &v1alpha1.Ledger{At: at, Chance: 500, Sizes: []v1alpha1.Evidence{{AtLeast: 4}}}
		g.Status.Ledger = l
	}
	if class == "" {
		l.Sizes[0].Got += 1_000_000
	} else {
		l.Sizes[0].Failed += 1_000_000
	}
}

// pods is a template of pods with so many GPUs each.
func pods(gpus int64) corev1.PodTemplateSpec {
	var out corev1.PodTemplateSpec
	out.Spec.Containers = []corev1.Container{{Name: "main", Image: "train", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
	}}}
	return out
}

// waiting is a Workload of a Job, of so many pods of 8 GPUs.
func waiting(namespace, name string, count int32, age time.Duration) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: in(namespace, meta("job-"+name, age))}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID(name),
		Controller: new(true)}}
	out.Spec.QueueName, out.Spec.Active = "main", new(true)
	out.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count, Template: pods(8)}}
	out.Spec.MaximumExecutionTimeSeconds = new(1200 + 600*count)
	return out
}

// running is one that was admitted so long ago, with its request and the machines that it
// has booked in a group.
func running(namespace, name, flavor, group string, count int32, ago time.Duration) []client.Object {
	w := waiting(namespace, name, count, ago+time.Minute)
	at := metav1.NewTime(time.Now().Add(-ago))
	w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(namespace), PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: &count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: kueue.ResourceFlavorReference(flavor)},
		ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(int64(count)*8, resource.DecimalSI)},
	}}}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStateReady, LastTransitionTime: at}}
	for _, c := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c,
			LastTransitionTime: at})
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: in(namespace, meta(name+"-request", ago))}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload", Name: w.Name, UID: w.UID,
		Controller: new(true)}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Status.Conditions = []metav1.Condition{{Type: provreq.Provisioned, Status: metav1.ConditionTrue, Reason: "Booked",
		LastTransitionTime: at}}
	out := []client.Object{w, r}
	for i := range count {
		n := &corev1.Node{ObjectMeta: meta(fmt.Sprintf("%s-%s-%d", namespace, name, i), ago)}
		n.Labels = map[string]string{"pool": flavor, v1alpha1.NodeGroupLabel: group, state.BookingLabel(r.Name): namespace}
		booking := state.Booking{UID: r.UID, Since: at.Time, Booked: map[corev1.ResourceName]int64{gpu: 8}}
		n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: state.Token(r.UID, 1), state.BookingLabel(r.Name): booking.Encode()}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("96"), gpu: resource.MustParse("8"),
			"pods": resource.MustParse("110")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		out = append(out, n)
		if i == count-1 {
			continue // its pod has not come
		}
		p := &corev1.Pod{ObjectMeta: in(namespace, meta(fmt.Sprintf("%s-%d", name, i), ago)), Spec: pods(8).Spec}
		p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: r.Name}
		p.Spec.NodeName, p.Status.Phase = n.Name, corev1.PodRunning
		out = append(out, p)
	}
	return out
}

// racks is a team of a flavor with a Topology, whose racks have so many nodes of 8 GPUs. A Workload has a pod in
// the first, where another node is cordoned.
func racks(nodes ...int) []client.Object {
	const rack, name = "example.com/rack", "nvl"
	topology := &kueue.Topology{ObjectMeta: meta("racks", 24*time.Hour)}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rack}, {NodeLabel: corev1.LabelHostname}}
	f := flavor(name)
	f.Spec.TopologyName = new(kueue.TopologyReference("racks"))
	out := append(team(name, "", name+"=4096"), topology, f)
	var first string
	for i, n := range nodes {
		for j := range n {
			node := &corev1.Node{ObjectMeta: meta(fmt.Sprintf("rack-%03d-%02d", i+1, j+1), 24*time.Hour)}
			node.Labels = map[string]string{"pool": name, rack: fmt.Sprintf("rack-%03d", i+1), corev1.LabelHostname: node.Name}
			node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("96"), gpu: resource.MustParse("8"),
				"pods": resource.MustParse("110")}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			node.Spec.Unschedulable = i == 0 && j == 1
			if first == "" {
				first = node.Name
			}
			out = append(out, node)
		}
	}
	w := running(name, "steady", name, "", 1, time.Hour)[0].(*kueue.Workload)
	w.Status.Admission.PodSetAssignments[0].TopologyAssignment = placement.Encode([]string{corev1.LabelHostname},
		[]placement.Domain{{Values: []string{first}, Count: 1}})
	return append(out, w)
}
