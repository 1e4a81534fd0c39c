package stream

import (
	stdjson "encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/randfill"
)

// answering is an API server with a fixed response. It records its requests.
type answering struct {
	status      int
	contentType string
	body        []byte
	asked       []request
}

type request struct {
	Method, URI, ContentType, Body string
}

func (s *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	s.asked = append(s.asked, request{r.Method, r.RequestURI, r.Header.Get("Content-Type"), string(body)})
	w.Header().Set("Content-Type", s.contentType)
	w.WriteHeader(s.status)
	_, _ = w.Write(s.body)
}

// clientsAt returns the client of controller-runtime and that of the package.
func clientsAt(t *testing.T, url string) (theirs, ours client.Client) {
	t.Helper()
	scheme, mapper := schemeOf(t), meta.NewDefaultRESTMapper(nil)
	for kind, resource := range streamed {
		mapper.Add(resource.GroupVersion().WithKind(kind.Name()), meta.RESTScopeNamespace)
	}
	config := &rest.Config{Host: url, QPS: -1}
	theirs, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = NewClient(config, client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		t.Fatal(err)
	}
	return theirs, ours
}

// patches are as Muster writes statuses.
func patches(before client.Object) map[string]func() (client.Patch, []client.SubResourcePatchOption) {
	return map[string]func() (client.Patch, []client.SubResourcePatchOption){
		"apply": func() (client.Patch, []client.SubResourcePatchOption) {
			return client.RawPatch(types.ApplyPatchType, []byte(`{"status":{}}`)),
				[]client.SubResourcePatchOption{client.FieldOwner("muster"), client.ForceOwnership}
		},
		"merge": func() (client.Patch, []client.SubResourcePatchOption) {
			return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), nil
		},
	}
}

// Writes of status send what controller-runtime's client sends, and read the same from the response.
func TestAnswersAreReadAsByControllerRuntime(t *testing.T) {
	server := &answering{contentType: "application/json"}
	at := httptest.NewServer(server)
	defer at.Close()
	theirs, ours := clientsAt(t, at.URL)
	for _, kind := range kinds() {
		fill := randfill.NewWithSeed(1).NumElements(0, 3).NilChance(0.3).Funcs(metafuzzer.Funcs(codecs(t))...)
		object := func() client.Object {
			o := reflect.New(kind).Interface().(client.Object)
			fill.Fill(o)
			return o
		}
		for range 100 {
			before, answer := object(), object()
			before.SetName("a")
			before.SetNamespace("b")
			before.SetResourceVersion("1")
			answer.GetObjectKind().SetGroupVersionKind(streamed[kind].GroupVersion().WithKind(kind.Name()))
			body, err := stdjson.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			for name, patch := range patches(before) {
				server.status, server.body, server.asked = http.StatusOK, body, nil
				var got []client.Object
				for _, c := range []client.Client{theirs, ours} {
					o := before.DeepCopyObject().(client.Object)
					o.SetLabels(map[string]string{"left": "over"})
					p, options := patch()
					if err := c.Status().Patch(t.Context(), o, p, options...); err != nil {
						t.Fatal(err)
					}
					got = append(got, o)
				}
				if diff := cmp.Diff(got[0], got[1], cmpopts.EquateEmpty(), cmpopts.IgnoreTypes([]metav1.ManagedFieldsEntry{})); diff != "" {
					t.Fatalf("%s, %s: (-theirs +ours)\n%s", kind.Name(), name, diff)
				}
				if diff := cmp.Diff(server.asked[0], server.asked[1]); diff != "" {
					t.Fatalf("%s, %s: (-theirs +ours)\n%s", kind.Name(), name, diff)
				}
			}
		}
	}
}

// Refused writes fail as with controller-runtime's client: with the server's reason, message and causes.
func TestRefusedWritesFailAsByControllerRuntime(t *testing.T) {
	resource := schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}
	status := func(err *apierrors.StatusError) *answering {
		out := err.ErrStatus
		out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		body, _ := stdjson.Marshal(out)
		return &answering{status: int(out.Code), contentType: "application/json", body: body}
	}
	server := &answering{}
	at := httptest.NewServer(server)
	defer at.Close()
	theirs, ours := clientsAt(t, at.URL)
	for name, answer := range map[string]*answering{
		"conflict":  status(apierrors.NewConflict(resource, "a", nil)),
		"not found": status(apierrors.NewNotFound(resource, "a")),
		"forbidden": status(apierrors.NewForbidden(resource, "a", io.EOF)),
		"invalid": status(apierrors.NewInvalid(schema.GroupKind{Kind: "Workload"}, "a",
			field.ErrorList{field.Invalid(field.NewPath("status"), "x", "must be y")})),
		"internal":        status(apierrors.NewInternalError(io.EOF)),
		"timeout":         status(apierrors.NewTimeoutError("slow", 0)),
		"a proxy's page":  {status: http.StatusBadGateway, contentType: "text/html", body: []byte("<html>bad gateway</html>")},
		"no JSON":         {status: http.StatusOK, contentType: "application/json", body: []byte("{")},
		"nothing":         {status: http.StatusOK, contentType: "application/json"},
		"too many, again": status(apierrors.NewTooManyRequests("wait", 0)),
	} {
		t.Run(name, func(t *testing.T) {
			*server = *answer
			var got []error
			for _, c := range []client.Client{theirs, ours} {
				w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "a"}}
				got = append(got, c.Status().Patch(t.Context(), w, client.RawPatch(types.ApplyPatchType, []byte(`{}`)), client.FieldOwner("muster")))
			}
			if got[0] == nil || got[1] == nil {
				t.Fatalf("theirs: %v, ours: %v; want both to fail", got[0], got[1])
			}
			if theirs, ours := apierrors.ReasonForError(got[0]), apierrors.ReasonForError(got[1]); theirs != ours {
				t.Errorf("theirs has the reason %q, ours %q", theirs, ours)
			}
			if theirs := apierrors.APIStatus(nil); apierrors.ReasonForError(got[0]) != metav1.StatusReasonUnknown {
				theirs = got[0].(apierrors.APIStatus)
				if diff := cmp.Diff(theirs.Status(), got[1].(apierrors.APIStatus).Status()); diff != "" {
					t.Errorf("(-theirs +ours)\n%s", diff)
				}
			}
		})
	}
}
