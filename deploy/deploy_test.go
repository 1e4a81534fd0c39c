package deploy

import (
	"io/fs"
	"path"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestEveryKindAndPolicyIsOfOneHalf: a file that nobody claims would be installed
// with the half that has no use for it, and may know none of its kinds.
func TestEveryKindAndPolicyIsOfOneHalf(t *testing.T) {
	for _, folder := range []string{"crds", "policies"} {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if file := path.Join(folder, e.Name()); ownerOf(file) == "" {
				t.Errorf("%s is of neither half: add it to owned", file)
			}
		}
	}
}

// TestADenialIsForbidden, as that of Kueue's webhooks, which tools know; the API's own default
// is Invalid.
func TestADenialIsForbidden(t *testing.T) {
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, o := range objects {
		validations, _, err := unstructured.NestedSlice(o.Object, "spec", "validations")
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range validations {
			judged++
			if reason := v.(map[string]any)["reason"]; reason != "Forbidden" {
				t.Errorf("%s: spec.validations[%d] has the reason %v, want Forbidden", o.GetName(), i, reason)
			}
		}
	}
	if judged == 0 {
		t.Error("no policy denies anything")
	}
}

func TestEveryClaimedFileIsThere(t *testing.T) {
	for half, patterns := range owned {
		for _, pattern := range patterns {
			if found, err := fs.Glob(files, pattern); err != nil || len(found) == 0 {
				t.Errorf("%s claims %s, which matches no file (%v)", half, pattern, err)
			}
		}
	}
}

// TestBothHalvesTogetherAreAll and nothing is there twice.
func TestBothHalvesTogetherAreAll(t *testing.T) {
	names := func(halves ...Half) (out []string) {
		objects, err := Manifests(halves...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			out = append(out, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
		}
		return out
	}
	all, shared := names(Halves...), names()
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("%d objects have only %d names", len(all), len(once))
	}
	sum := shared
	for _, half := range Halves {
		for _, name := range names(half) {
			if !slices.Contains(shared, name) {
				sum = append(sum, name)
			}
		}
	}
	slices.Sort(sum)
	if !slices.Equal(sum, all) {
		t.Errorf("the halves have %d objects, both together %d", len(sum), len(all))
	}
}
