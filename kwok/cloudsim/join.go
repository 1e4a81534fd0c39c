package cloudsim

import (
	"cmp"
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Join has the instances of the world join a cluster, until ctx is done: from its
// launch to its end there is a Machine for each, whose node KWOK's stages register once
// it has booted, and keep. Where the API server cannot be reached it is tried again
// after a pause.
func (w *World) Join(ctx context.Context, kube client.Client, clock clock.WithTicker, failed func(error)) {
	j := &joining{world: w, kube: kube, clock: clock, joined: map[string]bool{}, marked: map[string]int{}}
	for {
		changed, next := w.Changed()
		if err := j.join(ctx); err != nil && ctx.Err() == nil {
			failed(err)
			next = clock.Now().Add(joinAgain)
		}
		timer := clock.NewTimer(max(next.Sub(clock.Now()), 0))
		due := timer.C()
		if next.IsZero() {
			due = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
		case <-due:
		}
		timer.Stop()
	}
}

// joinAgain is how soon what the API server did not take is tried again.
const joinAgain = time.Second

// joining is what was written to a cluster.
type joining struct {
	world *World
	kube  client.Client
	clock clock.PassiveClock
	// joined are the instances that there is a Machine for, and marked how many of its notices
	// each node bears.
	joined map[string]bool
	marked map[string]int
}

func (j *joining) join(ctx context.Context) error {
	var errs []error
	for _, in := range j.world.Instances(true) {
		if in.Node == nil {
			continue
		}
		m := machineOf(in)
		there := in.Phase != Terminated && in.Phase != Stopped
		switch {
		case there && !j.joined[in.ID]:
			if err := j.kube.Create(ctx, m); err != nil && !apierrors.IsAlreadyExists(err) {
				errs = append(errs, fmt.Errorf("have instance %s join: %w", in.ID, err))
				continue
			}
			j.joined[in.ID] = true
		case there:
			if err := j.mark(ctx, m.Name, &in); err != nil {
				errs = append(errs, fmt.Errorf("have the node of instance %s tell of its end: %w", in.ID, err))
			}
		case j.joined[in.ID]:
			if err := j.leave(ctx, m, in.nodeStays && in.Phase == Terminated); err != nil {
				errs = append(errs, fmt.Errorf("have instance %s leave: %w", in.ID, err))
				continue
			}
			delete(j.joined, in.ID)
			delete(j.marked, in.ID)
		}
	}
	return errors.Join(errs...)
}

// leave takes the machine away, and its node with it, unless the node stays.
func (j *joining) leave(ctx context.Context, m *kwokv1alpha1.Machine, nodeStays bool) error {
	if nodeStays {
		if err := client.IgnoreNotFound(j.abandon(ctx, m.Name)); err != nil {
			return err
		}
	}
	return client.IgnoreNotFound(j.kube.Delete(ctx, m))
}

// abandon leaves a node behind without a kubelet: KWOK keeps it no longer, it is no longer
// the machine's, and it is taken to be unreachable, as node controllers do after a while.
func (j *joining) abandon(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n := &corev1.Node{}
		if err := j.kube.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		delete(n.Annotations, "kwok.x-k8s.io/node")
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, kwokv1alpha1.MachineGoneAnnotation, "true")
		n.OwnerReferences = nil
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
		if err := j.kube.Update(ctx, n); err != nil {
			return err
		}
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
				c.LastTransitionTime = metav1.NewTime(j.clock.Now())
			}
		}
		return j.kube.Status().Update(ctx, n)
	})
}

// Tags by which Muster attributes what it launches: those of AWS, and the labels of
// Google Cloud, which take no dots.
var (
	launchTags = []string{"muster.dev/launch", "muster-dev-launch"}
	groupTags  = []string{"muster.dev/node-group", "muster-dev-node-group"}
)

// launch is the token of the launch that made the instance. On Google Cloud some instances have it in their name only:
// muster-<token>-<group>-<place>, where the UUID of the token is 26 letters and digits.
func (i *Instance) launch() string {
	if token := i.tag(launchTags); token != "" {
		return token
	}
	parts := strings.Split(i.ID, "-")
	if i.Pool.Cloud != v1alpha1.ProviderGCP || parts[0] != "muster" || len(parts) < 4 {
		return ""
	}
	if raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(parts[1])); err == nil && len(raw) == 16 {
		parts[1] = fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
	}
	return strings.Join(parts[1:len(parts)-2], "-")
}

// tag is the value of the first of the keys that there is.
func (i *Instance) tag(keys []string) string {
	for _, key := range keys {
		if value := i.Tags[key]; value != "" {
			return value
		}
	}
	return ""
}

func machineOf(in Instance) *kwokv1alpha1.Machine {
	m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(in.ID)}}
	m.Spec.Group = cmp.Or(in.tag(groupTags), in.Group)
	m.Spec.Launch = in.launch()
	m.Spec.LaunchedAt = metav1.NewMicroTime(in.LaunchedAt)
	m.Spec.BootDelay = metav1.Duration{Duration: in.fate.BootDelay}
	m.Spec.Node = *in.Node.DeepCopy()
	m.Spec.Node.DeviceDelay, m.Spec.Node.DevicesVanish = metav1.Duration{Duration: in.fate.DeviceDelay}, in.fate.Vanishes
	labels := map[string]string{corev1.LabelHostname: m.Name}
	if len(m.Spec.Node.Devices) > 0 {
		labels[kwokv1alpha1.DevicesLabel] = "true"
	}
	maps.Copy(labels, m.Spec.Node.Labels)
	m.Spec.Node.Labels = labels
	in.fate.Label(m)
	return m
}
