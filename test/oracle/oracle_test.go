package oracle

import (
	"maps"
	"slices"
	"testing"
)

// TestFitIsTheSchedulers lets fit and the scheduler judge random worlds, first one pod
// against every node and then gangs, pod after pod. Fit must never say yes where the
// scheduler says no. Where it says no and the scheduler yes, there must be a refusal
// that names the feature, or a selector of namespaces that fit takes to keep pods
// apart.
func TestFitIsTheSchedulers(t *testing.T) {
	s := newScheduler(t, storage.objects()...)
	all := newCoverage()
	for _, round := range []struct {
		name   string
		gang   bool
		worlds uint64
	}{
		{"one pod", false, 30_000},
		{"gangs", true, 8_000},
	} {
		for seed := range round.worlds {
			if err := judge(s, newSeeded(seed), round.gang, all); err != nil {
				t.Fatalf("%s, seed %d: %v", round.name, seed, err)
			}
		}
	}
	t.Logf("%d worlds (%d with features that exclude each other, %d refused), %d verdicts (%d cautious), no by plugin: %v", all.worlds,
		all.invalid, all.refused, all.verdicts, all.cautious, all.no)
	if all.verdicts < 100_000 {
		t.Errorf("%d verdicts were compared, fewer than 100,000", all.verdicts)
	}
	if all.invalid > all.worlds/5 {
		t.Errorf("%d of %d worlds were none", all.invalid, all.worlds)
	}
	checkCoverage(t, all)
}

// naysayers are the plugins of the default profile that can say no to pods that fit
// does not refuse and that tolerate a cordon.
var naysayers = []string{
	"DynamicResources", "InterPodAffinity", "NodeAffinity", "NodePorts", "NodeResourcesFit", "PodTopologySpread",
	"TaintToleration", "VolumeBinding", "VolumeRestrictions", "VolumeZone",
}

// often is how many times a trait must have been met on each side of the verdict.
const often = 40

func checkCoverage(t *testing.T, all *coverage) {
	t.Helper()
	for _, plugin := range naysayers {
		if all.no[plugin] < often {
			t.Errorf("%s said no %d times only", plugin, all.no[plugin])
		}
	}
	for _, f := range judgedFeatures {
		if v := all.of(f.trait); v.yes < often || v.no < often {
			t.Errorf("%s was met %d times with yes and %d times with no by %s", f.trait, v.yes, v.no, f.plugin)
		}
	}
	for _, f := range refusedFeatures {
		if v := all.of(f.trait); v.refused < often {
			t.Errorf("%s was refused %d times only", f.trait, v.refused)
		}
	}
	for _, trait := range slices.Sorted(maps.Keys(ofWorlds)) {
		if v := all.of(trait); v.yes < often || v.no < often {
			t.Errorf("%s was met %d times with yes and %d times with no by %s", trait, v.yes, v.no, ofWorlds[trait])
		}
	}
	if all.of("cordon").yes < often {
		t.Errorf("cordoned nodes were met %d times", all.of("cordon").yes)
	}
}

// FuzzFitIsTheSchedulers lets the fuzzer choose the worlds.
func FuzzFitIsTheSchedulers(f *testing.F) {
	s := newScheduler(f, storage.objects()...)
	f.Fuzz(func(t *testing.T, gang bool, data []byte) {
		if err := judge(s, &recorded{data}, gang, newCoverage()); err != nil {
			t.Fatal(err)
		}
	})
}
