package lifecycle

import (
	"fmt"
	"hash/fnv"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/when"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Defaults of waitForPodsReady, as in Kueue.
const (
	DefaultReadyTimeout  = 30 * time.Minute
	podsReadyBackoffBase = 60
	podsReadyBackoffMax  = 3600
)

// podsReady ends the attempt of an admitted Workload whose pods are not ready in time. The time counts only while the
// control plane answers. Otherwise the Workload is evaluated again at the end of that time.
//
//	Admitted ─timeout─▶ evicted ─backoff─▶ pending
//	   │ PodsReady=True                ▲
//	   └─▶ a pod is lost ─recoveryTimeout┘      past the limit: deactivated
func (s Rules) podsReady(w *cache.Workload) *Verdict {
	c := s.cache.Config.WaitForPodsReady
	if c == nil || !workload.IsAdmitted(w.Object) || workload.IsTrue(w.Object, kueue.WorkloadPodsReady) {
		return nil
	}
	since, timeout, cause := workload.AdmittedSince(w.Object), readyTimeout(c), kueue.WorkloadWaitForStart
	ready := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadPodsReady)
	if ready != nil && ready.Reason == kueue.WorkloadWaitForRecovery {
		since, cause = ready.LastTransitionTime.Time, kueue.WorkloadWaitForRecovery
		if c.RecoveryTimeout != nil {
			timeout = c.RecoveryTimeout.Duration
		}
		if timeout == 0 {
			return nil
		}
	}
	// Pods cannot become ready, or be observed as ready, while the control plane is silent.
	if over := when.Latest(since, s.answering).Add(timeout); s.now.Before(over) {
		s.cache.Wake(w, over)
		return nil
	}
	return s.retryLater(w, kueue.WorkloadEvictedByPodsReadyTimeout, cause,
		fmt.Sprintf("Exceeded the PodsReady timeout %s/%s: not all pods were ready within %s", w.Object.Namespace, w.Object.Name, timeout),
		fmt.Sprintf("its pods were not ready within %s", timeout))
}

// retryLater ends the attempt of an admitted Workload whose pods did not become ready, and backs off. Past the limit it
// deactivates the Workload; short is then the reason.
func (s Rules) retryLater(w *cache.Workload, reason, cause, message, short string) *Verdict {
	strategy := requeuing(s.cache.Config.WaitForPodsReady)
	tries := s.tries(w.Object)
	if limit := strategy.BackoffLimitCount; limit != nil && tries >= *limit {
		return s.requestDeactivation(w, kueue.WorkloadRequeuingLimitExceeded, fmt.Sprintf(
			"exceeding the maximum number of re-queuing retries: %s, and waitForPodsReady.requeuingStrategy.backoffLimitCount is %d", short, *limit))
	}
	at := s.now.Add(Backoff(w.Object, strategy, tries))
	message = fmt.Sprintf("%s; the next attempt is at %s", message, at.UTC().Format(time.RFC3339))
	v := s.evictDueTo(w, reason, cause, message, kueue.WorkloadQuotaReservedReasonPendingEvaluation, at)
	v.Status.RequeueState.Count = new(workload.SaturatingAdd(tries, 1))
	return v
}

// tries returns how often the pods of a Workload were rejected or not ready in time since it was last activated: a
// reactivated Workload has all its tries again. It is computed from the eviction statistics. The count in requeueState
// includes attempts to obtain machines, which must never deactivate a Workload.
func (s Rules) tries(w *kueue.Workload) int32 {
	n := workload.SaturatingAdd(workload.Evictions(w, kueue.WorkloadEvictedByPodsReadyTimeout, ""),
		workload.Evictions(w, workload.ReasonPodsRefused, ""))
	if limit := requeuing(s.cache.Config.WaitForPodsReady).BackoffLimitCount; limit != nil {
		rounds := workload.Evictions(w, kueue.WorkloadDeactivated, kueue.WorkloadRequeuingLimitExceeded)
		n = int32(max(0, int64(n)-int64(rounds)*int64(*limit)))
	}
	return n
}

func readyTimeout(c *kueueconfig.WaitForPodsReady) time.Duration {
	if c.Timeout.Duration == 0 {
		return DefaultReadyTimeout
	}
	return c.Timeout.Duration
}

// requeuing returns the configured strategy; empty fields have Kueue's defaults.
func requeuing(c *kueueconfig.WaitForPodsReady) kueueconfig.RequeuingStrategy {
	if c == nil || c.RequeuingStrategy == nil {
		return kueueconfig.RequeuingStrategy{}
	}
	return *c.RequeuingStrategy
}

// Backoff doubles with each try. Jitter of up to a sixtieth separates Workloads that failed together; it is the same
// for the same try of a Workload. Times in the API have whole seconds.
func Backoff(w *kueue.Workload, c kueueconfig.RequeuingStrategy, tries int32) time.Duration {
	seconds := func(v *int32, fallback int32) time.Duration {
		if v == nil {
			v = &fallback
		}
		return time.Duration(*v) * time.Second
	}
	pause := workload.Backoff(seconds(c.BackoffBaseSeconds, podsReadyBackoffBase), tries, seconds(c.BackoffMaxSeconds, podsReadyBackoffMax))
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", w.UID, tries)
	jitter := pause / 60 * time.Duration(h.Sum32()%1001) / 1000
	return pause + jitter.Truncate(time.Second)
}
