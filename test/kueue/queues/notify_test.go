package queues

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/controller/notify"
)

// webhooks is where receivers of notifications listen: the only host that the settings allow.
var webhooks net.Listener

// received are the events of jobs, as "job Started".
type received struct {
	mu     sync.Mutex
	events []string
}

func (r *received) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	var event struct {
		Type string
		Data struct{ Job, Outcome, Reason string }
	}
	text := fmt.Sprintf("%s %s", req.Method, req.Header.Get("Content-Type"))
	if err := json.NewDecoder(req.Body).Decode(&event); err == nil {
		text = event.Data.Job + " " + event.Type + " " + event.Data.Outcome + event.Data.Reason
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, text)
}

func (r *received) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// TestANamespaceIsNotified has the Secret of a namespace name a receiver. It gets each change of a job there, and of no other.
func TestANamespaceIsNotified(t *testing.T) {
	t.Parallel()
	r := &received{}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(webhooks) }()
	t.Cleanup(func() { _ = server.Close() })

	s, other := newSite(t, "notified"), newSite(t, "not-notified")
	s.queue("1")
	other.queue("1")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: notify.Secret},
		StringData: map[string]string{"url": "http://" + webhooks.Addr().String() + "/"}}
	may := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: notify.Secret},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "muster-notifications"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: deploy.Namespace, Name: "muster"}}}
	s.Create(secret, may)

	short := s.oneCPU(s.Name, s.Name, "short", time.Second)
	other.completes(other.oneCPU(other.Name, other.Name, "unseen", time.Second))
	s.completes(short)
	long := s.oneCPU(s.Name, s.Name, "long", time.Hour)
	s.runs(long)
	w := s.Workload(long)
	if err := s.Kube.Patch(s.Context(), w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":false}}`))); err != nil {
		t.Fatal(err)
	}
	s.stopped(long)
	want := []string{
		"job/short dev.muster.job.started ", "job/short dev.muster.job.finished Finished",
		"job/long dev.muster.job.started ", "job/long dev.muster.job.evicted Deactivated",
	}
	s.Eventually("the receiver has each change of its namespace's jobs, in their order", func() bool { return slices.Equal(r.all(), want) },
		func() string { return fmt.Sprintf("%q", r.all()) })
}
