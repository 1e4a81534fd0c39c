package scheduler

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
)

// TestMessagesNameNoWorkloadOfAnotherNamespace: a user that reads the condition of one may not read the other.
func TestMessagesNameNoWorkloadOfAnotherNamespace(t *testing.T) {
	of := func(namespace, name string) *cache.Workload {
		queue := &cache.ClusterQueue{Object: &kueue.ClusterQueue{}, Node: quota.NewNode("q", 1, nil)}
		queue.Object.Name = "of-" + namespace
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
		w.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef("high")
		return &cache.Workload{Object: w, Queue: queue, Priority: 4711}
	}
	secret, mine := of("red", "secret"), of("blue", "mine")
	s := &Cycle{cache: cache.New(config.Config{}), rules: lifecycle.NewRules(cache.New(config.Config{}), time.Now(), time.Time{})}
	for name, got := range map[string]string{
		"a claim":              namesOf(mine, []victim{{Workload: secret}, {Workload: secret}}),
		"a note":               namesOf(nil, []victim{{Workload: secret}}),
		"the preempted one":    s.preempted(victim{mine, kueue.InCohortReclamationReason}, secret).Message,
		"the preempting one":   s.preempted(victim{secret, kueue.InCohortReclamationReason}, mine).Preemption,
		"what is kept in time": nameFor(mine, secret),
	} {
		named := strings.Contains(got, "secret") || strings.Contains(got, "4711")
		if named || !strings.Contains(got, "of ClusterQueue of-red of priority class high") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := namesOf(of("red", "other"), []victim{{Workload: secret}}); got != "red/secret" {
		t.Errorf("within the namespace it is %s", got)
	}
}
