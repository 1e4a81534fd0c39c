package simulation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/state"
)

// gang plays the Job behind a request: it makes the pods once the request is
// Provisioned, makes those again that failed, and takes them away at its end.
type gang struct {
	namespace, request string
	podSets            []podSet
	// topology are the annotations of its templates that request racks. slice is how many pods must be in one rack together; zero for
	// none.
	topology map[string]string
	slice    int
	// held says that a queue owns the request, and makes sure that pods come soon.
	held bool
	// delay is from Provisioned to the first pod; absent pods never come.
	delay  time.Duration
	absent int
	// runFor is for how long pods run; fails is how many of the first fail.
	runFor time.Duration
	fails  int
	// giveUpAfter is the time after which the Job gives up and deletes its pods.
	giveUpAfter time.Duration
	// retryAfter is how long after it has failed or was lost a pod is made again.
	retryAfter time.Duration

	started, over bool
	began         time.Time
	// made are the names of the pods that it has made.
	made map[string]bool
}

type podSet struct {
	spec  corev1.PodSpec
	count int
}

func (g *gang) String() string { return g.namespace + "/" + g.request }

func (g *gang) pods() (n int) {
	for _, ps := range g.podSets {
		n += ps.count
	}
	return n
}

// podName is that of the i-th pod; those made again have other names.
func (g *gang) podName(i, try int) string {
	return fmt.Sprintf("%s-%d-%d", clipped(g.request), i, try)
}

const tries = 3

func (g *gang) offer(w *world, offer func(option)) {
	if g.over {
		return
	}
	if !g.started {
		r := find[*provreq.ProvisioningRequest](w.store, g.namespace, g.request)
		if r == nil {
			return
		}
		c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned)
		if c == nil || c.Status != metav1.ConditionTrue {
			return
		}
		offer(option{key: "job " + g.String() + " starts", at: c.LastTransitionTime.Add(g.delay), within: kubeletTime, do: func() {
			g.started, g.began, g.made = true, time.Now(), map[string]bool{}
		}})
		return
	}
	offer(option{key: "job " + g.String() + " ends", at: g.began.Add(g.giveUpAfter), within: kubeletTime, do: func() {
		g.over = true
		for _, p := range all[*corev1.Pod](w.store) {
			if p.Namespace == g.namespace && p.Annotations[provreq.ProvisioningRequestPodAnnotationKey] == g.request {
				change(w.store, p, markDeleted)
			}
		}
	}})
	i := 0
	for _, ps := range g.podSets {
		for range ps.count {
			if i < g.pods()-g.absent {
				g.offerPod(w, ps.spec, i, offer)
			}
			i++
		}
	}
}

// offerPod makes the i-th pod, and makes it again when it has failed or was lost.
func (g *gang) offerPod(w *world, spec corev1.PodSpec, i int, offer func(option)) {
	var again time.Time
	for try := range tries {
		name := g.podName(i, try)
		p := find[*corev1.Pod](w.store, g.namespace, name)
		if p != nil && p.Status.Phase != corev1.PodFailed {
			return
		}
		if p != nil {
			again = p.Status.StartTime.Add(g.runFor + g.retryAfter)
		}
		if g.made[name] {
			continue
		}
		offer(option{key: "job " + g.String() + " makes pod " + name, at: again, within: kubeletTime, do: func() {
			g.made[name] = true
			if try > 0 {
				w.feature("pod made again")
			}
			w.create(g.newPod(name, spec, try == 0 && i < g.fails))
		}})
		return
	}
}

// newPod is a pod of the gang after admission.
func (g *gang) newPod(name string, spec corev1.PodSpec, fails bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: name, Annotations: map[string]string{
			provreq.ProvisioningRequestPodAnnotationKey: g.request, runForAnnotation: g.runFor.String(),
		}},
		Spec: *spec.DeepCopy(),
	}
	if fails {
		p.Annotations[failsAnnotation] = "true"
	}
	if p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{}
	}
	p.Spec.NodeSelector[state.BookingLabel(g.request)] = g.namespace
	p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
		Key: unschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
	p.Status.Phase = corev1.PodPending
	return p
}
