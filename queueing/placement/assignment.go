package placement

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Limits of the API: slices of an assignment, and domains of a slice.
const (
	mostSlices  = 1_000
	mostDomains = 100_000
)

// Levels returns the levels of an assignment: all levels, or only kubernetes.io/hostname if that is the lowest.
func (t *Tree) Levels() []string {
	if t.hosts {
		return t.levels[len(t.levels)-1:]
	}
	return t.levels
}

// Encode returns the assignment of these domains in the given order. Names of the nodes of a rack often differ only in
// their last part. So Encode returns the shorter of two encodings: one slice for each common prefix, or a single slice.
// An object in etcd may have at most 1.5 MiB.
func Encode(levels []string, domains []Domain) *kueue.TopologyAssignment {
	single := encode(levels, slices.Chunk(domains, mostDomains))
	byPrefix := encode(levels, groupByPrefix(domains))
	if len(byPrefix.Slices) <= mostSlices && size(byPrefix) < size(single) {
		return byPrefix
	}
	return single
}

func size(a *kueue.TopologyAssignment) int {
	text, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("an assignment cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return len(text)
}

// groupByPrefix yields sequences of domains whose names have the same prefix up to the last hyphen.
func groupByPrefix(domains []Domain) func(func([]Domain) bool) {
	prefix := func(d Domain) string {
		name := d.Values[len(d.Values)-1]
		return name[:strings.LastIndexByte(name, '-')+1]
	}
	return func(yield func([]Domain) bool) {
		for len(domains) > 0 {
			n := 1
			for n < len(domains) && n < mostDomains && prefix(domains[n]) == prefix(domains[0]) {
				n++
			}
			if !yield(domains[:n]) {
				return
			}
			domains = domains[n:]
		}
	}
}

func encode(levels []string, parts func(func([]Domain) bool)) *kueue.TopologyAssignment {
	out := &kueue.TopologyAssignment{Levels: levels}
	for part := range parts {
		s := kueue.TopologyAssignmentSlice{DomainCount: int32(len(part))}
		for level := range levels {
			values := make([]string, len(part))
			for i, d := range part {
				values[i] = d.Values[level]
			}
			s.ValuesPerLevel = append(s.ValuesPerLevel, encodeValues(values))
		}
		counts := make([]int32, len(part))
		same := true
		for i, d := range part {
			counts[i] = d.Count
			same = same && d.Count == part[0].Count
		}
		if same {
			s.PodCounts.Universal = &counts[0]
		} else {
			s.PodCounts.Individual = counts
		}
		out.Slices = append(out.Slices, s)
	}
	return out
}

// encodeValues factors out the common prefix and suffix of the values.
func encodeValues(values []string) (out kueue.TopologyAssignmentSliceLevelValues) {
	prefix, suffix := values[0], values[0]
	for _, v := range values[1:] {
		for !strings.HasPrefix(v, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
		for !strings.HasSuffix(v, suffix) {
			suffix = suffix[1:]
		}
	}
	shortest := slices.MinFunc(values, func(a, b string) int { return len(a) - len(b) })
	longest := slices.MaxFunc(values, func(a, b string) int { return len(a) - len(b) })
	if len(prefix) == len(longest) {
		out.Universal = &prefix
		return out
	}
	prefix = prefix[:min(len(prefix), len(shortest)-len(suffix))] // they may overlap, as in "aba" and "ababa"
	out.Individual = &kueue.TopologyAssignmentSliceLevelIndividualValues{}
	if prefix != "" {
		out.Individual.Prefix = &prefix
	}
	if suffix != "" {
		out.Individual.Suffix = &suffix
	}
	for _, v := range values {
		out.Individual.Roots = append(out.Individual.Roots, v[len(prefix):len(v)-len(suffix)])
	}
	return out
}

// Decode decodes any valid encoding of an assignment, in its order.
func Decode(a *kueue.TopologyAssignment) ([]Domain, error) {
	var out []Domain
	for i := range a.Slices {
		s := &a.Slices[i]
		n := int(s.DomainCount)
		field := func(name string) string { return fmt.Sprintf("topologyAssignment.slices[%d].%s", i, name) }
		if n < 0 || len(s.ValuesPerLevel) != len(a.Levels) {
			return nil, fmt.Errorf("%s has %d levels for %d domains, want %d levels", field("valuesPerLevel"),
				len(s.ValuesPerLevel), n, len(a.Levels))
		}
		domains := make([]Domain, n)
		for at := range s.ValuesPerLevel {
			v := &s.ValuesPerLevel[at]
			if v.Universal == nil && (v.Individual == nil || len(v.Individual.Roots) != n) {
				return nil, fmt.Errorf("%s needs universal, or %d roots", field(fmt.Sprintf("valuesPerLevel[%d]", at)), n)
			}
			for j := range domains {
				domains[j].Values = append(domains[j].Values, valueOf(v, j))
			}
		}
		if s.PodCounts.Universal == nil && len(s.PodCounts.Individual) != n {
			return nil, fmt.Errorf("%s needs universal, or %d numbers in individual", field("podCounts"), n)
		}
		for j := range domains {
			if s.PodCounts.Universal != nil {
				domains[j].Count = *s.PodCounts.Universal
			} else {
				domains[j].Count = s.PodCounts.Individual[j]
			}
		}
		out = append(out, domains...)
	}
	return out, nil
}

func valueOf(v *kueue.TopologyAssignmentSliceLevelValues, i int) string {
	if v.Universal != nil {
		return *v.Universal
	}
	return ptr.Deref(v.Individual.Prefix, "") + v.Individual.Roots[i] + ptr.Deref(v.Individual.Suffix, "")
}
