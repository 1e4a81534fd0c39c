package oracle

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	core "k8s.io/kubernetes/pkg/apis/core"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// kubeScheduler is the default profile of a scheduler, built as kube-scheduler builds its own, with a world instead of a cluster.
type kubeScheduler struct {
	ctx      context.Context
	profile  framework.Framework
	snapshot *internalcache.Snapshot
}

func newScheduler(tb testing.TB, objects ...runtime.Object) *kubeScheduler {
	tb.Helper()
	ctx, stop := context.WithCancel(klog.NewContext(tb.Context(), klog.Logger{}))
	tb.Cleanup(stop)
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	noEvents := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, client, factory, nil, profile.RecorderFactory(noEvents), scheduler.WithParallelism(1))
	if err != nil {
		tb.Fatalf("making the scheduler: %v", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	p := s.Profiles[corev1.DefaultSchedulerName]
	return &kubeScheduler{ctx: ctx, profile: p, snapshot: p.SnapshotSharedLister().(*internalcache.Snapshot)}
}

// set sets the scheduler's nodes and the pods on them.
func (s *kubeScheduler) set(nodes []*corev1.Node, pods []*corev1.Pod) {
	*s.snapshot = *internalcache.NewSnapshot(pods, nodes)
}

// attempt is a scheduling cycle of one pod, up to the filters.
type attempt struct {
	*kubeScheduler
	pod    *corev1.Pod
	state  fwk.CycleState
	only   *fwk.PreFilterResult
	before *fwk.Status
}

func (s *kubeScheduler) try(pod *corev1.Pod) *attempt {
	a := &attempt{kubeScheduler: s, pod: pod, state: framework.NewCycleState()}
	a.only, a.before, _ = s.profile.RunPreFilterPlugins(s.ctx, a.state, pod)
	return a
}

// verdict on a node: yes, or which plugin said no.
func (a *attempt) verdict(node string) (yes bool, plugin string) {
	status := a.before
	switch {
	case !status.IsSuccess():
	case !a.only.AllNodes() && !a.only.NodeNames.Has(node):
		return false, "PreFilterResult"
	default:
		info, err := a.snapshot.NodeInfos().Get(node)
		if err != nil {
			return false, err.Error()
		}
		status = a.profile.RunFilterPlugins(a.ctx, a.state, a.pod, info)
	}
	if status.IsSuccess() {
		return true, ""
	}
	return false, status.Plugin()
}

// reserve does what comes after the choice of a node: it gives the pod's claims to
// it. The undo gives them back.
func (a *attempt) reserve(node string) (undo func(), err error) {
	if s := a.profile.RunReservePluginsReserve(a.ctx, a.state, a.pod, node); !s.IsSuccess() {
		return nil, fmt.Errorf("reserving %s: %w", node, s.AsError())
	}
	return func() { a.profile.RunReservePluginsUnreserve(a.ctx, a.state, a.pod, node) }, nil
}

// create makes a pod of a template in the namespace team, as the API server would: with its defaults, and
// what it adds to new pods. It fails where the API server would refuse.
func create(name string, t *corev1.PodTemplateSpec) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.UID = team, name, uid(name)
	corev1defaults.SetObjectDefaults_Pod(pod)
	internal := &core.Pod{}
	if err := corev1defaults.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(context.Background(), internal)
	if errs := podregistry.Strategy.Validate(context.Background(), internal); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	out := &corev1.Pod{}
	if err := corev1defaults.Convert_core_Pod_To_v1_Pod(internal, out, nil); err != nil {
		return nil, err
	}
	out.Spec.Tolerations = tolerateCordon(out.Spec.Tolerations)
	return out, nil
}

// tolerateCordon adds what Muster's policy gives to pods that use a booking.
func tolerateCordon(tolerations []corev1.Toleration) []corev1.Toleration {
	for _, t := range tolerations {
		if t.Key == corev1.TaintNodeUnschedulable {
			return tolerations
		}
	}
	return append(tolerations, corev1.Toleration{
		Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
}
