package quota

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

var (
	noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	gpus = FlavorResource{Flavor: "h100", Resource: "nvidia.com/gpu"}
)

// queue has a quota of GPUs, and one of CPUs in another form than Go writes it.
func queue(gpus, annotation string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team", ResourceVersion: "7"}}
	if annotation != "" {
		cq.Annotations = map[string]string{TemporaryAnnotation: annotation}
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{
		{Flavors: []kueue.FlavorQuotas{{Name: "cpu", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("9")}}}}},
		{Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("16")}, {Name: "nvidia.com/gpu", NominalQuota: resource.MustParse(gpus)},
		}}}},
	}
	return cq
}

// after is the ClusterQueue as a patch leaves it.
func after(t *testing.T, cq *kueue.ClusterQueue, patch []byte) *kueue.ClusterQueue {
	t.Helper()
	if patch == nil {
		return cq
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(cq)
	if err != nil {
		t.Fatal(err)
	}
	text, err := decoded.Apply(before)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	out := &kueue.ClusterQueue{}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestATemporaryQuotaExpires has each pair of what the quota is and whether the end is reached.
func TestATemporaryQuotaExpires(t *testing.T) {
	const entry = "h100 nvidia.com/gpu 64 128 2026-11-30T12:00:00Z"
	const later = "h100 cpu 8 16 2026-11-30T13:00:00Z"
	for name, tt := range map[string]struct {
		gpus, annotation string
		at               time.Duration
		// restored, edited and unreadable count; left, and quota, are what the patch leaves.
		restored, edited, unreadable int
		left, quota                  string
		next                         time.Time
	}{
		"there is none":                      {gpus: "128", quota: "128"},
		"as set, before the end":             {gpus: "128", annotation: entry, at: -1, left: entry, quota: "128", next: noon},
		"as set, at the end":                 {gpus: "128", annotation: entry, quota: "64", restored: 1},
		"as set, long after the end":         {gpus: "128", annotation: entry, at: time.Hour, quota: "64", restored: 1},
		"another, before the end":            {gpus: "96", annotation: entry, at: -1, quota: "96", edited: 1},
		"another, at the end":                {gpus: "96", annotation: entry, quota: "96", edited: 1},
		"the former, before the end":         {gpus: "64", annotation: entry, at: -1, quota: "64", edited: 1},
		"the former, at the end":             {gpus: "64", annotation: entry, quota: "64", edited: 1},
		"the same in another form":           {gpus: "128000m", annotation: entry, quota: "64", restored: 1},
		"the flavor is gone, before the end": {gpus: "128", annotation: "a100 nvidia.com/gpu 64 128 2026-11-30T12:00:00Z", at: -1, quota: "128", edited: 1},
		"the flavor is gone, at the end":     {gpus: "128", annotation: "a100 nvidia.com/gpu 64 128 2026-11-30T12:00:00Z", quota: "128", edited: 1},
		"another one lasts longer": {gpus: "128", annotation: entry + ", " + later, quota: "64", restored: 1, left: later,
			next: noon.Add(time.Hour)},
		"another one is edited":      {gpus: "96", annotation: entry + ", " + later, quota: "96", edited: 1, left: later, next: noon.Add(time.Hour)},
		"both end":                   {gpus: "128", annotation: entry + ", " + later, at: time.Hour, quota: "64", restored: 2},
		"both wait":                  {gpus: "128", annotation: later + ", " + entry, at: -1, quota: "128", left: later + ", " + entry, next: noon},
		"a word is missing":          {gpus: "128", annotation: "h100 nvidia.com/gpu 64 128", quota: "128", unreadable: 1},
		"a quantity is none":         {gpus: "128", annotation: "h100 nvidia.com/gpu many 128 2026-11-30T12:00:00Z", quota: "128", unreadable: 1},
		"a quantity is negative":     {gpus: "128", annotation: "h100 nvidia.com/gpu -1 128 2026-11-30T12:00:00Z", quota: "128", unreadable: 1},
		"a time is none":             {gpus: "128", annotation: "h100 nvidia.com/gpu 64 128 noon", quota: "128", unreadable: 1},
		"one of two is unreadable":   {gpus: "128", annotation: "x, " + entry, at: -1, quota: "128", unreadable: 1, left: entry, next: noon},
		"nothing but a comma is one": {gpus: "128", annotation: ",", quota: "128", left: ","},
	} {
		t.Run(name, func(t *testing.T) {
			cq := queue(tt.gpus, tt.annotation)
			got := Expire(cq, noon.Add(tt.at))
			if len(got.Restored) != tt.restored || len(got.Edited) != tt.edited || len(got.Unreadable) != tt.unreadable || !got.Next.Equal(tt.next) {
				t.Errorf("got %+v, want %+v", got, tt)
			}
			if changes := tt.restored+tt.edited+tt.unreadable > 0; changes != (got.Patch != nil) {
				t.Errorf("the patch is %s", got.Patch)
			}
			now := after(t, cq, got.Patch)
			if left := now.Annotations[TemporaryAnnotation]; left != tt.left {
				t.Errorf("%q is left, want %q", left, tt.left)
			}
			if is, err := Nominal(now, gpus); err != nil || is.Cmp(resource.MustParse(tt.quota)) != 0 {
				t.Errorf("the quota is %s, want %s (%v)", is, tt.quota, err)
			}
			if again := Expire(now, noon.Add(tt.at)); again.Patch != nil {
				t.Errorf("it does not come to rest: %s", again.Patch)
			}
		})
	}
}

// TestAQuotaIsSet until a time or for good, over one that is set already or not.
func TestAQuotaIsSet(t *testing.T) {
	const entry = "h100 nvidia.com/gpu 64 128 2026-11-30T12:00:00Z"
	const other = "h100 cpu 8 16 2026-11-30T13:00:00Z"
	evening := noon.Add(6 * time.Hour)
	for name, tt := range map[string]struct {
		gpus, annotation, set string
		until                 time.Time
		left, former          string
	}{
		"until a time":                    {"64", "", "128", noon, entry, "64"},
		"for good":                        {"64", "", "128", time.Time{}, "", "64"},
		"beside another":                  {"64", other, "128", noon, other + ", " + entry, "64"},
		"again, and the former stays":     {"128", entry, "256", evening, "h100 nvidia.com/gpu 64 256 2026-11-30T18:00:00Z", "64"},
		"again, until later":              {"128", entry, "128", evening, "h100 nvidia.com/gpu 64 128 2026-11-30T18:00:00Z", "64"},
		"again, for good":                 {"128", entry, "128", time.Time{}, "", "64"},
		"to its former, which ends it":    {"128", entry, "64", evening, "", "64"},
		"over an edit, which is former":   {"96", entry, "256", evening, "h100 nvidia.com/gpu 96 256 2026-11-30T18:00:00Z", "96"},
		"again, for good, beside another": {"128", other + ", " + entry, "256", time.Time{}, other, "64"},
	} {
		cq := queue(tt.gpus, tt.annotation)
		set, patch, err := SetNominal(cq, gpus, resource.MustParse(tt.set), tt.until)
		if err != nil {
			t.Fatal(err)
		}
		now := after(t, cq, patch)
		if is, err := Nominal(now, gpus); err != nil || is.String() != tt.set {
			t.Errorf("%s: the quota is %s (%v)", name, is, err)
		}
		if left := now.Annotations[TemporaryAnnotation]; left != tt.left || set.Former.String() != tt.former {
			t.Errorf("%s: %q is recorded with the former %s", name, left, set.Former.String())
		}
		if temporary := strings.Contains(tt.left, "gpu"); temporary != !set.Until.IsZero() ||
			temporary != slices.ContainsFunc(TemporaryOf(now), func(t Temporary) bool { return t.FlavorResource == gpus }) {
			t.Errorf("%s: it ends at %s", name, set.Until)
		}
	}
	for _, absent := range []FlavorResource{{Flavor: "h100", Resource: "gpu"}, {Flavor: "h200", Resource: corev1.ResourceCPU}} {
		_, _, err := SetNominal(queue("64", ""), absent, resource.MustParse("1"), noon)
		if err == nil || !strings.Contains(err.Error(), string(absent.Resource)+" in flavor "+string(absent.Flavor)+
			": use one of cpu/cpu, h100/cpu, h100/nvidia.com/gpu") {
			t.Errorf("%v: %v", absent, err)
		}
	}
}
