package page

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

// stockedOut is a job whose machines do not come.
var stockedOut = filepath.Join("..", "..", "cmd", "kubectl-muster", "testdata", "stockout.yaml")

// TestOnASandbox: the page is a component with rights of its own; the API server, the page
// itself and its rights go away and come back.
func TestOnASandbox(t *testing.T) {
	if os.Getenv(testbed.SandboxVariable) == "" {
		t.Skipf("%s does not name a sandbox's binary: run `make test-more`, which builds it", testbed.SandboxVariable)
	}
	b := newBrowser(t)
	c := cluster.Config{Progress: os.Stderr, Dashboard: true}
	sandbox.Fill(&c)
	running, err := testbed.Start(t.Context(), "page", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	running.KeepIfFailed(t, metav1.NamespaceDefault)
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(running.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(stockedOut)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	var job *unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == "Job" {
			job = o.DeepCopy()
		}
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	home := running.DashboardURL()
	tab := b.open(home, desktop)
	tab.reads("h1", "1 job pending")
	tab.reads(".rows", "waits for machines")
	tab.holds("!document.querySelector('.notice')")
	tab.click(".rows .row")
	tab.reads("dialog", "time: the backoff of NodeGroup h100 ends at")
	tab.press("Escape")
	tab.click("nav [data-view=obtainability]")
	tab.reads(".heat", "Stockout, ")
	tab.reads("#attempts + .picture", "stockout")
	tab.picture("sandbox", false)
	tab.quiet(home)

	// The API server goes away.
	if err := running.Pause(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	tab.reads("#heartbeat", "Stale since")
	tab.reads(".notice", "The cluster does not answer")
	tab.reads(".heat", "h100")
	if err := running.Resume(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := running.WaitReady(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	tab.reads("#heartbeat", "Live")
	tab.click("nav [data-view=queue]")
	job.SetName("another")
	if err := kube.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	tab.reads("h1", "2 jobs pending")

	// The page goes away, and comes back without some of its rights.
	binding := &rbacv1.ClusterRoleBinding{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "muster-dashboard"}, binding); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	if err := running.Kill(cluster.Dashboard); err != nil {
		t.Fatal(err)
	}
	tab.reads(".notice", "list nodegroups.muster.dev — no node groups")
	tab.reads(".notice", "list nodes, list pods — ")
	tab.reads("h1", "2 jobs pending")
	tab.picture("sandbox-rights", false)
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name}
	if err := kube.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	tab.holds("!document.querySelector('.notice')")
	tab.reads(".rows", "waits for machines")
}
