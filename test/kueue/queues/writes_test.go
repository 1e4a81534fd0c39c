package queues

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestAJobCostsFewWrites counts the write requests for Jobs that only quota holds back.
// It leaves out clients that would write as much without a queue: the controllers of
// Kubernetes, and KWOK in the kubelet's place. The user creates the Job. Muster creates
// its Workload, admits it, starts the Job, and marks the Workload as finished. A Job that
// waits gets a message. Not counted are events, the statuses and standings of queues, which
// cost by time and not by Job, and the few writes that conflict with the Job controller's.
func TestAJobCostsFewWrites(t *testing.T) {
	t.Parallel()
	const count = 30
	for _, tc := range []struct {
		name, cpu string
		most      int
	}{
		{"room", "30", 5},
		{"turns", "10", 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "writes-"+tc.name)
			s.queue(tc.cpu)
			var list []*batchv1.Job
			for i := range count {
				list = append(list, s.oneCPU(s.Name, s.Name, fmt.Sprintf("job-%02d", i), time.Second))
			}
			for _, j := range list {
				s.completes(j)
			}
			var table []string
			var jobs, conflicts int
			writes := s.writes()
			for _, what := range slices.Sorted(maps.Keys(writes)) {
				table = append(table, fmt.Sprintf("%6.2f %s", float64(writes[what])/count, what))
				switch {
				case strings.HasSuffix(what, conflict):
					conflicts += writes[what]
				case !strings.HasSuffix(what, " events") && !strings.Contains(what, "queues"):
					jobs += writes[what]
				}
			}
			t.Logf("writes per Job:\n%s", strings.Join(table, "\n"))
			if jobs < 4*count {
				t.Errorf("%d writes for %d Jobs, fewer than it takes: they were not all counted", jobs, count)
			}
			if jobs > tc.most*count {
				t.Errorf("%d writes for %d Jobs, want at most %d for each", jobs, count, tc.most)
			}
			if conflicts > count/3 {
				t.Errorf("%d writes for %d Jobs came too late, want at most one for three", conflicts, count)
			}
		})
	}
}

// queue creates a ClusterQueue of so many CPUs, with a namespace, a flavor and a
// LocalQueue of its name.
func (s *site) queue(cpu string) {
	s.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", "memory"},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse(cpu)},
			{Name: "memory", NominalQuota: resource.MustParse("1Ti")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}, cq, lq)
	s.active(s.Name)
}

// writes counts the requests that have written in the site's namespace, or to its
// ClusterQueue, by user, verb and resource; the administrator's for Jobs only.
func (s *site) writes() map[string]int {
	s.Helper()
	file, err := os.Open(s.AuditLog())
	if err != nil {
		s.Fatal(err)
	}
	defer file.Close()
	out := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Namespace, Name, Resource, Subresource string }

			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.Fatal(err)
		}
		ours := e.ObjectRef.Namespace == s.Name || e.ObjectRef.Resource == "clusterqueues" && e.ObjectRef.Name == s.Name
		if e.Stage != "ResponseComplete" || !ours || isKubernetes(e.User.Username) ||
			e.User.Username == administrator && e.ObjectRef.Resource != "jobs" {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		if e.ResponseStatus.Code == http.StatusConflict {
			resource += conflict
		}
		out[fmt.Sprintf("%s %s %s", e.User.Username, e.Verb, resource)]++
	}
	if err := lines.Err(); err != nil {
		s.Fatal(err)
	}
	return out
}

// conflict marks writes that were refused since another one came before.
const conflict = ", too late"

// administrator is the user of the tests.
const administrator = "muster-sandbox-admin"

// isKubernetes says that the user is one of Kubernetes' own, or KWOK.
func isKubernetes(user string) bool {
	return strings.HasPrefix(user, "system:kube-") || strings.HasPrefix(user, "system:serviceaccount:kube-system:") ||
		user == "system:apiserver" || user == "muster-sandbox-kwok"
}
