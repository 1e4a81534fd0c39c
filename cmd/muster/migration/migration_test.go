package migration

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/testbed/apiserver"
)

// world is a cluster in which a Kueue ran that stored v1beta1, and later one that
// stores v1beta2, and now none does.
type world struct {
	*testing.T
	config *rest.Config
	client dynamic.Interface
	crds   []*apiextensions.CustomResourceDefinition
}

func newWorld(t *testing.T) *world {
	t.Helper()
	config, _ := apiserver.Start(t, "migration")
	w := &world{T: t, config: config}
	var err error
	if w.client, err = dynamic.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	w.readCRDs()
	return w
}

// readCRDs reads those of Kueue's release.
func (w *world) readCRDs() {
	module, err := exec.CommandContext(w.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		w.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "config/components/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		w.Fatalf("Kueue's module has no CRDs (%v)", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			w.Fatal(err)
		}
		objects, err := deploy.Decode(text)
		if err != nil {
			w.Fatal(err)
		}
		crd := &apiextensions.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, crd); err != nil {
			w.Fatal(err)
		}
		if renamed[crd.Spec.Names.Plural] != nil {
			crd.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.WebhookConverter,
				Webhook: &apiextensions.WebhookConversion{
					ConversionReviewVersions: []string{"v1"},
					ClientConfig: &apiextensions.WebhookClientConfig{Service: &apiextensions.ServiceReference{
						Namespace: "kueue-system", Name: "kueue-webhook-service", Path: new("/convert"),
					}},
				}}
		}
		w.crds = append(w.crds, crd)
	}
}

// older returns the objects that the older Kueue has stored, at least one of every kind.
func (w *world) older() []*unstructured.Unstructured {
	w.Helper()
	text, err := os.ReadFile("testdata/v1beta1.yaml")
	if err != nil {
		w.Fatal(err)
	}
	objects, err := deploy.Decode(text)
	if err != nil {
		w.Fatal(err)
	}
	return objects
}

// install has the CRDs store objects in a version.
func (w *world) install(stored string) {
	w.Helper()
	for _, crd := range w.crds {
		crd = crd.DeepCopy()
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == stored
		}
		definitions := w.client.Resource(definitions)
		if now, err := definitions.Get(w.Context(), crd.Name, metav1.GetOptions{}); err == nil {
			crd.ResourceVersion = now.GetResourceVersion()
			if _, err := definitions.Update(w.Context(), w.raw(crd), metav1.UpdateOptions{}); err != nil {
				w.Fatal(err)
			}
		} else if _, err := definitions.Create(w.Context(), w.raw(crd), metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) raw(crd *apiextensions.CustomResourceDefinition) *unstructured.Unstructured {
	crd.TypeMeta = metav1.TypeMeta{APIVersion: apiextensions.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		w.Fatal(err)
	}
	return &unstructured.Unstructured{Object: object}
}

func (w *world) definition(name string) *apiextensions.CustomResourceDefinition {
	w.Helper()
	crd, err := (&kind{Migration: &Migration{Client: w.client},
		target: &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}}).definition(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return crd
}

func (w *world) plural(kind string) string {
	i := slices.IndexFunc(w.crds, func(c *apiextensions.CustomResourceDefinition) bool { return c.Spec.Names.Kind == kind })
	return w.crds[i].Spec.Names.Plural
}

func (w *world) resource(o *unstructured.Unstructured, version string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: version, Resource: w.plural(o.GetKind())}
	if o.GetNamespace() == "" {
		return w.client.Resource(gvr)
	}
	return w.client.Resource(gvr).Namespace(o.GetNamespace())
}

// eventually repeats what an API server that has just got a CRD refuses at first.
func (w *world) eventually(do func() error) {
	w.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && !apierrors.IsInvalid(err); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // a real API server
		if err = do(); err == nil {
			return
		}
	}
	w.Fatal(err)
}

