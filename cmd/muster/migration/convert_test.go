package migration

import (
	"encoding/json"
	"math/rand" //nolint:depguard // the fuzzer of apimachinery takes its sources
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/kueue/apis/kueue/v1beta1"
	"sigs.k8s.io/randfill"
)

// filler makes objects of either version such as an API server could have stored.
func filler(seed int64) *randfill.Filler {
	own := func(serializer.CodecFactory) []any {
		return []any{
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
			},
			func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31()) },
			func(a *v1beta1.TopologyAssignment, c randfill.Continue) {
				a.Levels = []string{"block", "kubernetes.io/hostname"}
				for range 1 + c.Intn(4) {
					a.Domains = append(a.Domains, v1beta1.TopologyDomainAssignment{Count: 1 + c.Int31n(9),
						Values: []string{"b" + c.String(3), "n" + c.String(3)}})
				}
			},
			func(s *v1beta1.ClusterQueueSpec, c randfill.Continue) {
				c.FillNoCustom(s)
				if len(s.AdmissionChecks) > 0 {
					s.AdmissionChecksStrategy = nil // the API server takes one of the two
				}
			},
			func(s *v1beta1.WorkloadSpec, c randfill.Continue) {
				c.FillNoCustom(s)
				s.PriorityClassSource = []string{"", v1beta1.WorkloadPriorityClassSource, v1beta1.PodPriorityClassSource}[c.Intn(3)]
				if s.PriorityClassSource == "" {
					s.PriorityClassName = ""
				}
			},
		}
	}
	scheme := runtime.NewScheme()
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, own), rand.NewSource(seed),
		serializer.NewCodecFactory(scheme)).NilChance(0.7).NumElements(1, 2)
}

func asObject(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(text, &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}

// body is the part of an object to convert.
func body(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy().Object
	for _, key := range envelope {
		delete(out, key)
	}
	return out
}

// TestWhatIsConvertedIsWhatKueueMakesOfIt converts random objects as Kueue's webhook
// would, also where the migration was interrupted between the two writes, and leaves
// alone what has been converted.
func TestWhatIsConvertedIsWhatKueueMakesOfIt(t *testing.T) {
	for plural, pair := range renamed {
		t.Run(plural, func(t *testing.T) {
			for seed := range int64(300) {
				old, hub := pair()
				filler(seed).Fill(old)
				if err := old.ConvertTo(hub); err != nil {
					t.Fatal(err)
				}
				stored, want := asObject(t, old), asObject(t, hub)
				got, _, _, err := converted(plural, stored)
				if err != nil {
					t.Fatalf("seed %d: %v\n%v", seed, err, stored.Object)
				}
				if diff := cmp.Diff(body(want), body(got)); diff != "" {
					t.Fatalf("seed %d (-Kueue +migration):\n%s", seed, diff)
				}
				half := got.DeepCopy()
				delete(half.Object, status)
				if v, ok := stored.Object[status]; ok {
					half.Object[status] = v
				}
				for name, o := range map[string]*unstructured.Unstructured{"all": got, "half": half} {
					again, main, _, err := converted(plural, o)
					if err != nil || main {
						t.Fatalf("seed %d: %s of it was converted and is again (%v)", seed, name, err)
					}
					if diff := cmp.Diff(body(want), body(again)); diff != "" {
						t.Fatalf("seed %d: %s of it was converted (-want +got):\n%s", seed, name, diff)
					}
				}
			}
		})
	}
}

// TestWhatIsOfTheNewVersionStays, also where nothing distinguishes it from the old one.
func TestWhatIsOfTheNewVersionStays(t *testing.T) {
	for plural, pair := range renamed {
		for seed := range int64(300) {
			_, hub := pair()
			filler(seed).Fill(hub)
			stored := asObject(t, hub)
			got, _, _, err := converted(plural, stored)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", plural, seed, err)
			}
			if diff := cmp.Diff(body(stored), body(got)); diff != "" {
				t.Fatalf("%s, seed %d (-stored +migrated):\n%s", plural, seed, diff)
			}
		}
	}
}
