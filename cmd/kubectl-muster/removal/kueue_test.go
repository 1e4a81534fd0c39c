package removal_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/kubectl-muster/removal"
	"github.com/muster-dev/muster/cmd/muster/migration"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/testbed/apiserver"
)

// site is an API server with what a stock Kueue installs. None runs, and what it would do is its
// lease.
type site struct {
	*testing.T
	config *rest.Config
	kube   client.Client
	stock  []*unstructured.Unstructured
}

func newSite(t *testing.T) *site {
	t.Helper()
	config, binary := apiserver.Start(t, "removal")
	s := &site{T: t, config: config}
	s.kube = s.connect(-1)
	k, err := managers.NewKueue(managers.Kueue{Sandbox: binary, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if s.stock, err = k.Manifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	visibility := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "visibility.kueue.x-k8s.io", "version": "v1beta2", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
		"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "kueue-system", "name": "kueue-visibility-server"},
	}}}
	visibility.SetAPIVersion("apiregistration.k8s.io/v1")
	visibility.SetKind("APIService")
	visibility.SetName("v1beta2.visibility.kueue.x-k8s.io")
	s.stock = append(s.stock, visibility)
	for _, o := range s.stock {
		if o.GetKind() == "CustomResourceDefinition" {
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "kueue-system"})
		}
		if err := s.kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("helm")); err != nil {
			t.Fatal(err)
		}
	}
	record := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "sh.helm.release.v1.kueue.v3",
		Labels: map[string]string{"owner": "helm", "name": "kueue"}}}
	if err := s.kube.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	return s
}

var errInterrupted = errors.New("interrupted")

// interrupted are requests of which only so many may write, if it is not negative.
type interrupted struct {
	http.RoundTripper
	left *atomic.Int64
}

func (i interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "selfsubjectaccessreviews") && i.left.Add(-1) < 0 {
		return nil, errInterrupted
	}
	return i.RoundTripper.RoundTrip(r)
}

// interrupting is a configuration whose clients may write so often; negative is without end.
func (s *site) interrupting(writes int64) *rest.Config {
	config := rest.CopyConfig(s.config)
	if left := (&atomic.Int64{}); writes >= 0 {
		left.Store(writes)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return interrupted{next, left} })
	}
	return config
}

func (s *site) connect(writes int64) client.Client {
	s.Helper()
	scheme, err := view.NewScheme()
	if err != nil {
		s.Fatal(err)
	}
	kube, err := client.New(s.interrupting(writes), client.Options{Scheme: scheme})
	if err != nil {
		s.Fatal(err)
	}
	return kube
}

// hasty is a clock by which no step waits for long.
type hasty struct{ clock.RealClock }

func (h hasty) After(d time.Duration) <-chan time.Time { return h.RealClock.After(d / 50) }

// migration is one that may write so often, to the cluster and to the objects that are converted.
func (s *site) migration(writes int64, out io.Writer) *removal.Migration {
	s.Helper()
	objects, err := dynamic.NewForConfig(s.interrupting(writes))
	if err != nil {
		s.Fatal(err)
	}
	return &removal.Migration{Removal: removal.Removal{Kube: s.connect(writes), Clock: hasty{}, Out: out}, Dynamic: objects}
}

// through runs it again and again, interrupted after one write more each time, until it is done.
func (s *site) through(run func(*removal.Migration) error) {
	s.Helper()
	for writes := int64(0); ; writes++ {
		var out bytes.Buffer
		err := run(s.migration(writes, &out))
		if err == nil {
			s.Logf("done after %d interruptions:\n%s", writes, out.String())
			return
		}
		if !errors.Is(err, errInterrupted) {
			s.Fatalf("%v\n%s", err, out.String())
		}
	}
}

// leads has Kueue lead from now, or no longer.
func (s *site) leads(does bool) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: migration.Lease}}
	if err := client.IgnoreNotFound(s.kube.Delete(s.Context(), lease)); err != nil || !does {
		if err != nil {
			s.Fatal(err)
		}
		return
	}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("kueue-0"), LeaseDurationSeconds: new(int32(3600)),
		RenewTime: &metav1.MicroTime{Time: time.Now()}}
	if err := s.kube.Create(s.Context(), lease); err != nil {
		s.Fatal(err)
	}
}

// standing are Kueue's CRDs, webhooks and APIServices as they are, and what manages their fields, and whether Helm knows its release.
func (s *site) standing() map[string]any {
	s.Helper()
	out := map[string]any{}
	for _, o := range s.stock {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		switch kind := o.GetKind(); {
		case kind != "CustomResourceDefinition" && kind != "APIService" && !strings.HasSuffix(kind, "WebhookConfiguration"):
			continue
		case s.kube.Get(s.Context(), client.ObjectKeyFromObject(o), live) != nil:
			out[kind+" "+o.GetName()] = "none"
		default:
			managers := map[string]string{}
			for _, e := range live.GetManagedFields() {
				if e.Subresource == "" {
					managers[e.Manager+" "+string(e.Operation)] = e.FieldsV1.GetRawString()
				}
			}
			out[kind+" "+o.GetName()] = []any{live.Object["spec"], live.Object["webhooks"], live.GetAnnotations()["meta.helm.sh/release-name"],
				managers}
		}
	}
	var records corev1.SecretList
	if err := s.kube.List(s.Context(), &records, client.MatchingLabels{"owner": "helm"}); err != nil {
		s.Fatal(err)
	}
	out["records"] = len(records.Items)
	return out
}

// TestAMigrationMayBeInterrupted after every write, on the way to Muster and on the way back.
func TestAMigrationMayBeInterrupted(t *testing.T) {
	s := newSite(t)
	if err := s.migration(-1, io.Discard).Back(t.Context()); err == nil || !strings.Contains(err.Error(), "there is nothing to go back to") {
		t.Fatalf("going back from nowhere: %v", err)
	}
	before := s.standing()
	var plan bytes.Buffer
	if err := s.migration(0, &plan).Check(t.Context()); err != nil {
		t.Fatalf("--check: %v", err)
	}
	for _, want := range []string{"43 in 2 configurations", "keep 14 objects", "hide from Helm Secret",
		"delete APIService v1beta2.visibility.kueue.x-k8s.io"} {
		if !strings.Contains(plan.String(), want) {
			t.Errorf("--check does not say %q:\n%s", want, &plan)
		}
	}
	s.through(func(m *removal.Migration) error { return m.Apply(t.Context()) })
	if why, err := migration.InTheWay(t.Context(), s.kube); why != "" || err != nil {
		t.Errorf("in the way of Muster: %s (%v)", why, err)
	}
	if got := s.standing()["records"]; got != 0 {
		t.Errorf("Helm knows %v releases", got)
	}
	s.leads(true)
	s.through(func(m *removal.Migration) error { return m.Back(t.Context()) })
	if diff := cmp.Diff(before, s.standing()); diff != "" {
		t.Errorf("it is not as before (-before +after):\n%s", diff)
	}
	kept := &corev1.Secret{}
	if err := s.kube.Get(t.Context(), client.ObjectKey{Namespace: "muster-system", Name: "kueue-before-muster"},
		kept); !apierrors.IsNotFound(err) {
		t.Errorf("what was kept is left (%v)", err)
	}
	s.leads(false)
}