// create makes the object with its status, and returns it as it is stored.
func (w *world) create(o *unstructured.Unstructured, version string) *unstructured.Unstructured {
	w.Helper()
	o = o.DeepCopy()
	o.SetAPIVersion("kueue.x-k8s.io/" + version)
	var out *unstructured.Unstructured
	w.eventually(func() (err error) {
		out, err = w.resource(o, version).Create(w.Context(), o, metav1.CreateOptions{})
		return err
	})
	if state, ok := o.Object[status]; ok {
		out.Object[status] = state
		var err error
		if out, err = w.resource(o, version).UpdateStatus(w.Context(), out, metav1.UpdateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	return out
}

// asKueueDoes returns the object as converted by Kueue's webhook.
func (w *world) asKueueDoes(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	pair := renamed[w.plural(o.GetKind())]
	if pair == nil {
		return o
	}
	old, hub := pair()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, old); err != nil {
		w.Fatal(err)
	}
	if err := old.ConvertTo(hub); err != nil {
		w.Fatal(err)
	}
	out := asObject(w.T, hub)
	out.SetKind(o.GetKind())
	return out
}

var errInterrupted = errors.New("interrupted")

// interrupted lets only so many writes through.
type interrupted struct {
	http.RoundTripper
	left *atomic.Int64
}

func (i interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && i.left.Add(-1) < 0 {
		return nil, errInterrupted
	}
	return i.RoundTripper.RoundTrip(r)
}

// migrate runs the migration until it has written so often.
func (w *world) migrate(writes int64) (string, error) {
	w.Helper()
	left := &atomic.Int64{}
	left.Store(writes)
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return interrupted{next, left} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		w.Fatal(err)
	}
	var out bytes.Buffer
	m := &Migration{Client: client, Out: &out}
	pending, err := m.Pending(w.Context())
	for _, crd := range pending {
		if err := m.Kind(w.Context(), crd); err != nil {
			return out.String(), err
		}
	}
	return out.String(), err
}

// pending returns the CRDs of the kinds that are not migrated yet.
func (w *world) pending() (names []string) {
	w.Helper()
	pending, err := (&Migration{Client: w.client}).Pending(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, crd := range pending {
		names = append(names, crd.Name)
	}
	return names
}

// TestObjectsOfAnOlderKueueAreKept stores every kind as v1beta1 on a real API server, interrupts the migration again and again, and
// compares the result with that of Kueue's own conversion.
func TestObjectsOfAnOlderKueueAreKept(t *testing.T) {
	w := newWorld(t)
	w.install(oldVersion)
	var want []*unstructured.Unstructured
	for _, o := range w.older() {
		want = append(want, w.asKueueDoes(w.create(o, oldVersion)))
	}
	w.install(newVersion)
	for _, o := range want[len(want)-4:] { // and some that were made since
		o = o.DeepCopy()
		o.SetName(o.GetName() + "-since")
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		want = append(want, w.create(o, newVersion))
	}
	for _, o := range want {
		if crd := w.definition(w.plural(o.GetKind()) + ".kueue.x-k8s.io"); !slices.Contains(crd.Status.StoredVersions, oldVersion) {
			t.Fatalf("%s is stored as %v", crd.Name, crd.Status.StoredVersions)
		}
	}
	manifests, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		t.Fatal(err)
	}
	taken := manifests[0].DeepCopy()
	taken.SetResourceVersion(w.definition(taken.GetName()).ResourceVersion)
	if _, err := w.client.Resource(definitions).Update(t.Context(), taken, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("%s was taken over with objects that Muster cannot read (%v)", taken.GetName(), err)
	}
	if pending := w.pending(); len(pending) != len(w.crds) {
		t.Fatalf("%d kinds are to be migrated: %v", len(pending), pending)
	}

	runs := 0
	for writes := int64(1); ; writes++ {
		out, err := w.migrate(writes)
		if runs++; err == nil {
			t.Logf("done after %d runs, the last one with at most %d writes:\n%s", runs, writes, out)
			break
		}
		if !errors.Is(err, errInterrupted) {
			t.Fatal(err)
		}
	}

	for _, o := range want {
		var got *unstructured.Unstructured
		w.eventually(func() (err error) {
			got, err = w.resource(o, newVersion).Get(t.Context(), o.GetName(), metav1.GetOptions{})
			return err
		})
		// v1beta2 has nothing in its place.
		unstructured.RemoveNestedField(o.Object, "spec", "retryDelayMinutes")
		for _, side := range []*unstructured.Unstructured{o, got} {
			if state, _ := side.Object[status].(map[string]any); len(state) == 0 {
				delete(side.Object, status)
			}
		}
		if diff := cmp.Diff(body(o), body(got)); diff != "" {
			t.Errorf("%s %s (-Kueue +migrated):\n%s", o.GetKind(), o.GetName(), diff)
		}
		if diff := cmp.Diff(o.GetFinalizers(), got.GetFinalizers()); diff != "" {
			t.Errorf("%s %s: finalizers:\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
	for _, crd := range w.crds {
		if now := w.definition(crd.Name); !slices.Equal(now.Status.StoredVersions, []string{newVersion}) || len(now.Spec.Versions) != 1 {
			t.Errorf("%s is stored as %v and has %d versions", crd.Name, now.Status.StoredVersions, len(now.Spec.Versions))
		}
		_, err := w.client.Resource(schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: oldVersion,
			Resource: crd.Spec.Names.Plural}).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s is still served as %s (%v)", crd.Name, oldVersion, err)
		}
	}
	if pending := w.pending(); len(pending) > 0 {
		t.Errorf("after it, %d kinds are to be migrated: %v", len(pending), pending)
	}
}
