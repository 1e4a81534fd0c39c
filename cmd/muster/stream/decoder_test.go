package stream

import (
	"bytes"
	_ "embed"
	stdjson "encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	restwatch "k8s.io/client-go/rest/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/randfill"
)

func schemeOf(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, provreq.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func codecs(t testing.TB) serializer.CodecFactory {
	t.Helper()
	return serializer.NewCodecFactory(schemeOf(t))
}

// clientGo is the decoder that a client of client-go has for a watch.
func clientGo(t testing.TB, kind reflect.Type, body io.Reader) watch.Decoder {
	t.Helper()
	negotiated := codecs(t).WithoutConversion()
	info, _ := runtime.SerializerInfoForMediaType(negotiated.SupportedMediaTypes(), runtime.ContentTypeJSON)
	frames := info.StreamSerializer.NewFrameReader(io.NopCloser(body))
	return restwatch.NewDecoder(streaming.NewDecoder(frames, negotiated.DecoderToVersion(info.StreamSerializer.Serializer, nil)),
		negotiated.DecoderToVersion(info.Serializer, streamed[kind].GroupVersion()))
}

func kinds() []reflect.Type {
	return slices.SortedFunc(maps.Keys(streamed), func(a, b reflect.Type) int { return strings.Compare(a.Name(), b.Name()) })
}

// line is an event as the API server sends it.
func line(t testing.TB, event watch.EventType, object any) []byte {
	t.Helper()
	out, err := stdjson.Marshal(map[string]any{"type": event, "object": object})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// Random objects of each kind, with managed fields and without, are decoded as client-go decodes them.
func TestObjectsAreDecodedAsByClientGo(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind.Name(), func(t *testing.T) {
			fill := randfill.NewWithSeed(1).NumElements(0, 3).NilChance(0.3).Funcs(metafuzzer.Funcs(codecs(t))...)
			var sent bytes.Buffer
			const events = 500
			for i := range events {
				o := reflect.New(kind).Interface().(client.Object)
				fill.Fill(o)
				o.GetObjectKind().SetGroupVersionKind(streamed[kind].GroupVersion().WithKind(kind.Name()))
				sent.Write(line(t, []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark}[i%4], o))
			}
			theirs, ours := clientGo(t, kind, bytes.NewReader(sent.Bytes())), newDecoder(io.NopCloser(&sent), kind)
			managed := 0
			for i := range events {
				wantType, want, err := theirs.Decode()
				if err != nil {
					t.Fatalf("event %d, by client-go: %v", i, err)
				}
				managed += len(want.(client.Object).GetManagedFields())
				gotType, got, err := ours.Decode()
				if err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
				if kept := got.(client.Object).GetManagedFields(); kept != nil {
					t.Fatalf("event %d has managed fields: %v", i, kept)
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes([]metav1.ManagedFieldsEntry{})); diff != "" || gotType != wantType {
					t.Fatalf("event %d is %s, want %s (-client-go +got):\n%s", i, gotType, wantType, diff)
				}
			}
			if managed == 0 {
				t.Error("no object had managed fields")
			}
			if _, _, err := ours.Decode(); err != io.EOF { //nolint:errorlint // the watch tells it by identity
				t.Errorf("at the end: %v, want io.EOF", err)
			}
		})
	}
}

// What an API server may send beside its own objects is taken as client-go takes it.
func TestOddEventsAreDecodedAsByClientGo(t *testing.T) {
	const head = `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload"`
	kind := reflect.TypeFor[kueue.Workload]()
	for name, text := range map[string]string{
		"unknown fields":             `{"type":"ADDED","object":` + head + `,"spec":{"later":{"a":[1,{}]},"queueName":"q"},"more":1}}`,
		"fields in another case":     `{"type":"ADDED","object":` + head + `,"Spec":{"queueName":"q"},"spec":{"QueueName":"x"}}}`,
		"a field twice":              `{"type":"ADDED","object":` + head + `,"spec":{"queueName":"a","queueName":"b"}}}`,
		"nulls":                      `{"type":"ADDED","object":` + head + `,"metadata":{"labels":null,"creationTimestamp":null},"spec":{"podSets":null,"priority":null}}}`,
		"the object before the type": `{"object":` + head + `,"spec":{"queueName":"q"}},"type":"ADDED"}`,
		"letters that are no UTF-8":  "{\"type\":\"ADDED\",\"object\":" + head + ",\"spec\":{\"queueName\":\"\xff\"}}}",
		"the end of the initial events": `{"type":"BOOKMARK","object":` + head +
			`,"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{},"status":{}}}`,
		"an error": `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}`,
	} {
		t.Run(name, func(t *testing.T) {
			wantType, want, err := clientGo(t, kind, strings.NewReader(text)).Decode()
			if err != nil {
				t.Fatal(err)
			}
			// client-go leaves its kind to a Status, and takes it from all else.
			want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			gotType, got, err := newDecoder(io.NopCloser(strings.NewReader(text)), kind).Decode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || gotType != wantType {
				t.Errorf("it is %s, want %s (-client-go +got):\n%s", gotType, wantType, diff)
			}
		})
	}
}

func TestABrokenWatchEnds(t *testing.T) {
	kind := reflect.TypeFor[kueue.Workload]()
	lost := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		body io.Reader
		want error
		says string
	}{
		"cut in an object":     {body: strings.NewReader(`{"type":"ADDED","object":{"spec":{"queue`), want: io.ErrUnexpectedEOF},
		"cut between fields":   {body: strings.NewReader(`{"type":"ADDED",`), want: io.ErrUnexpectedEOF},
		"over":                 {body: strings.NewReader("\n"), want: io.EOF},
		"a connection is lost": {body: io.MultiReader(strings.NewReader(`{"type":`), failing{lost}), says: lost.Error()},
		"no JSON":              {body: strings.NewReader("Forbidden"), says: "invalid character"},
		"an unknown type":      {body: strings.NewReader(`{"type":"RENAMED","object":{}}`), says: `a watch of Workload has an event of the type "RENAMED"`},
		"another shape":        {body: strings.NewReader(`{"type":"ADDED","object":{"spec":{"podSets":7}}}`), says: "decoding a Workload of a watch"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := newDecoder(io.NopCloser(c.body), kind).Decode()
			if c.want != nil && err != c.want || err == nil || !strings.Contains(err.Error(), c.says) { //nolint:errorlint // the watch tells it by identity
				t.Errorf("error %v, want %v %s", err, c.want, c.says)
			}
		})
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

//go:embed testdata/admitted.json
var admitted []byte

// BenchmarkDecode has an admitted Workload of one pod, as the API server sends it; compare client-go with ours.
func BenchmarkDecode(b *testing.B) {
	kind := reflect.TypeFor[kueue.Workload]()
	for name, decoder := range map[string]func(io.Reader) watch.Decoder{
		"client-go": func(r io.Reader) watch.Decoder { return clientGo(b, kind, r) },
		"ours":      func(r io.Reader) watch.Decoder { return newDecoder(io.NopCloser(r), kind) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			d := decoder(&again{text: admitted})
			for b.Loop() {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// again reads the same text again and again.
type again struct {
	text []byte
	at   int
}

func (a *again) Read(p []byte) (int, error) {
	n := copy(p, a.text[a.at:])
	a.at = (a.at + n) % len(a.text)
	return n, nil
}
