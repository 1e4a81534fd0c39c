package topology

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	block, rack, host = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
	index             = "batch.kubernetes.io/job-completion-index"
)

// podSet is a pod set with annotations, given as pairs without Kueue's prefix.
func podSet(name string, count int32, pairs ...string) kueue.PodSet {
	s := kueue.PodSet{Name: kueue.PodSetReference(name), Count: count}
	s.Template.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		s.Template.Annotations["kueue.x-k8s.io/podset-"+pairs[i]] = pairs[i+1]
	}
	return s
}

func TestAnnotationsAreTheRequest(t *testing.T) {
	type request = kueue.PodSetTopologyRequest
	for name, c := range map[string]struct {
		annotations []string
		kind, want  *request
	}{
		"nothing":            {},
		"only an index":      {nil, &request{PodIndexLabel: new(index)}, &request{PodIndexLabel: new(index)}},
		"required":           {[]string{"required-topology", rack}, nil, &request{Required: new(rack)}},
		"preferred":          {[]string{"preferred-topology", rack}, nil, &request{Preferred: new(rack)}},
		"unconstrained":      {[]string{"unconstrained-topology", "true"}, nil, &request{Unconstrained: new(true)}},
		"not unconstrained":  {[]string{"unconstrained-topology", "false"}, nil, &request{Unconstrained: new(false)}},
		"required and index": {[]string{"required-topology", rack}, &request{PodIndexLabel: new(index)}, &request{Required: new(rack), PodIndexLabel: new(index)}},
		"slices alone": {[]string{"slice-required-topology", host, "slice-size", "2"}, nil,
			&request{PodSetSliceRequiredTopology: new(host), PodSetSliceSize: new(int32(2))}},
		"slices of a size that does not divide": {[]string{"preferred-topology", block, "slice-required-topology", rack, "slice-size", "3"}, nil,
			&request{Preferred: new(block), PodSetSliceRequiredTopology: new(rack), PodSetSliceSize: new(int32(3))}},
		"layers": {[]string{"required-topology", block, "slice-required-topology-constraints",
			`[{"topology":"example.com/rack","size":4},{"topology":"kubernetes.io/hostname","size":2}]`}, nil,
			&request{Required: new(block), PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{
				{Topology: rack, Size: 4}, {Topology: host, Size: 2}}}},
	} {
		podSets := []kueue.PodSet{podSet("main", 8, c.annotations...)}
		podSets[0].TopologyRequest = c.kind
		if refusals := Complete(podSets); len(refusals) > 0 {
			t.Errorf("%s: refused: %q", name, refusals)
		}
		if got := podSets[0].TopologyRequest; !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: the request is %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAnnotationsThatCannotBeFollowed(t *testing.T) {
	const layers = "slice-required-topology-constraints"
	for name, c := range map[string]struct {
		annotations []string
		want        []string // in each refusal, which there are as many of
	}{
		"two kinds":             {[]string{"required-topology", rack, "unconstrained-topology", "true"}, []string{"podset-unconstrained-topology is specified"}},
		"required and another":  {[]string{"required-topology", rack, "preferred-topology", rack}, []string{"podset-preferred-topology is specified"}},
		"preferred and another": {[]string{"preferred-topology", rack, "unconstrained-topology", "true"}, []string{"podset-unconstrained-topology is"}},
		"no label":              {[]string{"required-topology", "a rack"}, []string{`"a rack"`}},
		"no label preferred":    {[]string{"preferred-topology", "-"}, []string{`podset-preferred-topology of podSet main is "-"`}},
		"no boolean":            {[]string{"unconstrained-topology", "yes"}, []string{`"yes", which must be a boolean value`}},
		"no size":               {[]string{"slice-required-topology", rack}, []string{"podset-slice-size must be set with it"}},
		"size alone":            {[]string{"slice-size", "4"}, []string{"podset-slice-required-topology is not specified"}},
		"size is a word":        {[]string{"slice-required-topology", rack, "slice-size", "four"}, []string{`"four", which must be a numeric value`}},
		"size is 0":             {[]string{"slice-required-topology", rack, "slice-size", "0"}, []string{`"0", and the size of a slice must be greater than or equal to 1`}},
		"size over the count":   {[]string{"slice-required-topology", rack, "slice-size", "9"}, []string{`"9", and the size of a slice must not be greater than pod set count 8`}},
		"layers are no JSON":    {[]string{layers, "rack=4"}, []string{`"rack=4", which must be a valid JSON array`}},
		"no layers":             {[]string{layers, "[]"}, []string{"between 1 and 3 entries, not 0"}},
		"four layers": {[]string{layers, `[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]`},
			[]string{"between 1 and 3 entries, not 4"}},
		"layers that do not divide": {[]string{layers, `[{"topology":"a","size":4},{"topology":"b","size":3}]`},
			[]string{"the size 3 must evenly divide the parent layer size 4"}},
		"layers that do not divide the pods": {[]string{layers, `[{"topology":"a","size":6},{"topology":"b","size":3}]`},
			[]string{"the size 6 must evenly divide pod set count 8"}},
		"a layer twice":            {[]string{layers, `[{"topology":"a","size":4},{"topology":"a","size":2}]`}, []string{"names the topology a twice"}},
		"a layer of no size":       {[]string{layers, `[{"topology":"a","size":4},{"topology":"b"}]`}, []string{"greater than or equal to 1"}},
		"a layer of no label":      {[]string{layers, `[{"topology":"a b","size":4}]`}, []string{`"a b" is not the key of a label`}},
		"layers over the count":    {[]string{layers, `[{"topology":"a","size":16}]`}, []string{"greater than pod set count 8"}},
		"layers beside slices":     {[]string{layers, `[{"topology":"a","size":4}]`, "slice-required-topology", rack, "slice-size", "2"}, []string{"podset-slice-required-topology is specified", "podset-slice-size is specified"}},
		"a group of no level":      {[]string{"group-name", "g"}, []string{"neither kueue.x-k8s.io/podset-required-topology nor"}},
		"a group that is a number": {[]string{"group-name", "7", "required-topology", rack}, []string{`"7", which must not be a number`}},
		"a group of one":           {[]string{"group-name", "g", "required-topology", block}, []string{"groups of exactly 2 pod sets, got: 1"}},
	} {
		podSets := []kueue.PodSet{podSet("main", 8, c.annotations...)}
		refusals := Complete(podSets)
		if len(refusals) != len(c.want) {
			t.Errorf("%s: refused because of %q, want %q", name, refusals, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(refusals[i], want) || !strings.Contains(refusals[i], "the annotation kueue.x-k8s.io/podset-") {
				t.Errorf("%s: refused because of %q, which does not say %q", name, refusals[i], want)
			}
		}
	}
}

func TestPartialSlicesNeedAllPods(t *testing.T) {
	podSets := []kueue.PodSet{podSet("main", 8, "slice-required-topology", rack, "slice-size", "3")}
	if refusals := Complete(podSets); len(refusals) > 0 {
		t.Errorf("refused because of %q", refusals)
	}
	podSets[0].MinCount = new(int32(3))
	if refusals := Complete(podSets); len(refusals) != 1 || !strings.Contains(refusals[0], "must evenly divide pod set count 8") {
		t.Errorf("with fewer pods: refused because of %q", refusals)
	}
}

func TestGroupsOfPodSets(t *testing.T) {
	member := func(name string, count int32, kind, level string) kueue.PodSet {
		return podSet(name, count, "group-name", "g", kind, level)
	}
	// The leader of a group comes before its workers anyway.
	offset := member("w", 8, "required-topology", rack)
	offset.Template.Annotations[kueue.PodIndexOffsetAnnotation] = "1"
	for name, c := range map[string]struct {
		podSets []kueue.PodSet
		want    string
	}{
		"a leader and workers":   {[]kueue.PodSet{member("l", 1, "required-topology", rack), member("w", 8, "required-topology", rack)}, ""},
		"no leader":              {[]kueue.PodSet{member("l", 2, "required-topology", rack), member("w", 8, "required-topology", rack)}, "podSet l with 2 and podSet w with 8"},
		"levels that differ":     {[]kueue.PodSet{member("l", 1, "required-topology", rack), member("w", 8, "required-topology", block)}, "must name the same level"},
		"required and preferred": {[]kueue.PodSet{member("l", 1, "required-topology", rack), member("w", 8, "preferred-topology", rack)}, "must name the same level"},
		"three":                  {[]kueue.PodSet{member("l", 1, "required-topology", rack), member("v", 1, "required-topology", rack), member("w", 8, "required-topology", rack)}, "exactly 2 pod sets, got: 3"},
		"workers in slices": {[]kueue.PodSet{member("l", 1, "required-topology", block),
			podSet("w", 8, "group-name", "g", "required-topology", block, "slice-required-topology", rack, "slice-size", "2")}, ""},
		"workers in layers": {[]kueue.PodSet{member("l", 1, "required-topology", block), podSet("w", 8, "group-name", "g", "required-topology", block,
			"slice-required-topology-constraints", `[{"topology":"example.com/rack","size":4}]`)}, ""},
		"one more without a group": {[]kueue.PodSet{podSet("x", 3), member("l", 1, "required-topology", rack), member("w", 8, "required-topology", rack)}, ""},
	} {
		refusals := Complete(c.podSets)
		if c.want == "" && len(refusals) > 0 || c.want != "" && (len(refusals) != 1 || !strings.Contains(refusals[0], c.want)) {
			t.Errorf("%s: refused because of %q, want %q", name, refusals, c.want)
		}
	}
	refusals := Complete([]kueue.PodSet{member("l", 1, "required-topology", rack), offset})
	if len(refusals) == 0 || !strings.Contains(refusals[0], "may not be set when kueue.x-k8s.io/pod-index-offset is") {
		t.Errorf("workers with an offset: refused because of %q", refusals)
	}
}

func TestElasticJobsAreUnconstrained(t *testing.T) {
	if got := Elastic([]kueue.PodSet{podSet("main", 8, "unconstrained-topology", "true")}); len(got) > 0 {
		t.Errorf("unconstrained is refused: %q", got)
	}
	for _, annotation := range []string{"required-topology", "preferred-topology", "slice-required-topology"} {
		if got := Elastic([]kueue.PodSet{podSet("main", 8, annotation, rack)}); len(got) != 1 || !strings.Contains(got[0], annotation) {
			t.Errorf("%s: %q", annotation, got)
		}
	}
}

func TestAnnotationsAreReadOnPodTemplates(t *testing.T) {
	onJob := &metav1.ObjectMeta{Annotations: map[string]string{kueue.PodSetRequiredTopologyAnnotation: rack}}
	if got := Misplaced(onJob, []kueue.PodSet{podSet("main", 8)}); len(got) != 1 || !strings.Contains(got[0], "move it to its pod template") {
		t.Errorf("on the job alone: %q", got)
	}
	if got := Misplaced(onJob, []kueue.PodSet{podSet("main", 8, "required-topology", rack)}); len(got) > 0 {
		t.Errorf("a pod is its own template: %q", got)
	}
	labelled := &metav1.ObjectMeta{Labels: map[string]string{kueue.PodSetGroupName: "g"}}
	if got := Misplaced(labelled, nil); len(got) != 1 || !strings.Contains(got[0], `podset-group-name, "g", is a label`) {
		t.Errorf("a label: %q", got)
	}
}

func TestSameRequests(t *testing.T) {
	if !Same(nil, &kueue.PodSetTopologyRequest{PodIndexLabel: new(index)}) {
		t.Error("a label that numbers the pods is taken for a wish")
	}
	if Same(nil, &kueue.PodSetTopologyRequest{Required: new(rack)}) {
		t.Error("a level is not a wish")
	}
}
